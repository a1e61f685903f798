//! `tidepool bench --against`: compares this program with an older build of it.

use super::{BenchArgs, print, spinner};
use crate::bench::against::{self, AgainstError, Binary, Build, Comparison, FOOTPRINT, Options};
use crate::bench::fields;
use crate::commands::Usage;
use crate::daemon::stop_flag;
use std::{error::Error, path::Path, time::Duration};

/// Compares, prints what it found, and fails if a field did.
pub(super) fn run(args: &BenchArgs, old: &Path) -> Result<(), Box<dyn Error>> {
    let options = options(args)?;
    let new = args.new.clone().map_or_else(std::env::current_exe, Ok)?;
    let mut comparison = Comparison::new(find(Build::Old, old)?, find(Build::New, &new)?);
    fields::remove_abandoned_work_dirs();
    let progress = spinner();
    let ended = against::measure(&mut comparison, &options, |text| {
        progress.set_message(text.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    // Of an earlier run that was killed.
    fields::remove_abandoned_work_dirs();
    if comparison.has_judged() || ended.is_ok() {
        print(args, &comparison.json(), &comparison.table())?;
    }
    match ended {
        Err(AgainstError::Interrupted) => std::process::exit(130),
        Err(error @ (AgainstError::Unusable { .. } | AgainstError::UnknownField { .. })) => usage(&error),
        Err(error) => Err(error.into()),
        Ok(()) => verdict(&comparison),
    }
}

fn find(build: Build, path: &Path) -> Result<Binary, Usage> {
    Binary::find(build, path).map_err(|error| Usage(error.to_string()))
}

fn usage<T>(error: &AgainstError) -> Result<T, Box<dyn Error>> {
    Err(Usage(error.to_string()).into())
}

fn verdict(comparison: &Comparison) -> Result<(), Box<dyn Error>> {
    let failed = comparison.failed();
    if failed.is_empty() { Ok(()) } else { Err(format!("the new build failed in {}", failed.join(", ")).into()) }
}

fn options(args: &BenchArgs) -> std::io::Result<Options> {
    let mut arguments = vec![
        ("--footprint", args.footprint.unwrap_or(FOOTPRINT).to_string()),
        ("--seed", args.seed.to_string()),
        ("--streams", args.streams.to_string()),
        ("--seconds-budget", args.seconds_budget.to_string()),
    ];
    arguments.extend(args.socket_buffer.map(|size| ("--socket-buffer", size.to_string())));
    let flat = |(name, value): (&str, String)| [name.to_owned(), value];
    let delay = (args.plant_delay > 0).then(|| ("--plant-delay", args.plant_delay.to_string()));
    Ok(Options {
        only: args.only.clone(),
        samples: args.samples,
        arguments: arguments.into_iter().flat_map(flat).collect(),
        new_arguments: delay.into_iter().flat_map(flat).collect(),
        limit: Duration::from_secs(args.seconds_budget),
        stop: stop_flag()?,
    })
}
