//! Where a block's parts lie in the slab, and how its run is sized and aligned.

use crate::heap::GRANULE;
use crate::protocol::Described;
use tidepool_types::chunk_count;

/// A block's place: its bytes, then (8-aligned) its key, then (4-aligned) its checksums, in one run.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    offset: u64,
    len: u64,
    key_len: u64,
}

impl Placed {
    pub(crate) fn of(described: &Described) -> Self {
        Self { offset: described.offset, len: described.len, key_len: described.key_len }
    }

    pub(crate) fn key_at(self) -> u64 {
        self.offset + self.len.next_multiple_of(8)
    }

    pub(crate) fn checksums_at(self) -> u64 {
        self.key_at() + self.key_len.next_multiple_of(4)
    }

    pub(crate) fn end(self) -> u64 {
        self.checksums_at() + 4 * chunk_count(self.len)
    }

    /// Bytes of the run.
    pub(crate) fn run_bytes(len: u64, key_len: u64) -> u64 {
        let end = Self { offset: 0, len, key_len }.end();
        end.next_multiple_of(Self::align(len))
    }

    /// Blocks start where direct disk I/O and GPU copies want them to, as far as that wastes less than 2 %.
    pub(crate) fn align(len: u64) -> u64 {
        match len {
            0..0x8000 => GRANULE,
            0x8000..0x4_0000 => 512,
            _ => 4096,
        }
    }
}
