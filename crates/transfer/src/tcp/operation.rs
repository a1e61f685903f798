//! One operation from its submission to its completion, and the slices that it is moved in.

use super::ranges::{self, RangeRead, RangeWrite};
use crate::ops::{Completion, Destination, Done, Failure, Op, ReadOp, Region, Regions, WriteOp};
use tidepool_types::{BlockId, CHUNK_LEN, ClientId, CopyName, Deadline, MAX_BLOCK_LEN, UsedFor, chunk_count};
use tidepool_wire::checksum::Sums;
use tidepool_wire::message::{GetItem, Hit, SlotName};

/// An operation's name on the board: never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpKey {
    pub(super) place: u32,
    pub(super) stamp: u64,
}

/// A run of an operation's bytes that travels in one piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    pub(super) op: OpKey,
    /// Where it starts, counted from the operation's first byte.
    pub(super) start: u64,
    /// Bytes asked for; the block may end earlier.
    pub(super) len: u64,
    /// Bytes it is charged with in a stream's window: what is expected to come.
    pub(super) charge: u64,
}

/// An operation that has not completed.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: u64,
    pub(super) deadline: Deadline,
    pub(super) work: Work,
    /// What it counts against the bound on bytes under way.
    pub(super) charge: u64,
    /// Threads that are reading from or writing to the operation's memory at this moment. It completes at zero only.
    pub(super) users: u32,
    /// Set once the operation has failed: nothing new is started for it.
    pub(super) verdict: Option<Failure>,
    /// How many failing streams its slices were moved off, and the last of them.
    pub(super) moves: u32,
    pub(super) last_incident: u64,
    /// Whether its deadline has been acted on.
    pub(super) expired: bool,
}

#[derive(Debug)]
pub(super) enum Work {
    Read(Read),
    Write(Write),
    ReadRange(RangeRead),
    WriteRange(RangeWrite),
}

#[derive(Debug)]
pub(super) struct Read {
    pub(super) id: BlockId,
    /// The copy that the caller or the first answer named.
    pub(super) copy: Option<CopyName>,
    pub(super) offset: u64,
    pub(super) used: Option<Box<UsedFor>>,
    wants_checksums: bool,
    wanted: Option<u64>,
    destination: Destination,
    /// Known from the first answer on.
    known: Option<Known>,
}

/// What the first answer to a read said.
#[derive(Debug)]
struct Known {
    copy: CopyName,
    writer: ClientId,
    block_len: u64,
    /// Bytes of the whole read.
    total: u64,
    /// Bytes that are not in place yet.
    left: u64,
    /// The memory, when the transport allocates it.
    data: Option<Vec<u8>>,
    /// One for each chunk of a whole block that has landed; `None` for a part of a block.
    checksums: Option<Box<Sums>>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) id: BlockId,
    pub(super) slot: SlotName,
    pub(super) source: Regions,
    pub(super) len: u64,
    pub(super) checksums: Sums,
    /// Bytes that the node has not acknowledged yet.
    left: u64,
}

impl Operation {
    pub(super) fn new(op: Op, deadline: Deadline) -> Self {
        // Nothing on this host's side of a socket reaches a device's memory.
        let verdict = match &op {
            Op::Read(ReadOp { destination: Destination::Device(_), .. }) => Some(Failure::Unavailable),
            op => ranges::refusal(op),
        };
        let token = op.token();
        let work = match op {
            Op::Read(read) => Work::Read(Read::new(read)),
            Op::Write(write) => Work::Write(Write::new(write)),
            Op::ReadRange(read) => Work::ReadRange(RangeRead::new(read)),
            Op::WriteRange(write) => Work::WriteRange(RangeWrite::new(write)),
        };
        Self { token, deadline, work, charge: 0, users: 0, verdict, moves: 0, last_incident: 0, expired: false }
    }

    /// Whether nothing is left to do and nobody touches the memory.
    pub(super) fn is_over(&self) -> bool {
        let done = match &self.work {
            Work::Read(read) => read.known.as_ref().is_some_and(|known| known.left == 0),
            Work::Write(write) => write.left == 0,
            Work::ReadRange(read) => read.left == 0,
            Work::WriteRange(write) => write.left == 0,
        };
        self.users == 0 && (done || self.verdict.is_some())
    }

    pub(super) fn into_completion(self) -> Completion {
        let outcome = match (self.verdict, self.work) {
            (Some(failure), _) => Err(failure),
            (None, Work::Write(write)) => Ok(Done::Written { checksums: write.checksums }),
            (None, Work::Read(read)) => read.into_done().ok_or(Failure::Unavailable),
            (None, Work::ReadRange(read)) => Ok(Done::RangeRead { data: read.data }),
            (None, Work::WriteRange(_)) => Ok(Done::RangeWritten),
        };
        Completion { token: self.token, outcome }
    }

    /// Some bytes have arrived (read) or been acknowledged (write).
    pub(super) fn advance(&mut self, bytes: u64) {
        let left = match &mut self.work {
            Work::Read(read) => read.known.as_mut().map(|known| &mut known.left),
            Work::Write(write) => Some(&mut write.left),
            Work::ReadRange(read) => Some(&mut read.left),
            Work::WriteRange(write) => Some(&mut write.left),
        };
        if let Some(left) = left {
            *left = left.saturating_sub(bytes);
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.verdict.get_or_insert(failure);
    }
}

impl Read {
    fn new(op: ReadOp) -> Self {
        let ReadOp { id, copy, offset, len, destination, used, wants_checksums, .. } = op;
        Self { id, copy, offset, used, wants_checksums, wanted: len, destination, known: None }
    }

    /// Bytes to ask for first. At least one, unless the caller wants none: the answer then says how long the block is.
    pub(super) fn first_len(&self, slice: u64) -> u64 {
        let room = match &self.destination {
            Destination::Into(regions) => regions.total().max(1),
            Destination::Allocate => MAX_BLOCK_LEN,
            Destination::Device(place) => place.total().max(1),
        };
        self.wanted.unwrap_or(room).min(slice)
    }

    /// Whether the number of bytes to come is not known before the first answer.
    pub(super) fn is_open_ended(&self) -> bool {
        self.wanted.is_none() && matches!(self.destination, Destination::Allocate)
    }

    /// The request for one slice.
    pub(super) fn item(&self, slice: &Slice) -> GetItem {
        GetItem { id: self.id, copy: self.copy, offset: self.offset + slice.start, len: slice.len }
    }

    /// Checks an answer against what was asked, and takes note of the first one. Returns where the bytes go, or why the
    /// read has failed.
    pub(super) fn place(&mut self, slice: &Slice, hit: &Hit, out: &mut Vec<Region>) -> Result<(), Failure> {
        self.check(slice, hit)?;
        if self.known.is_none() {
            self.known = Some(self.learn(hit)?);
            self.copy = Some(hit.copy);
        }
        match (&self.destination, self.known.as_mut().and_then(|known| known.data.as_mut())) {
            (Destination::Into(regions), _) => {
                regions.cursor_at(slice.start).pieces(hit.len, usize::MAX, out);
            }
            (Destination::Allocate, Some(data)) if slice.start + hit.len <= data.len() as u64 => {
                // By address, not by reference: other threads may be filling other parts of it.
                let start = data.as_mut_ptr().wrapping_add(slice.start as usize);
                out.push(Region { start, len: hit.len as usize });
            }
            (Destination::Allocate | Destination::Device(_), _) => return Err(Failure::Unavailable),
        }
        Ok(())
    }

    /// A node that answers with something else than was asked for is broken.
    fn check(&self, slice: &Slice, hit: &Hit) -> Result<(), Failure> {
        let rest = hit.block_len.saturating_sub(self.offset + slice.start);
        let as_asked = hit.block_len <= MAX_BLOCK_LEN && hit.len == slice.len.min(rest) && hit.len > 0;
        let same_copy = self.copy.is_none_or(|copy| copy == hit.copy);
        let same_len = self.known.as_ref().is_none_or(|known| known.block_len == hit.block_len);
        if as_asked && same_copy && same_len { Ok(()) } else { Err(Failure::Unavailable) }
    }

    fn learn(&self, hit: &Hit) -> Result<Known, Failure> {
        let block_len = hit.block_len;
        let rest = block_len - self.offset;
        let total = match self.wanted {
            Some(wanted) if wanted > rest => return Err(Failure::BadRange { block_len }),
            Some(wanted) => wanted,
            None => rest,
        };
        let data = match &self.destination {
            Destination::Into(regions) if regions.total() < total => return Err(Failure::TooSmall { block_len }),
            Destination::Into(_) | Destination::Device(_) => None,
            Destination::Allocate => Some(vec![0; total as usize]),
        };
        let checksums = (self.wants_checksums && total == block_len).then(Box::default);
        Ok(Known { copy: hit.copy, writer: hit.writer, block_len, total, left: total, data, checksums })
    }

    /// Keeps the checksums of verified bytes that start at `offset` of the block, the beginning of a chunk.
    pub(super) fn keep_checksums(&mut self, offset: u64, sums: Sums) {
        let Some(Known { block_len, checksums: Some(kept), .. }) = &mut self.known else { return };
        let chunks = chunk_count(*block_len) as usize;
        if sums.len() == chunks {
            **kept = sums;
            return;
        }
        kept.resize(chunks, 0);
        let first = (offset / CHUNK_LEN) as usize;
        if let Some(places) = kept.get_mut(first..first + sums.len()) {
            places.copy_from_slice(&sums);
        }
    }

    /// Bytes of the whole read, once known.
    pub(super) fn total(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.total)
    }

    fn into_done(self) -> Option<Done> {
        let Known { copy, writer, block_len, total, data, checksums, .. } = self.known?;
        Some(Done::Read { copy, slot: None, writer, block_len, bytes: total, data, checksums })
    }
}

impl Write {
    fn new(op: WriteOp) -> Self {
        let len = op.source.total();
        let checksums = Sums::from_elem(0, chunk_count(len) as usize);
        Self { id: op.id, slot: op.slot, source: op.source, len, checksums, left: len }
    }

    /// Keeps the checksums of a slice that has been sent.
    pub(super) fn note_checksums(&mut self, start: u64, sums: &[u32]) {
        let first = (start / CHUNK_LEN) as usize;
        if let Some(places) = self.checksums.get_mut(first..first + sums.len()) {
            places.copy_from_slice(sums);
        }
    }
}
