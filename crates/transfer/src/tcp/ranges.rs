//! Operations on registered ranges. How long they are is known from the start, so all slices are queued at once.

use super::operation::Slice;
use crate::ops::{Destination, Failure, Op, ReadRangeOp, Region, Regions, WriteRangeOp};
use tidepool_wire::message::{RangeItem, RangeName};

#[derive(Debug)]
pub(super) struct RangeRead {
    pub(super) name: RangeName,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Bytes that are not in place yet.
    pub(super) left: u64,
    destination: Destination,
    /// The memory, when the transport allocates it.
    pub(super) data: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct RangeWrite {
    pub(super) name: RangeName,
    pub(super) offset: u64,
    pub(super) source: Regions,
    pub(super) len: u64,
    /// Bytes that the owner has not acknowledged yet.
    pub(super) left: u64,
}

/// The most bytes of one operation: its memory, if the transport allocates it, and its slices are made at once.
const MOST_BYTES: u64 = 4 << 30;

/// Why an operation cannot be, if it cannot. No range ends past the last number.
pub(super) fn refusal(op: &Op) -> Option<Failure> {
    let fits = |offset: u64, len: u64| (1..=MOST_BYTES).contains(&len) && offset.checked_add(len).is_some();
    match op {
        Op::ReadRange(ReadRangeOp { destination: Destination::Device(_), .. }) => Some(Failure::Unavailable),
        Op::ReadRange(ReadRangeOp { destination: Destination::Into(regions), len, .. }) if regions.total() < *len => {
            Some(Failure::TooSmall { block_len: *len })
        }
        Op::ReadRange(read) if !fits(read.offset, read.len) => Some(Failure::Unavailable),
        Op::WriteRange(write) if !fits(write.offset, write.source.total()) => Some(Failure::Unavailable),
        _ => None,
    }
}

impl RangeRead {
    pub(super) fn new(op: ReadRangeOp) -> Self {
        let ReadRangeOp { range, offset, len, destination, .. } = op;
        Self { name: range, offset, len, left: len, destination, data: None }
    }

    /// The request for one slice.
    pub(super) fn item(&self, slice: &Slice) -> RangeItem {
        RangeItem { name: self.name, offset: self.offset + slice.start, len: slice.len }
    }

    /// Where the bytes of a slice go.
    pub(super) fn place(&mut self, slice: &Slice, out: &mut Vec<Region>) {
        let len = self.len as usize;
        match &self.destination {
            Destination::Into(regions) => {
                regions.cursor_at(slice.start).pieces(slice.len, usize::MAX, out);
            }
            Destination::Allocate | Destination::Device(_) => {
                // By address, not by reference: other threads may be filling other parts of it.
                let start = self.data.get_or_insert_with(|| vec![0; len]).as_mut_ptr();
                out.push(Region { start: start.wrapping_add(slice.start as usize), len: slice.len as usize });
            }
        }
    }
}

impl RangeWrite {
    pub(super) fn new(op: WriteRangeOp) -> Self {
        let WriteRangeOp { range, offset, source, .. } = op;
        let len = source.total();
        Self { name: range, offset, source, len, left: len }
    }
}
