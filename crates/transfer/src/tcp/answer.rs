//! Answers: matched with their requests, placed where their bytes go, and noted once these have landed.

use super::board::Board;
use super::operation::{OpKey, Slice, Work};
use super::stream_state::What;
use crate::ops::{Failure, Region};
use tidepool_types::{BlockId, CopyName};
use tidepool_wire::checksum::{BlockChecksum, RunningRange, Sums};
use tidepool_wire::message::{Blocks, GetOutcome, Hit, RangeBytes, RangeName, RangeOutcome};

/// An answer whose payload is about to be received. The operations count the thread as a user until [`Board::landed`] or
/// [`Board::stream_down`].
#[derive(Debug)]
pub(super) struct Landing {
    number: u64,
    pub(super) answers: usize,
    /// The hits, in order of the payload.
    pub(super) items: Vec<LandingItem>,
    /// Where the payload goes, in order; empty for an item that nobody wants any more.
    pub(super) regions: Vec<Region>,
}

#[derive(Debug)]
pub(super) struct LandingItem {
    op: OpKey,
    pub(super) of: Landed,
    pub(super) len: u64,
    pub(super) checksums: Sums,
    /// Whether the bytes are still wanted: they land in `regions` of the landing, else nowhere.
    pub(super) wanted: bool,
    /// Set by the receiver when the bytes do not match their checksums.
    pub(super) corrupt: bool,
}

/// What the bytes of an item are of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Landed {
    /// Bytes of a block, from `offset` on.
    Block { id: BlockId, copy: CopyName, offset: u64, block_len: u64 },
    /// Bytes of a range, from `offset` on.
    Range { name: RangeName, offset: u64 },
}

impl LandingItem {
    /// Sums what arrives.
    pub(super) fn sums(&self) -> RunningRange {
        match self.of {
            Landed::Block { id, offset, block_len, .. } => {
                BlockChecksum::new(id, block_len).start_range(offset, self.len)
            }
            Landed::Range { name, offset } => BlockChecksum::of_range(name, offset, self.len).start_range(0, self.len),
        }
    }

    /// The copy of a block whose bytes do not match their checksums.
    pub(super) fn corrupt_copy(&self) -> Option<(BlockId, CopyName)> {
        match self.of {
            Landed::Block { id, copy, .. } if self.corrupt => Some((id, copy)),
            _ => None,
        }
    }
}

/// The node answered something that was not asked.
#[derive(Debug)]
pub(super) struct Nonsense;

impl Board {
    /// The node has acknowledged a write.
    pub(super) fn written(&mut self, stream: usize, number: u64) -> Result<(), Nonsense> {
        let state = &mut self.streams[stream];
        if !state.position(number).is_some_and(|at| state.requests[at].what == What::Writes) {
            return Err(Nonsense);
        }
        for slice in state.answered(number, 1) {
            if let Some(operation) = self.live(slice.op) {
                operation.advance(slice.len);
            }
            self.settle(slice.op);
        }
        Ok(())
    }

    /// The node will not serve a request.
    pub(super) fn refused(&mut self, stream: usize, number: u64) -> Result<(), Nonsense> {
        let state = &mut self.streams[stream];
        let at = state.position(number).ok_or(Nonsense)?;
        let left = state.requests[at].slices.len() - state.requests[at].answered;
        for slice in state.answered(number, left) {
            self.fail(slice.op, Failure::Unavailable);
        }
        Ok(())
    }

    /// Matches an answer with its request and says where its bytes go.
    pub(super) fn begin_landing(&mut self, stream: usize, number: u64, blocks: Blocks) -> Result<Landing, Nonsense> {
        let (first, count) = (blocks.first as usize, blocks.items.len());
        let slices = self.answered_by(stream, number, What::Blocks, first, count).ok_or(Nonsense)?;
        let mut landing = Landing { number, answers: slices.len(), items: Vec::new(), regions: Vec::new() };
        for (slice, outcome) in slices.into_iter().zip(blocks.items) {
            match outcome {
                GetOutcome::Hit(hit) => landing.items.push(self.place(slice, hit, &mut landing.regions)),
                GetOutcome::BadRange { block_len } => self.fail(slice.op, Failure::BadRange { block_len }),
                // The owner has put a damaged copy aside: for a reader it is not there.
                GetOutcome::Miss | GetOutcome::Damaged => self.fail(slice.op, Failure::Miss),
            }
        }
        self.use_for(stream, &landing);
        Ok(landing)
    }

    /// As [`Board::begin_landing`], for pieces of ranges.
    pub(super) fn begin_range_landing(
        &mut self,
        stream: usize,
        number: u64,
        bytes: RangeBytes,
    ) -> Result<Landing, Nonsense> {
        let (first, count) = (bytes.first as usize, bytes.items.len());
        let slices = self.answered_by(stream, number, What::Ranges, first, count).ok_or(Nonsense)?;
        let mut landing = Landing { number, answers: slices.len(), items: Vec::new(), regions: Vec::new() };
        for (slice, outcome) in slices.into_iter().zip(bytes.items) {
            match outcome {
                RangeOutcome::Hit { len, checksums } => {
                    landing.items.push(self.place_range(slice, len, checksums, &mut landing.regions));
                }
                RangeOutcome::BadRange { range_len } => {
                    self.fail(slice.op, Failure::BadRange { block_len: range_len });
                }
                RangeOutcome::Miss => self.fail(slice.op, Failure::Miss),
            }
        }
        self.use_for(stream, &landing);
        Ok(landing)
    }

    fn use_for(&mut self, stream: usize, landing: &Landing) {
        let wanted = landing.items.iter().filter(|item| item.wanted);
        self.streams[stream].using = wanted.map(|item| item.op).collect();
    }

    /// The slices that `count` answers from `first` on are about, if these are what is due.
    fn answered_by(&self, stream: usize, number: u64, what: What, first: usize, count: usize) -> Option<Vec<Slice>> {
        let state = &self.streams[stream];
        let sent = &state.requests[state.position(number)?];
        let in_turn = sent.what == what && first == sent.answered && count > 0;
        let slices = sent.slices.get(first..first.checked_add(count)?)?;
        in_turn.then(|| slices.to_vec())
    }

    fn place_range(&mut self, slice: Slice, len: u64, checksums: Sums, regions: &mut Vec<Region>) -> LandingItem {
        let of = Landed::Range { name: RangeName { range: 0, key: 0 }, offset: 0 };
        let mut item = LandingItem { op: slice.op, of, len, checksums, wanted: false, corrupt: false };
        let Some(operation) = self.live(slice.op) else { return item };
        let Work::ReadRange(read) = &mut operation.work else { return item };
        if len != slice.len {
            // An owner that answers with something else than was asked for is broken.
            self.fail(slice.op, Failure::Unavailable);
            return item;
        }
        read.place(&slice, regions);
        item.of = Landed::Range { name: read.name, offset: read.offset + slice.start };
        item.wanted = true;
        operation.users += 1;
        item
    }

    fn place(&mut self, slice: Slice, hit: Hit, regions: &mut Vec<Region>) -> LandingItem {
        self.typical_len = (self.typical_len * 7 + hit.len) / 8;
        let (copy, block_len) = (hit.copy, hit.block_len);
        let of = Landed::Block { id: BlockId::from_bytes([0; 16]), copy, offset: 0, block_len };
        let (len, checksums) = (hit.len, Sums::new());
        let mut item = LandingItem { op: slice.op, of, len, checksums, wanted: false, corrupt: false };
        let Some(operation) = self.live(slice.op) else { return item };
        let Work::Read(read) = &mut operation.work else { return item };
        let is_first = read.total().is_none();
        if let Err(failure) = read.place(&slice, &hit, regions) {
            self.fail(slice.op, failure);
            return item;
        }
        item.of = Landed::Block { id: read.id, copy, offset: read.offset + slice.start, block_len };
        (item.checksums, item.wanted) = (hit.checksums, true);
        operation.users += 1;
        if is_first {
            self.enqueue_rest(slice.op, hit.len);
        }
        item
    }

    /// The payload has been received whole; `corrupt` items have failed their checksums.
    pub(super) fn landed(&mut self, stream: usize, landing: &mut Landing) {
        self.streams[stream].answered(landing.number, landing.answers);
        for item in landing.items.iter_mut().filter(|item| item.wanted) {
            let Some(operation) = self.get(item.op) else { continue };
            match (item.of, &mut operation.work) {
                (Landed::Block { copy, .. }, _) if item.corrupt => operation.fail(Failure::Corrupt(copy)),
                (Landed::Range { .. }, _) if item.corrupt => operation.fail(Failure::Torn),
                (Landed::Block { offset, .. }, Work::Read(read)) => {
                    read.keep_checksums(offset, std::mem::take(&mut item.checksums));
                    operation.advance(item.len);
                }
                _ => operation.advance(item.len),
            }
        }
        self.stop_using_all(stream);
    }
}
