//! One request of a trace.

use tidepool_types::{Millis, Origin};

/// A block's name, made from its content and everything before it: equal hashes mean equal prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u64);

/// A request to an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The time of arrival, from the start of the trace.
    pub at: Millis,
    /// Tokens of its input.
    pub input_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u32,
    /// Its input's blocks in order. The last one may be short.
    pub blocks: Vec<BlockHash>,
    /// Its place in a conversation, where the trace knows it.
    pub origin: Option<Origin>,
}
