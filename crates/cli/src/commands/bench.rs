//! `tidepool bench`: runs the benchmark, or compares two builds by it, and prints what it found.

mod against;

use crate::bench::{
    BenchError, FULL_FOOTPRINT, Plan, PlantedDelay, Report, baselines, compare::Samples, fields, goals,
    machine::Machine,
};
use crate::daemon::Signals;
use crate::files;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::{
    error::Error,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    time::Duration,
};
use tidepool_transfer::conn::TcpOptions;
use tidepool_types::{ByteSize, Deadline};

/// Timings per side, by default.
const SAMPLES: u16 = 5;

/// How to measure and what to print.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the JSON object to this file
    #[arg(long, value_name = "FILE", value_parser = files::name())]
    json_file: Option<PathBuf>,
    /// Measure only these fields
    #[arg(long, value_name = "FIELD", value_delimiter = ',', num_args = 1.., value_parser = goals::field_name)]
    only: Vec<String>,
    /// Measure only the machine: memcpy and raw sockets
    #[arg(long, conflicts_with = "only")]
    baselines: bool,
    /// Compare with an older build of this program, field by field; exits with 1 if this one is slower
    #[arg(long, value_name = "BINARY", conflicts_with = "baselines")]
    against: Option<PathBuf>,
    /// The program to compare in place of this one
    #[arg(long, value_name = "BINARY", hide = true, requires = "against")]
    new: Option<PathBuf>,
    /// Have the pool's own operations take longer, or those of the new build
    #[arg(long, value_name = "PERCENT", hide = true, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    plant_delay: u32,
    /// Time for the whole benchmark, or for each run of a comparison; fields that do not fit in are null
    #[arg(long, value_name = "SECONDS", default_value_t = 540, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds_budget: u64,
    /// Timings per side, of which the median counts [default: 5; with --against up to 101, by field]
    #[arg(long, value_parser = clap::value_parser!(u16).range(5..=101))]
    samples: Option<u16>,
    /// Bytes of source and destination of every copy; below 1GiB the result says more about caches than about memory
    /// [default: 1GiB; with --against 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = footprint)]
    footprint: Option<ByteSize>,
    /// Decides contents and orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// TCP connections of every socket comparison, with a thread at each end
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// Buffers of the raw sockets [default: those that the pool's own sockets have]
    #[arg(long, value_name = "SIZE")]
    socket_buffer: Option<ByteSize>,
}

/// The buffers that the pool's sockets have.
fn pool_socket_buffer() -> Option<ByteSize> {
    TcpOptions::default().buffer_bytes.map(|bytes| ByteSize(bytes as u64))
}

/// Footprints are whole numbers of every block and of every stream's share.
fn footprint(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    let whole = size.0.is_power_of_two() && (8 << 20..=64 << 30).contains(&size.0);
    if whole { Ok(size) } else { Err("allowed is a power of two from 8MiB to 64GiB".to_owned()) }
}

/// Runs the benchmark, or compares.
pub(super) fn run(args: &BenchArgs) -> Result<(), Box<dyn Error>> {
    args.json_file.as_deref().map_or(Ok(()), files::check)?;
    if let Some(old) = &args.against {
        return against::run(args, old);
    }
    let plan = Plan {
        samples: usize::from(args.samples.unwrap_or(SAMPLES)),
        footprint: args.footprint.unwrap_or(FULL_FOOTPRINT),
        seed: args.seed,
        streams: args.streams,
        socket_buffer: args.socket_buffer.or_else(pool_socket_buffer),
        only: args.only.clone(),
        planted_delay: PlantedDelay(args.plant_delay),
        deadline: Deadline::after(Duration::from_secs(args.seconds_budget)),
    };
    let mut report = Report::new(Machine::here(), plan.clone());
    if plan.footprint < FULL_FOOTPRINT {
        report.note(format!("a footprint below {FULL_FOOTPRINT} is for trying the benchmark out"));
    }
    if args.plant_delay > 0 {
        report.note(format!("the pool's operations were made to take {} % longer", args.plant_delay));
    }
    if args.baselines {
        let samples = measure_baselines(&plan)?;
        let text = baselines::table(&samples);
        report.keep("baselines", samples);
        return print(args, &report.json(), &text);
    }
    tidy_up_when_interrupted()?;
    let failed = measure_fields(&plan, &mut report);
    let text = report.table();
    print(args, &report.json(), &text)?;
    if failed > 0 {
        return Err(format!("{failed} measurements failed: see the notes").into());
    }
    Ok(())
}

/// Pools of a benchmark are gigabytes of shared memory that outlive their processes. Removes those of killed runs, and
/// this run's own when a signal ends it.
fn tidy_up_when_interrupted() -> std::io::Result<()> {
    fields::remove_abandoned_work_dirs();
    let signals = Signals::catch()?;
    let end = || {
        signals.wait();
        fields::remove_work_dirs(|process| process == std::process::id());
        std::process::exit(130);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(end).map(drop)
}

fn measure_fields(plan: &Plan, report: &mut Report) -> usize {
    let progress = spinner();
    let failed = fields::measure(plan, report, |name| {
        progress.set_message(name.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    failed
}

fn measure_baselines(plan: &Plan) -> Result<Vec<Samples>, BenchError> {
    let progress = progress(baselines::steps(plan));
    let samples = baselines::measure(plan, |name| {
        progress.set_message(name.to_owned());
        progress.inc(1);
    });
    progress.finish_and_clear();
    samples
}

/// A bar on standard error, if that is a terminal.
fn progress(steps: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}

/// A line on standard error that says what is being measured, if that is a terminal.
fn spinner() -> ProgressBar {
    if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}

fn print(args: &BenchArgs, json: &Value, text: &str) -> Result<(), Box<dyn Error>> {
    let json = serde_json::to_string_pretty(json)?;
    if let Some(file) = &args.json_file {
        files::replace(file, format!("{json}\n").as_bytes())?;
    }
    let text = if args.json { format!("{json}\n") } else { text.to_owned() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
