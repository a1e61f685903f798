//! Reports as HTML pages, for the commands that write them.

use super::Usage;
use crate::files;
use crate::page::{Line, Page, Plot};
use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use tidepool_sim::Quantiles;

/// Where a page goes.
#[derive(Debug, Clone, Args)]
pub(super) struct HtmlArgs {
    /// Also write what was found as a page for a browser
    #[arg(long, value_name = "FILE", value_parser = files::name())]
    pub(super) html: Option<PathBuf>,
}

impl HtmlArgs {
    /// Fails before the work begins if the page cannot be written, or would replace the command's input.
    pub(super) fn check(&self, input: Option<&Path>) -> Result<(), Box<dyn Error>> {
        let Some(page) = self.html.as_deref() else { return Ok(()) };
        if input.is_some_and(|input| files::is_same(page, input)) {
            return Err(Usage(format!("--html {}: allowed is a file other than the trace", page.display())).into());
        }
        Ok(files::check(page)?)
    }

    /// Writes the page, if `--html` was given.
    pub(super) fn write(&self, page: impl FnOnce() -> Page) -> Result<(), String> {
        self.html.as_deref().map_or(Ok(()), |path| files::replace(path, page().html().as_bytes()))
    }
}

/// The rows of a report for people: each line's name, and the text after two or more spaces.
pub(super) fn rows(report: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let (name, value) = line.split_once("  ")?;
        Some(vec![name.to_owned(), value.trim().to_owned()])
    };
    report.lines().filter_map(cells).collect()
}

/// A plot of request times: for every percent of requests, their longest time in seconds.
pub(super) fn times(title: &str, of: &[(&str, &Quantiles)]) -> Plot {
    let at = |times: &Quantiles, percent: u32| times.at(f64::from(percent) / 100.0) as f64 / 1e6;
    let points =
        |times: &Quantiles| (0..=100).map(|percent| (f64::from(percent), at(times, percent))).collect::<Vec<_>>();
    let lines = of.iter().map(|(name, times)| Line::new(name, points(times))).collect();
    Plot::new(title, "% of requests", "seconds at most", lines)
}

/// A plot of a distribution: for each value, the percent of values that do not exceed it.
pub(super) fn spread(title: &str, of: &Quantiles) -> Plot {
    let at = |percent: u32| (of.at(f64::from(percent) / 100.0) as f64, f64::from(percent));
    Plot::new(title, title, "% that are not above", vec![Line::new("", (0..=100).map(at))]).log()
}
