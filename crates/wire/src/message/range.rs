//! Registered ranges: memory that its owner lets others read and write in place, whatever it holds.

use crate::checksum::Sums;
use std::fmt;

/// The name of a registered range. Its owner draws both words at random: who was not told the name does not guess it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeName {
    /// Which range.
    pub range: u64,
    /// What lets its holder read and write the range.
    pub key: u64,
}

/// The key stays out of logs.
impl fmt::Debug for RangeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeName").field("range", &self.range).finish_non_exhaustive()
    }
}

/// A batch of reads from registered ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadRange {
    /// How long the reader will wait for the whole batch.
    pub wait_millis: u32,
    /// The reads.
    pub items: Vec<RangeItem>,
}

/// One read: a piece of a registered range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeItem {
    /// The range.
    pub name: RangeName,
    /// First byte.
    pub offset: u64,
    /// Bytes: 1 to [`tidepool_types::MAX_BLOCK_LEN`], all of which are wanted.
    pub len: u64,
}

/// A piece to write into a registered range; the payload is the piece. A write that is refused may have changed the piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRange {
    /// The range.
    pub name: RangeName,
    /// First byte.
    pub offset: u64,
    /// One checksum per chunk of the piece: see [`crate::checksum::BlockChecksum::of_range`].
    pub checksums: Sums,
}

/// Answers to consecutive items of a [`ReadRange`], starting with item `first`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeBytes {
    /// The first item answered by this frame.
    pub first: u32,
    /// One outcome per item.
    pub items: Vec<RangeOutcome>,
}

/// What became of one [`RangeItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeOutcome {
    /// All bytes of the item, which follow in the payload.
    Hit {
        /// Bytes of the piece: as many as were asked for.
        len: u64,
        /// One checksum per chunk of the piece: see [`crate::checksum::BlockChecksum::of_range`].
        checksums: Sums,
    },
    /// No range has this name here, or it has another key.
    Miss,
    /// The piece does not lie in the range.
    BadRange {
        /// The range's length.
        range_len: u64,
    },
}
