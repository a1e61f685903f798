//! What can be wrong with a frame.

use super::header::SPOKEN;
use super::{Kind, MAGIC, MAX_BATCH_PAYLOAD, MAX_BODY};
use crate::message::Reason;
use crate::tail::MOST_FIELDS;
use thiserror::Error;
use tidepool_types::{InvalidInput, MAX_BLOCK_LEN};

/// Why bytes are not a frame, or a message cannot be framed. Each message says what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The stream does not carry this protocol, or is out of step.
    #[error("frame starts with bytes {0:02x?}: a frame starts with {MAGIC:02x?} (\"TDP1\")")]
    Magic([u8; 4]),
    /// The peer speaks another version.
    #[error("frame of protocol version {0}: this side speaks {SPOKEN}")]
    Version(u8),
    /// This side knows no message with this number.
    #[error("message kind {0:#04x}: this side speaks {SPOKEN} and knows no such message")]
    Kind(u8),
    /// Flags are set that mean nothing.
    #[error("frame flags {0:#06x}: {SPOKEN} has no flags, they are zero")]
    Flags(u16),
    /// The body is too long to be read or sent.
    #[error("body of {0} bytes: a body has at most {MAX_BODY} bytes")]
    BodyLength(u64),
    /// The payload does not suit the kind of message.
    #[error("payload of {len} bytes on {kind:?}: allowed are {least} to {most} bytes")]
    PayloadLength {
        /// The message.
        kind: Kind,
        /// Bytes announced.
        len: u64,
        /// The fewest bytes allowed.
        least: u64,
        /// The most bytes allowed.
        most: u64,
    },
    /// A reply with several hits carries more than one frame may.
    #[error(
        "payload of {0} bytes for several blocks: more than one block share at most {MAX_BATCH_PAYLOAD} bytes a frame"
    )]
    BatchPayload(u64),
    /// The payload is not as long as the hits that it should hold.
    #[error("payload of {payload} bytes for hits of {hits} bytes: the two are equal")]
    PayloadMismatch {
        /// Bytes announced by the header.
        payload: u64,
        /// Bytes announced by the hits, or `u64::MAX` when they add up to more.
        hits: u64,
    },
    /// A request came where a reply belongs, or the other way round.
    #[error("{0:?} came from the wrong side: clients send requests, nodes send replies")]
    Direction(Kind),
    /// The body given is not as long as its header says.
    #[error("body of {found} bytes: its header says {expected}")]
    BodyMismatch {
        /// Bytes the header announces.
        expected: u32,
        /// Bytes given.
        found: usize,
    },
    /// Header or body changed on the way.
    #[error("frame checksum {found:#010x}: header and body give {expected:#010x}")]
    Checksum {
        /// The checksum in the header.
        found: u32,
        /// The checksum of what arrived.
        expected: u32,
    },
    /// The body ends inside a value.
    #[error("body ends early: a value of {needed} bytes, {left} left")]
    Truncated {
        /// Bytes the value takes.
        needed: usize,
        /// Bytes left.
        left: usize,
    },
    /// A sequence announces more items than the rest of the body can hold.
    #[error("sequence of {count} items of at least {item} bytes each: {left} bytes are left")]
    Count {
        /// Items announced.
        count: u32,
        /// The fewest bytes an item takes.
        item: usize,
        /// Bytes left.
        left: usize,
    },
    /// A field of a message's tail is not as it should be.
    #[error("field {number} in the tail of {kind:?} {error}")]
    Tail {
        /// The message.
        kind: Kind,
        /// The field's tag, without the critical bit.
        number: u16,
        /// What is wrong.
        error: TailError,
    },
    /// The runs of a message do not cover its items.
    #[error("runs over {covered} items of a message with {items}: runs cover each item once")]
    Runs {
        /// Items that the runs cover together.
        covered: u64,
        /// Items of the message.
        items: usize,
    },
    /// A run of no items.
    #[error("a run of 0 items: a run has at least 1")]
    EmptyRun,
    /// The number of keys is not the number of blocks that were found.
    #[error("{keys} keys for {found} blocks that were found: there is one for each, or none at all")]
    FoundKeys {
        /// Keys.
        keys: usize,
        /// Blocks found.
        found: usize,
    },
    /// The number of tiers is not the number of blocks, or they are all memory.
    #[error("{tiers} tiers for {entries} blocks: there is one for each, or none at all where all are in memory")]
    Tiers {
        /// Tiers.
        tiers: usize,
        /// Blocks listed.
        entries: usize,
    },
    /// A tag that names no case.
    #[error("{what} {value}: no such case in {SPOKEN}")]
    Tag {
        /// The type whose tag it is.
        what: &'static str,
        /// The tag found.
        value: u8,
    },
    /// Bytes that fill up an item are not zero.
    #[error("padding is not zero")]
    Padding,
    /// A copy is named with generation zero.
    #[error("copy with generation 0: a copy's generation is at least 1")]
    NoCopy,
    /// A text is not UTF-8.
    #[error("text is not UTF-8")]
    Utf8,
    /// A hit carries a number of checksums that no range of its length has.
    #[error("{found} checksums for {len} bytes: a range has one for each chunk that it touches")]
    Checksums {
        /// Checksums found.
        found: usize,
        /// Bytes of the range.
        len: u64,
    },
    /// A piece of a registered range that cannot be one.
    #[error(
        "{len} bytes at {offset} of a registered range: a piece has 1 to {MAX_BLOCK_LEN} bytes and ends below 2^64"
    )]
    Piece {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A key, a length or a range that is not allowed.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
}

/// What is wrong with a field of a message's tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TailError {
    /// The field comes after one with the same or a higher number.
    #[error("comes after field {before}: fields come in the order of their numbers, each once, from 1 on")]
    Order {
        /// The field that it comes after; 0 for none.
        before: u16,
    },
    /// The tail has too many fields.
    #[error("is one too many: a tail has at most {MOST_FIELDS} fields")]
    TooMany,
    /// The field is critical, and this side does not know it.
    #[error("is critical: this side speaks {SPOKEN} and does not know it")]
    Unknown,
    /// The field is marked critical and is not, or the other way round.
    #[error("has the wrong mark: whether a field is critical never changes")]
    Mark,
    /// The field has the value that its absence stands for.
    #[error("says nothing: such a field is left out")]
    Empty,
    /// Bytes follow the value in its field.
    #[error("has {left} bytes behind its value: a field ends with its value")]
    Trailing {
        /// Bytes too many.
        left: usize,
    },
}

impl FrameError {
    /// The case to answer a peer with, in a [`crate::message::Refusal`].
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Version(_) | Self::Kind(_) | Self::Tail { error: TailError::Unknown, .. } => Reason::Version,
            Self::Invalid(_) | Self::Piece { .. } => Reason::Invalid,
            _ => Reason::Malformed,
        }
    }

    /// Whether the place of the next frame in the stream is unknown, so that the connection must be closed. Otherwise the
    /// frame was whole and its message wrong: skip its payload, answer, go on.
    #[must_use]
    pub fn ends_connection(&self) -> bool {
        match self {
            Self::Magic(_) | Self::Version(_) | Self::Flags(_) | Self::BodyLength(_) => true,
            Self::PayloadLength { .. } | Self::BodyMismatch { .. } | Self::Checksum { .. } | Self::Direction(_) => true,
            Self::BatchPayload(_) | Self::PayloadMismatch { .. } | Self::Truncated { .. } | Self::Count { .. } => false,
            Self::Kind(_) | Self::Tail { .. } | Self::Runs { .. } | Self::EmptyRun | Self::FoundKeys { .. } => false,
            Self::Tiers { .. } => false,
            Self::Tag { .. } | Self::Padding | Self::NoCopy | Self::Utf8 => false,
            Self::Checksums { .. } | Self::Piece { .. } | Self::Invalid(_) => false,
        }
    }
}
