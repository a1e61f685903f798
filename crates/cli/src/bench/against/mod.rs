//! Compares two builds of this program: `tidepool bench --against BINARY`.
//!
//! Each run is a process of one build, `bench --only FIELDS --json`. Its figures are the raw timings of the pool's own
//! side (`series.rs`). Runs come in the order old, new, new, old, so that a machine that slowly changes its speed
//! favours neither build; two neighbouring runs are a pair. `statistics.rs` judges the pairs; fields that one run
//! measures together share their pairs. CPU seconds are those of a whole run, set-up included: both builds do the same
//! operations.

mod binary;
mod process;
mod report;
mod series;
mod statistics;

pub use binary::Binary;
pub use report::Comparison;

use super::fields;
use process::Trouble;
use serde_json::Value;
use series::Series;
use statistics::Estimate;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tidepool_types::ByteSize;

/// Bytes of source and destination of every copy, by default: several times the caches of most machines; set-up takes
/// a quarter of a run's time.
pub const FOOTPRINT: ByteSize = ByteSize(256 << 20);
/// Time that a run may take beyond its time to measure.
const GRACE: Duration = Duration::from_secs(60);

/// One of the two builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The binary that is compared with.
    Old,
    /// This program.
    New,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Old { "old" } else { "new" })
    }
}

/// Why two builds could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    /// A build's file cannot be measured.
    #[error("{build} build {}: {why}", path.display())]
    Unusable {
        /// The build.
        build: Build,
        /// Its file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A build's benchmark does not have a field.
    #[error("{build} build {}: cannot measure the field {field}: {said}", path.display())]
    UnknownField {
        /// The build.
        build: Build,
        /// Its file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The build's answer.
        said: String,
    },
    /// A run failed.
    #[error("{build} build, {fields}: {why}{}", stderr(.said))]
    Run {
        /// The build.
        build: Build,
        /// The fields measured.
        fields: String,
        /// The reason.
        why: String,
        /// The last lines of its standard error.
        said: String,
    },
    /// A signal ended the comparison.
    #[error("interrupted")]
    Interrupted,
}

fn stderr(said: &str) -> String {
    if said.is_empty() {
        "; its standard error is empty".to_owned()
    } else {
        format!("; its standard error ends:\n{said}")
    }
}

/// How to compare.
#[derive(Debug)]
pub struct Options {
    /// Fields to compare; all if empty.
    pub only: Vec<String>,
    /// Timings of a run, if all fields are to have the same number.
    pub samples: Option<u16>,
    /// Further arguments of every run.
    pub arguments: Vec<String>,
    /// Further arguments of the new build's runs.
    pub new_arguments: Vec<String>,
    /// Time limit of a run.
    pub limit: Duration,
    /// Ends the comparison when set.
    pub stop: Arc<AtomicBool>,
}

/// One run of one build.
#[derive(Debug, Clone)]
struct Run {
    /// One figure for each series.
    figures: Vec<f64>,
    seconds: f64,
    cpu_seconds: f64,
    /// The machine and the build, as the run reports them.
    machine: Value,
}

/// An old run and a new one, next to each other.
#[derive(Debug, Clone)]
struct Pair {
    old: Run,
    new: Run,
}

/// Fields that one run measures together.
struct Group {
    fields: Vec<&'static str>,
    series: Vec<&'static Series>,
}

/// The groups with fields that `options` names.
fn groups(options: &Options) -> Vec<Group> {
    let wanted = |field: &&str| options.only.is_empty() || options.only.iter().any(|only| only == field);
    let group = |fields: &[&'static str]| {
        let fields: Vec<_> = fields.iter().copied().filter(wanted).collect();
        Group { series: series::of(&fields), fields }
    };
    fields::groups().map(group).filter(|group| !group.fields.is_empty()).collect()
}

/// Number of timings for fields whose timings are short against the set-up of a run; all others have [`FEW_SAMPLES`].
const SAMPLES: [(&str, u16); 5] = [
    ("lookup_keys_per_s", 101),
    ("match_prefix_us_5000", 101),
    ("shm_get_vs_memcpy", 25),
    ("put_vs_memcpy", 25),
    ("put_full_vs_half", 25),
];
const FEW_SAMPLES: u16 = 5;

fn samples(fields: &[&str]) -> u16 {
    SAMPLES.iter().find(|(field, _)| fields.contains(field)).map_or(FEW_SAMPLES, |(_, samples)| *samples)
}

/// The command line of a run.
fn arguments(options: &Options, build: Build, fields: &[&str]) -> Vec<String> {
    let samples = options.samples.unwrap_or_else(|| samples(fields));
    let mut arguments = ["bench", "--json", "--samples"].map(str::to_owned).to_vec();
    arguments.extend([samples.to_string(), "--only".to_owned(), fields.join(",")]);
    arguments.extend(options.arguments.iter().cloned());
    if build == Build::New {
        arguments.extend(options.new_arguments.iter().cloned());
    }
    arguments
}

/// Compares the builds field by field and adds the results to `comparison`, which stays valid after a failure. Both
/// builds are checked before the first run. Calls `step` with the progress.
pub fn measure(comparison: &mut Comparison, options: &Options, mut step: impl FnMut(&str)) -> Result<(), AgainstError> {
    let groups = groups(options);
    for binary in comparison.binaries() {
        for field in groups.iter().flat_map(|group| &group.fields) {
            binary.check(field, &arguments(options, binary.build, &[field]), &options.stop)?;
        }
    }
    for group in &groups {
        let binaries = comparison.binaries().clone();
        let mut run = |build| {
            let binary = &binaries[usize::from(build == Build::New)];
            run(binary, group, options)
        };
        let pairs = pairs(group, &mut run, |text| step(text))?;
        binaries.iter().try_for_each(Binary::is_unchanged)?;
        let arguments = [Build::Old, Build::New].map(|build| arguments(options, build, &group.fields));
        comparison.add(group, &arguments, &pairs);
    }
    Ok(())
}

/// Runs pairs until they suffice or cost too much.
fn pairs(
    group: &Group,
    run: &mut dyn FnMut(Build) -> Result<Run, AgainstError>,
    mut step: impl FnMut(&str),
) -> Result<Vec<Pair>, AgainstError> {
    let mut pairs = Vec::new();
    loop {
        let (old, new) = (run(Build::Old)?, run(Build::New)?);
        pairs.push(Pair { old, new });
        let (new, old) = (run(Build::New)?, run(Build::Old)?);
        pairs.push(Pair { old, new });
        let widest = (0..group.series.len()).map(|at| speed(group.series[at], at, &pairs).half_width());
        let widest = widest.fold(0.0, f64::max);
        step(&format!("{}: {} pairs, interval +- {:.1} %", group.fields.join(", "), pairs.len(), widest * 100.0));
        let seconds = pairs.iter().map(|pair| pair.old.seconds + pair.new.seconds).sum();
        if statistics::is_enough(pairs.len(), widest, seconds) {
            return Ok(pairs);
        }
    }
}

/// The speed of the new build over the old one, by the series at place `at` of its group.
fn speed(series: &Series, at: usize, pairs: &[Pair]) -> Estimate {
    let ratio = |pair: &Pair| series.new_over_old(pair.old.figures[at], pair.new.figures[at]);
    Estimate::of(&pairs.iter().map(ratio).collect::<Vec<_>>())
}

/// Runs one build's process and reads its JSON.
fn run(binary: &Binary, group: &Group, options: &Options) -> Result<Run, AgainstError> {
    let failed = |why: String, said: String| {
        let fields = group.fields.join(", ");
        AgainstError::Run { build: binary.build, fields, why, said }
    };
    let mut command = binary.command();
    command.args(arguments(options, binary.build, &group.fields));
    let ended = process::run(&mut command, options.limit + GRACE, &options.stop).map_err(|trouble| match trouble {
        Trouble::Interrupted => AgainstError::Interrupted,
        trouble => failed(trouble.to_string(), String::new()),
    })?;
    let json: Option<Value> = serde_json::from_slice(&ended.output).ok();
    if !ended.status.success() {
        let notes = json.as_ref().map(|json| json["context"]["notes"].to_string()).unwrap_or_default();
        return Err(failed(format!("{} {notes}", ended.status), ended.errors));
    }
    let Some(json) = json else { return Err(failed("printed no JSON".to_owned(), ended.errors)) };
    let figure = |series: &&Series| {
        let why = || format!("its JSON has no figure of {}; notes: {}", series.name(), json["context"]["notes"]);
        series.figure(&json).ok_or_else(|| failed(why(), ended.errors.clone()))
    };
    let figures = group.series.iter().map(figure).collect::<Result<_, _>>()?;
    let machine = json["context"]["machine"].clone();
    Ok(Run { figures, seconds: ended.seconds, cpu_seconds: ended.cpu_seconds, machine })
}
