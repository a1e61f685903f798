//! What can be wrong with a trace, and what was met while it was read.

use crate::Millis;
use std::{fmt, io};

/// Why a trace ends early.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line is not what the format says, and the reader is strict or the line is the head.
    #[error("{0}")]
    Malformed(Malformed),
    /// The first line belongs to no format that we know.
    #[error("line 1 is of no known format (--format tidepool, mooncake or azure names one): it begins with {0:?}")]
    UnknownFormat(String),
    /// A time that was multiplied is later than any that a trace can have.
    #[error("request {request}: {} ms times {factor} is later than 2^53 ms, the latest that a trace can have", .time.0)]
    TooLate {
        /// Which request has it; counts from 1.
        request: u64,
        /// The time, or the pause.
        time: Millis,
        /// What it was multiplied by.
        factor: f64,
    },
}

/// A line that is not what the format says, or not what it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Counts from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// How it begins; empty where the reason says all.
    pub start: String,
}

/// Characters of a line that are shown.
const SHOWN: usize = 60;

impl Malformed {
    /// The line of this number and text, which may not be text at all.
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

/// What was met so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that were read.
    pub requests: u64,
    /// Lines that were skipped because they are not what the format says.
    pub malformed: u64,
    /// The first of them.
    pub first_malformed: Option<Malformed>,
    /// Requests that have more blocks than their tokens fill, or fewer than they fill whole. They are taken as they are.
    pub contradictory: u64,
    /// The first of them.
    pub first_contradictory: Option<Malformed>,
    /// Requests whose time was before that of the request ahead of them. They count as arriving with that one.
    pub backwards: u64,
}
