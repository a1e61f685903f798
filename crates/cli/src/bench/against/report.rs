//! The report of a comparison: a JSON object for machines, a table for people.

use super::series::Series;
use super::statistics::{Estimate, Verdict, cpu_is_alike};
use super::{Binary, Build, Group, Pair, speed};
use crate::bench::machine::Machine;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Pairs in a line of the table.
const PAIRS_IN_A_LINE: usize = 10;

/// The two builds and the fields judged so far.
#[derive(Debug)]
pub struct Comparison {
    binaries: [Binary; 2],
    /// Each build's description of itself.
    about: [Value; 2],
    judged: Vec<Judged>,
}

/// A field, or a part of one, and its verdict.
#[derive(Debug, Clone, Serialize)]
struct Judged {
    field: &'static str,
    part: Option<&'static str>,
    verdict: Verdict,
    /// Whether the comparison fails because of it: a field that fails, or an open one that takes more CPU seconds.
    failed: bool,
    /// Speed, new over old: above one, the new build is faster, or takes less memory.
    speed: Estimate,
    /// CPU seconds of a run, new over old: above one, the new build takes more.
    cpu: Estimate,
    /// Seconds of all runs.
    seconds: f64,
    /// The command lines of the old build's runs and of the new one's.
    arguments: [Vec<String>; 2],
    pairs: Vec<PairFigures>,
}

/// The figures of a pair, in the unit that a run gives them in.
#[derive(Debug, Clone, Copy, Serialize)]
struct PairFigures {
    old: f64,
    new: f64,
    speed: f64,
    old_cpu_s: f64,
    new_cpu_s: f64,
}

impl Judged {
    fn of(series: &'static Series, at: usize, arguments: &[Vec<String>; 2], pairs: &[Pair]) -> Self {
        let figures = |pair: &Pair| {
            let (old, new) = (pair.old.figures[at], pair.new.figures[at]);
            let (old_cpu_s, new_cpu_s) = (pair.old.cpu_seconds, pair.new.cpu_seconds);
            PairFigures { old, new, speed: series.new_over_old(old, new), old_cpu_s, new_cpu_s }
        };
        let cpu: Vec<f64> = pairs.iter().map(|pair| pair.new.cpu_seconds / pair.old.cpu_seconds).collect();
        let (speed, cpu) = (speed(series, at, pairs), Estimate::of(&cpu));
        let verdict = Verdict::of(&speed, pairs.len());
        Self {
            field: series.field,
            part: series.part,
            verdict,
            failed: verdict == Verdict::Fail || (verdict == Verdict::Open && !cpu_is_alike(cpu.ratio)),
            speed,
            cpu,
            seconds: pairs.iter().map(|pair| pair.old.seconds + pair.new.seconds).sum(),
            arguments: arguments.clone(),
            pairs: pairs.iter().map(figures).collect(),
        }
    }

    fn name(&self) -> String {
        self.part.map_or_else(|| self.field.to_owned(), |part| format!("{}.{part}", self.field))
    }

    /// The verdict in words.
    fn words(&self) -> &'static str {
        match (self.verdict, self.failed) {
            (Verdict::Pass, _) => "PASS",
            (Verdict::Fail, _) => "FAIL",
            (Verdict::Open, false) if self.cpu.ratio >= 0.97 => "OPEN, cpu within 3 %",
            (Verdict::Open, false) => "OPEN, less cpu",
            (Verdict::Open, true) => "OPEN, cpu not within 3 %: failed",
        }
    }

    fn line(&self) -> String {
        let Estimate { ratio, low, high } = self.speed;
        let (name, pairs, seconds, cpu, words) =
            (self.name(), self.pairs.len(), self.seconds, self.cpu.ratio, self.words());
        format!("{name:<26} {ratio:>7.3} {low:>9.3} - {high:<7.3} {pairs:>5} {seconds:>8.0} {cpu:>7.3}  {words}\n")
    }

    /// Every pair, a column each.
    fn pair_lines(&self) -> String {
        let mut text = format!("{}, every pair:\n", self.name());
        for pairs in self.pairs.chunks(PAIRS_IN_A_LINE) {
            let row = |name: &str, figure: &dyn Fn(&PairFigures) -> String| {
                let cells: String = pairs.iter().map(|pair| format!("{:>10}", figure(pair))).collect();
                format!("  {name:<8}{cells}\n")
            };
            text += &row("old", &|pair| format!("{:.3e}", pair.old));
            text += &row("new", &|pair| format!("{:.3e}", pair.new));
            text += &row("new/old", &|pair| format!("{:.3}", pair.speed));
            text += &row("cpu old", &|pair| format!("{:.2}s", pair.old_cpu_s));
            text += &row("cpu new", &|pair| format!("{:.2}s", pair.new_cpu_s));
        }
        text
    }
}

impl Comparison {
    /// A comparison without fields.
    pub fn new(old: Binary, new: Binary) -> Self {
        Self { binaries: [old, new], about: [Value::Null, Value::Null], judged: Vec::new() }
    }

    /// The old binary and the new one.
    pub(super) fn binaries(&self) -> &[Binary; 2] {
        &self.binaries
    }

    /// Judges a group of fields by its pairs.
    pub(super) fn add(&mut self, group: &Group, arguments: &[Vec<String>; 2], pairs: &[Pair]) {
        if let Some(Pair { old, new }) = pairs.first() {
            self.about = [old.machine.clone(), new.machine.clone()];
        }
        let judge = |(at, series): (usize, &&'static Series)| Judged::of(series, at, arguments, pairs);
        self.judged.extend(group.series.iter().enumerate().map(judge));
    }

    /// Whether any field was judged.
    pub fn has_judged(&self) -> bool {
        !self.judged.is_empty()
    }

    /// The fields that failed.
    pub fn failed(&self) -> Vec<String> {
        self.judged.iter().filter(|judged| judged.failed).map(Judged::name).collect()
    }

    /// A JSON object with the whole comparison.
    pub fn json(&self) -> Value {
        let Machine { cpu, cores, kernel, huge_pages, .. } = Machine::here();
        let [old, new] = [Build::Old, Build::New].map(|build| self.build(build));
        json!({
            "old": old,
            "new": new,
            "machine": { "cpu": cpu, "cores": cores, "kernel": kernel, "huge_pages": huge_pages },
            "fields": self.judged,
            "failed": self.failed(),
        })
    }

    fn build(&self, build: Build) -> Value {
        let at = usize::from(build == Build::New);
        let (binary, about) = (&self.binaries[at], &self.about[at]);
        json!({
            "path": binary.path,
            "sha256": binary.sha256,
            "version": about["version"],
            "commit": about["commit"],
        })
    }

    /// The builds, the machine, a line for each field, and every pair.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for build in [Build::Old, Build::New] {
            let about = self.build(build);
            let word = |key: &str| about[key].as_str().unwrap_or("unknown").to_owned();
            let (version, commit) = (word("version"), word("commit"));
            let _ = writeln!(text, "{build}: {} (version {version}, commit {commit})", word("path"));
            let _ = writeln!(text, "     SHA-256 {}", word("sha256"));
        }
        let Machine { cpu, cores, kernel, .. } = Machine::here();
        let _ = writeln!(text, "machine: {cores} cores of {cpu}, kernel {kernel}");
        if let Some([old, new]) = self.judged.first().map(|judged| &judged.arguments)
            && old != new
        {
            let _ = writeln!(
                text,
                "runs of the new build had arguments of their own: {}",
                new.get(old.len()..).unwrap_or_default().join(" ")
            );
        }
        text.push('\n');
        let _ = writeln!(
            text,
            "{:<26} {:>7} {:>19} {:>5} {:>8} {:>7}  verdict",
            "field", "new/old", "95 % interval", "pairs", "seconds", "cpu"
        );
        text.extend(self.judged.iter().map(Judged::line));
        text.push('\n');
        text.extend(self.judged.iter().map(Judged::pair_lines));
        text
    }
}
