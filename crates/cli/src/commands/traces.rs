//! Traces as arguments of commands, and remarks about bad ones.

use super::Usage;
use super::client::PARTIAL;
use super::stoppable::Stoppable;
use crate::{Status, output};
use clap::Args;
use serde_json::{Value, json};
use std::sync::{Arc, atomic::AtomicBool};
use std::{error::Error, io::BufReader, path::Path, path::PathBuf};
use tidepool_trace::{BLOCK_TOKENS, Format, Options, Reader, Report, TraceError};
use tidepool_types::ByteSize;

/// How traces are read.
#[derive(Debug, Clone, Args)]
pub(super) struct ReadArgs {
    /// Format of the trace: tidepool, mooncake or azure [default: known by the first line]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Stop at the first malformed line instead of skipping it
    #[arg(long)]
    strict: bool,
    /// Tokens of a block; a trace that says otherwise is an error [default: what the trace says, or 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    block_tokens: Option<u32>,
}

/// A trace whose beginning has been read.
pub(super) type Opened = Reader<BufReader<Stoppable>>;

impl ReadArgs {
    /// Tokens of a block, for traces that do not say.
    pub(super) fn block_tokens(&self) -> u32 {
        self.block_tokens.unwrap_or(BLOCK_TOKENS)
    }

    /// Whether it has an option that generated requests do not take.
    pub(super) const fn is_of_files(&self) -> bool {
        self.strict || self.format.is_some()
    }

    /// Opens a trace and reads up to its first request. Once `stop` is set, reading fails.
    pub(super) fn open(&self, path: &Path, stop: &Arc<AtomicBool>) -> Result<Opened, Box<dyn Error>> {
        let options = Options { format: self.format, strict: self.strict, block_tokens: self.block_tokens() };
        let file = Stoppable::open(path, stop).map_err(TraceError::from);
        let trace = file.and_then(|file| Reader::new(BufReader::with_capacity(1 << 18, file), options));
        let trace = trace.map_err(|error| format!("{}: {error}", path.display()))?;
        let (said, wanted) = (trace.block_tokens(), self.block_tokens());
        if self.block_tokens.is_some() && said != wanted {
            let what = format!("its first line says that blocks have {said} tokens, --block-tokens {wanted}");
            return Err(Usage(format!("{}: {what}", path.display())).into());
        }
        Ok(trace)
    }

    /// Prints remarks about a trace that was read. The malformed line that ends a strict run is reported elsewhere.
    pub(super) fn complain(&self, path: &Path, trace: &Opened) {
        let mut report = trace.report().clone();
        report.first_malformed = report.first_malformed.filter(|_| !self.strict);
        Read::new(&path.display().to_string(), trace.block_tokens(), report, None);
    }
}

/// The outcome of reading a trace.
pub(super) struct Read {
    pub(super) block_tokens: u32,
    report: Report,
    /// The error that ended it early.
    error: Option<String>,
    /// The other reason that ended it early.
    stopped: Option<Stopped>,
    /// Remarks for the user.
    remarks: Vec<String>,
}

/// A reason outside the trace that ends it early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// A signal from the user.
    Signal,
    /// Too little memory for more of the trace.
    Memory,
}

impl Read {
    /// Notes that `stopped` ended the reading, if that is given.
    pub(super) fn until_stopped(mut self, stopped: Option<Stopped>) -> Self {
        self.stopped = stopped;
        if let Some(stopped) = stopped {
            let why = match stopped {
                Stopped::Signal => "stopped",
                Stopped::Memory => "too little memory is left for the rest of the trace",
            };
            let requests = counted(self.report.requests, "request", "requests");
            self.remark(format!("{why}: the report covers the {requests} before"));
        }
        self
    }

    /// Prints a remark on standard error, and keeps it for pages.
    pub(super) fn remark(&mut self, remark: String) {
        output::complain(&remark);
        self.remarks.push(remark);
    }

    /// The subject of a page, with the remarks about the trace.
    pub(super) fn with_remarks(&self, what: &str) -> String {
        self.remarks.iter().fold(what.to_owned(), |text, remark| format!("{text} NOTE: {remark}."))
    }

    /// The outcome of a trace that was read up to `error`, if there was one. Prints the remarks.
    pub(super) fn new(name: &str, block_tokens: u32, report: Report, error: Option<TraceError>) -> Self {
        let error = error.map(|error| format!("{name}: {error}"));
        let remarks = remarks(name, &report, error.as_deref());
        let mut read = Self { block_tokens, report, error, stopped: None, remarks: Vec::new() };
        remarks.into_iter().for_each(|remark| read.remark(remark));
        read
    }

    /// Whether the trace was read to its end.
    pub(super) const fn is_whole(&self) -> bool {
        self.error.is_none() && self.stopped.is_none()
    }

    /// Failure if the trace ended early by an error; a partial result if it was stopped.
    pub(super) fn status(&self) -> Status {
        match (&self.error, self.stopped) {
            (Some(_), _) => Status::FAILURE,
            (None, Some(_)) => Status(PARTIAL),
            (None, None) => Status::SUCCESS,
        }
    }

    /// The trace and the remarks, for a command's JSON object.
    pub(super) fn describe(&self) -> Value {
        json!({
            "requests": self.report.requests,
            "block_tokens": self.block_tokens,
            "malformed_lines": self.report.malformed,
            "first_malformed": self.report.first_malformed.as_ref().map(ToString::to_string),
            "contradictory_lengths": self.report.contradictory,
            "first_contradictory": self.report.first_contradictory.as_ref().map(ToString::to_string),
            "times_backwards": self.report.backwards,
            "error": self.error,
            "stopped": self.stopped.is_some(),
            "short_of_memory": self.stopped == Some(Stopped::Memory),
        })
    }
}

/// Remarks on a trace, and what they mean.
fn remarks(name: &str, report: &Report, error: Option<&str>) -> Vec<String> {
    let Report { requests, malformed, first_malformed, contradictory, first_contradictory, backwards } = report;
    let skipped = first_malformed.as_ref().filter(|_| error.is_none());
    let skipped = skipped.map(|first| {
        let lines = counted(*malformed, "malformed line", "malformed lines");
        format!("{name}: {lines} skipped; the first: {first}")
    });
    let odd = first_contradictory.as_ref().map(|first| {
        let requests = counted(*contradictory, "request has", "requests have");
        format!("{name}: {requests} more or fewer blocks than the tokens fill, taken as they are; the first: {first}")
    });
    let backwards = (*backwards > 0).then(|| {
        let requests = counted(*backwards, "request is", "requests are");
        format!("{name}: {requests} earlier than the request before, and taken as arriving with it")
    });
    let before = counted(*requests, "request", "requests");
    let ended = error.map(|error| format!("{error}; the report covers the {before} before"));
    [skipped, odd, backwards, ended].into_iter().flatten().collect()
}

/// A trace, and how it is read.
#[derive(Debug, Clone, Args)]
pub(super) struct TraceArgs {
    /// File with the trace
    #[arg(value_name = "TRACE")]
    pub(super) path: PathBuf,
    #[command(flatten)]
    pub(super) read: ReadArgs,
}

impl TraceArgs {
    pub(super) fn open(&self, stop: &Arc<AtomicBool>) -> Result<Opened, Box<dyn Error>> {
        self.read.open(&self.path, stop)
    }
}

/// How large blocks are.
#[derive(Debug, Clone, Args)]
pub(super) struct SizeArgs {
    /// Bytes of attention state for one token; the default is that of an 8-billion-parameter Llama 3
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = token)]
    token_bytes: ByteSize,
}

impl SizeArgs {
    pub(super) const fn block_bytes(&self, block_tokens: u32) -> u64 {
        self.token_bytes.0.saturating_mul(block_tokens as u64)
    }
}

/// A size that a token may have. The largest models need some megabytes.
pub(super) fn token(text: &str) -> Result<ByteSize, String> {
    positive(text).ok().filter(|size| size.0 <= 1 << 30).ok_or_else(|| "allowed is 1B to 1GiB".to_owned())
}

/// A size that is not zero.
pub(super) fn positive(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if size.0 > 0 { Ok(size) } else { Err("allowed is 1B or more".to_owned()) }
}

/// A number with its thousands grouped.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// A number with its noun: `one` for 1, `many` for others.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// A size for people, in binary units with one digit.
pub(super) fn rounded(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(name, shift)| format!("{:.1} {name}", bytes as f64 / (1_u64 << shift) as f64),
    )
}

/// A bar that is `part` of `width` characters long.
pub(super) fn bar(part: f64, width: usize) -> String {
    "#".repeat((part.clamp(0.0, 1.0) * width as f64).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_written_for_people() {
        assert_eq!([0, 999, 1000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([0, 1, 2000].map(|number| counted(number, "day", "days")), ["0 days", "1 day", "2,000 days"]);
        assert_eq!([5, 2048, 3 << 39].map(rounded), ["5 B", "2.0 KiB", "1.5 TiB"]);
    }
}
