//! The page of a plan: plots over sizes of memory and of disk.

use super::{Plan, Point};
use crate::commands::traces::rounded;
use crate::page::{Line, Page, Plot};
use tidepool_sim::plan::Setting;

/// Number of sizes in a plot.
const SIZES: u64 = 200;

impl Plan {
    /// The page, about `what`.
    pub(super) fn page(&self, what: &str) -> Page {
        let most = self.curve.largest().0.saturating_mul(self.setting.block_bytes).max(1);
        let sizes = || (0..=SIZES).map(|part| (most as f64 * part as f64 / SIZES as f64) as u64);
        let memory: Vec<_> = sizes().map(|size| (size, self.setting.point(&self.curve, size))).collect();
        let behind = |disk_bytes| Setting { disk_bytes, ..self.setting }.point(&self.curve, self.have.memory_bytes);
        let disk: Vec<_> = sizes().map(|size| (size, behind(size))).collect();
        let page = Page::new("Tidepool: how much memory is enough").text(what);
        let page = self.words().lines().fold(page, |page, line| page.text(line));
        let page = self.plots(page.heading("By memory"), "memory", most, &memory);
        let rows = self.points.iter().map(|point| self.row(point.memory_bytes, point)).collect::<Vec<_>>();
        let page = page.table(&HEAD, &rows);
        let title = format!("By disk behind {} of memory", rounded(self.have.memory_bytes));
        let page = self.plots(page.heading(&title), "disk", most, &disk);
        page.table(&HEAD, &self.with_disk.iter().map(|(size, point)| self.row(*size, point)).collect::<Vec<_>>())
    }

    fn row(&self, size: u64, point: &Point) -> Vec<String> {
        vec![
            rounded(size),
            format!("{:.2} %", 100.0 * point.hit_rate),
            format!("{:.2} %", self.saved(point)),
            format!("{:.3} s", point.first_token_seconds),
        ]
    }

    /// Hit rate, GPU time and time to first token over sizes, of which the largest is `most`.
    fn plots(&self, page: Page, what: &str, most: u64, points: &[(u64, Point)]) -> Page {
        let (name, shift) = if most >> 40 > 0 { ("TiB", 40) } else { ("GiB", 30) };
        let x = format!("{what}, {name}");
        let size = |bytes: u64| bytes as f64 / (1_u64 << shift) as f64;
        let line = |name: &str, value: &dyn Fn(&Point) -> f64| {
            Line::new(name, points.iter().map(|(bytes, point)| (size(*bytes), value(point))).collect::<Vec<_>>())
        };
        let mut percents =
            vec![line("hit rate", &|point| 100.0 * point.hit_rate), line("GPU time saved", &|point| self.saved(point))];
        if let Some(knee) = self.knee.filter(|_| what == "memory") {
            let at = size(knee.memory_bytes);
            percents.push(Line::new("knee", [(at, 0.0), (at, 100.0 * knee.hit_rate)]));
        }
        let first = vec![line("first token", &|point| point.first_token_seconds)];
        page.plot(&Plot::new("Hits, and GPU time for prompts that they save", &x, "%", percents)).plot(&Plot::new(
            "Time until a prompt is ready, nobody waiting",
            &x,
            "seconds, mean",
            first,
        ))
    }
}

const HEAD: [&str; 4] = ["size", "hit rate", "GPU time saved", "first token"];
