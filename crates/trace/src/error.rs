//! Errors of a trace, and the report of a reader.

use crate::Millis;
use std::{fmt, io};

/// Why a trace ends early.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A malformed line, where the reader is strict or the line is the head.
    #[error("{0}")]
    Malformed(Malformed),
    /// A first line of no known format.
    #[error("line 1 is of no known format (--format tidepool, mooncake or azure names one): it begins with {0:?}")]
    UnknownFormat(String),
    /// A time that was multiplied beyond the latest one of a trace.
    #[error("request {request}: {} ms times {factor} is later than 2^53 ms, the latest that a trace can have", .time.0)]
    TooLate {
        /// The request's number, from 1.
        request: u64,
        /// The time, or the pause.
        time: Millis,
        /// The factor.
        factor: f64,
    },
}

/// A line that breaks its format, or contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The line's number, from 1.
    pub line: u64,
    /// The fault of the line.
    pub reason: String,
    /// The line's first characters; empty where the reason says everything.
    pub start: String,
}

/// Characters of a line that are shown.
const SHOWN: usize = 60;

impl Malformed {
    /// Describes line `line`; `text` need not be UTF-8.
    pub(crate) fn new(line: u64, reason: String, text: &[u8]) -> Self {
        // No character has more than four bytes.
        let text = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN + 4)]);
        let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let mut start: String = text.chars().take(SHOWN).map(plain).collect();
        if text.chars().nth(SHOWN).is_some() {
            start.push_str("...");
        }
        Self { line, reason, start }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, reason, start } = self;
        write!(f, "line {line}: {reason}")?;
        if start.is_empty() { Ok(()) } else { write!(f, ", in {start}") }
    }
}

/// The report of a reader, up to the line that it read last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were read.
    pub requests: u64,
    /// Lines that the reader skipped because they are malformed.
    pub malformed: u64,
    /// The first malformed line.
    pub first_malformed: Option<Malformed>,
    /// Requests with more blocks than their tokens fill, or fewer than they fill whole. The reader takes them as they
    /// are.
    pub contradictory: u64,
    /// The first contradictory request.
    pub first_contradictory: Option<Malformed>,
    /// Requests with a time before that of the request ahead of them. They count as arriving with that request.
    pub backwards: u64,
}
