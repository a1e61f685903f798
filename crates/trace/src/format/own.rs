//! Our own format, written down in docs/traces.md: JSON lines, of which the first names the format and its version.

use super::{Entry, check_count, json};
use crate::{BlockHash, LATEST, Millis, Origin, Request, SessionId, ToolId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The version that this build writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Hexadecimal digits of a block's hash.
const DIGITS: usize = 16;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    tidepool_trace: u32,
    block_tokens: u32,
}

/// A request's line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    at_ms: u64,
    input_tokens: u32,
    output_tokens: u32,
    /// All hashes, end to end.
    #[serde(borrow)]
    blocks: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    turn: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pause_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    last: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(super) fn is_head(line: &[u8]) -> bool {
    let name = b"\"tidepool_trace\"";
    line.windows(name.len()).take(64).any(|window| window == name)
}

pub(super) fn parse(line: &[u8]) -> Result<Entry, String> {
    if is_head(line) {
        return head(line);
    }
    let line: Line<'_> = json(line)?;
    let origin = origin(&line)?;
    for (field, value) in [("at_ms", line.at_ms), ("pause_ms", line.pause_ms)] {
        if value > LATEST.0 {
            return Err(format!("{field} = {value}: allowed are milliseconds from 0 to 2^53"));
        }
    }
    Ok(Entry::Request(Request {
        at: Millis(line.at_ms),
        input_tokens: line.input_tokens,
        output_tokens: line.output_tokens,
        blocks: blocks(&line.blocks)?,
        origin,
    }))
}

fn head(line: &[u8]) -> Result<Entry, String> {
    let head: Head = json(line)?;
    match head {
        Head { tidepool_trace: VERSION, block_tokens: 0 } => Err("block_tokens = 0: allowed is 1 or more".to_owned()),
        Head { tidepool_trace: VERSION, block_tokens } => Ok(Entry::Head { block_tokens: Some(block_tokens) }),
        Head { tidepool_trace, .. } => {
            Err(format!("tidepool_trace = {tidepool_trace}: only version {VERSION} is known"))
        }
    }
}

fn origin(line: &Line<'_>) -> Result<Option<Origin>, String> {
    let Some(session) = line.session else {
        let alone = line.parent.is_none() && line.calls.is_none() && line.turn == 0 && line.pause_ms == 0 && !line.last;
        return if alone { Ok(None) } else { Err("parent, turn, pause_ms, calls and last need a session".to_owned()) };
    };
    Ok(Some(Origin {
        session: SessionId(session),
        parent: line.parent.map(SessionId),
        turn: line.turn,
        pause: Millis(line.pause_ms),
        calls: line.calls.map(ToolId),
        last: line.last,
    }))
}

fn blocks(text: &str) -> Result<Vec<BlockHash>, String> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(DIGITS) {
        return Err(format!("blocks has {} digits: allowed are {DIGITS} for each block", digits.len()));
    }
    check_count(digits.len() / DIGITS)?;
    digits.chunks_exact(DIGITS).map(block).collect()
}

fn block(digits: &[u8]) -> Result<BlockHash, String> {
    let add = |value: u64, digit: &u8| char::from(*digit).to_digit(16).map(|digit| value << 4 | u64::from(digit));
    let value = digits.iter().try_fold(0, add);
    value.map(BlockHash).ok_or_else(|| "blocks has a character that is no hexadecimal digit".to_owned())
}

/// The first line of a file, as text without its end.
pub(crate) fn head_line(block_tokens: u32) -> serde_json::Result<String> {
    serde_json::to_string(&Head { tidepool_trace: VERSION, block_tokens })
}

/// A request's line, without its end.
pub(crate) fn line(request: &Request) -> serde_json::Result<String> {
    let mut digits = String::with_capacity(request.blocks.len() * DIGITS);
    for block in &request.blocks {
        let nibbles = (0..DIGITS as u32).rev().map(|place| (block.0 >> (4 * place)) as u32 & 15);
        digits.extend(nibbles.filter_map(|nibble| char::from_digit(nibble, 16)));
    }
    let origin = request.origin.as_ref();
    serde_json::to_string(&Line {
        at_ms: request.at.0,
        input_tokens: request.input_tokens,
        output_tokens: request.output_tokens,
        blocks: Cow::Owned(digits),
        session: origin.map(|origin| origin.session.0),
        parent: origin.and_then(|origin| origin.parent).map(|parent| parent.0),
        turn: origin.map_or(0, |origin| origin.turn),
        pause_ms: origin.map_or(0, |origin| origin.pause.0),
        calls: origin.and_then(|origin| origin.calls).map(|tool| tool.0),
        last: origin.is_some_and(|origin| origin.last),
    })
}
