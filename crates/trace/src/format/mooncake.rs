//! Mooncake's JSON lines: `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [n, ...]}`.

use super::{Entry, check_count, hashes, json};
use crate::{LATEST, Millis, Request};
use serde::Deserialize;

/// A line. Traces of other origin have more fields in this format; none of them is about blocks.
#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

pub(super) fn parse(line: &[u8]) -> Result<Entry, String> {
    let line: Line = json(line)?;
    if !(0.0..=LATEST.0 as f64).contains(&line.timestamp) {
        return Err(format!("timestamp = {}: allowed are milliseconds from 0 to 2^53", line.timestamp));
    }
    check_count(line.hash_ids.len())?;
    Ok(Entry::Request(Request {
        at: Millis(line.timestamp as u64),
        input_tokens: line.input_length,
        output_tokens: line.output_length,
        blocks: hashes(line.hash_ids),
        origin: None,
    }))
}
