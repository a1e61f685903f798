//! Trace formats: a parser each, from a line of untrusted bytes to an entry.

mod azure;
mod mooncake;
pub(crate) mod own;

use crate::{BlockHash, MAX_BLOCKS, Request};
use std::{fmt, str::FromStr};

/// A trace's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Our own: JSON lines with sessions; docs/traces.md.
    Tidepool,
    /// Mooncake's JSON lines: time, lengths and hashes of 512-token blocks.
    Mooncake,
    /// The Azure data set's CSV: times and lengths. Every request has blocks of its own.
    Azure,
}

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The head of a file, and the tokens of its blocks if it knows them.
    Head { block_tokens: Option<u32> },
    /// A request, with the time as the file has it.
    Request(Request),
}

/// A parser's input besides the line.
pub(crate) struct Context {
    pub(crate) block_tokens: u32,
    /// Number of blocks that requests without hashes got so far.
    pub(crate) blocks_made: u64,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Tidepool, Self::Mooncake, Self::Azure];

    const fn name(self) -> &'static str {
        match self {
            Self::Tidepool => "tidepool",
            Self::Mooncake => "mooncake",
            Self::Azure => "azure",
        }
    }

    /// The format of a file with this first line.
    pub(crate) fn detect(line: &[u8]) -> Option<Self> {
        match line {
            [b'{', ..] if own::is_head(line) => Some(Self::Tidepool),
            [b'{', ..] => Some(Self::Mooncake),
            _ if azure::is_head(line) => Some(Self::Azure),
            _ => None,
        }
    }

    /// Whether `line` is a head, which describes the lines after it.
    pub(crate) fn is_head(self, line: &[u8]) -> bool {
        self == Self::Tidepool && own::is_head(line)
    }

    /// Whether times count from the first request's.
    pub(crate) fn has_dates(self) -> bool {
        self == Self::Azure
    }

    pub(crate) fn parse(self, line: &[u8], context: &mut Context) -> Result<Entry, String> {
        match self {
            Self::Tidepool => own::parse(line),
            Self::Mooncake => mooncake::parse(line),
            Self::Azure => azure::parse(line, context),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| "allowed is tidepool, mooncake or azure".to_owned())
    }
}

/// Why `blocks` is too many for one request.
fn check_count(blocks: usize) -> Result<(), String> {
    if blocks <= MAX_BLOCKS { Ok(()) } else { Err(format!("{blocks} blocks: at most {MAX_BLOCKS} are allowed")) }
}

fn json<'a, T: serde::Deserialize<'a>>(line: &'a [u8]) -> Result<T, String> {
    // A line of JSON has no lines: the number of ours is told apart from it.
    serde_json::from_slice(line).map_err(|error| error.to_string().replace("at line 1 column", "at column"))
}

fn hashes(hashes: Vec<u64>) -> Vec<BlockHash> {
    hashes.into_iter().map(BlockHash).collect()
}
