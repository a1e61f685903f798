//! A node's memory without a node: blocks and reservations in a map, and a transport that works on it directly.
//!
//! For tests of whoever uses a [`Transport`], and as the source of blocks behind a test's server. Reads are verified as
//! if they had crossed a network.

use crate::ops::{
    Completion, Destination, Done, Failure, Op, ReadOp, ReadRangeOp, Refused, Region, Regions, WriteOp, WriteRangeOp,
};
use crate::regions::for_each_pair;
use crate::tcp::serve::{BlockSource, HeldBlock};
use crate::tcp::serve_ranges::RangeSource;
use crate::transport::{Health, Transport};
use std::collections::HashMap;
use std::sync::Arc;
use tidepool_locks::Mutex;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, Epoch, Generation, check_range, drawn};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{RangeItem, RangeName, RangeOutcome, SlotName};

/// The memory of a node that lives in this process. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryNode(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    epoch: Epoch,
    /// Short look-ups and insertions only.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_generation: u64,
    blocks: HashMap<BlockId, Arc<Block>>,
    reservations: HashMap<SlotName, Reservation>,
    reports: Vec<(BlockId, CopyName)>,
    ranges: HashMap<RangeName, Vec<u8>>,
}

#[derive(Debug)]
struct Reservation {
    id: BlockId,
    bytes: Vec<u8>,
}

/// A block of a [`MemoryNode`].
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    checksums: Sums,
    copy: CopyName,
    writer: ClientId,
}

impl MemoryNode {
    /// A node of incarnation `epoch` that holds nothing.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self(Arc::new(Inner { epoch, state: Mutex::default() }))
    }

    /// The node's incarnation.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// Holds `bytes` as block `id` from now on, in place of an earlier copy.
    pub fn put(&self, id: BlockId, bytes: Vec<u8>) -> CopyName {
        let mut state = self.0.state.lock();
        let copy = CopyName { epoch: self.0.epoch, generation: state.next_generation() };
        let checksums = BlockChecksum::new(id, bytes.len() as u64).range(0, &bytes);
        state.blocks.insert(id, Arc::new(Block { bytes, checksums, copy, writer: ClientId(7) }));
        copy
    }

    /// Lets a block go.
    pub fn remove(&self, id: &BlockId) {
        self.0.state.lock().blocks.remove(id);
    }

    /// Flips a bit of a block's byte `at`, leaving its checksums as they are.
    pub fn damage(&self, id: &BlockId, at: usize) {
        let mut state = self.0.state.lock();
        if let Some(block) = state.blocks.get(id) {
            let (mut bytes, checksums) = (block.bytes.clone(), block.checksums.clone());
            bytes[at] ^= 1;
            let damaged = Block { bytes, checksums, copy: block.copy, writer: block.writer };
            state.blocks.insert(*id, Arc::new(damaged));
        }
    }

    /// Takes space for a block of `len` bytes.
    pub fn reserve(&self, id: BlockId, len: usize) -> SlotName {
        let mut state = self.0.state.lock();
        let generation = state.next_generation();
        let slot = SlotName { slot: generation.0 as u32, generation };
        state.reservations.insert(slot, Reservation { id, bytes: vec![0; len] });
        slot
    }

    /// The block that a reservation is for, and its length.
    #[must_use]
    pub fn reservation(&self, slot: &SlotName) -> Option<(BlockId, u64)> {
        let state = self.0.state.lock();
        state.reservations.get(slot).map(|reservation| (reservation.id, reservation.bytes.len() as u64))
    }

    /// Writes to a reservation; `false` if there is none or the bytes do not fit.
    pub fn write(&self, slot: &SlotName, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.0.state.lock();
        let place = state.reservations.get_mut(slot);
        let place = place.and_then(|reservation| piece_mut(&mut reservation.bytes, offset, bytes.len()));
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }

    /// What a reservation holds so far.
    #[must_use]
    pub fn written(&self, slot: &SlotName) -> Option<Vec<u8>> {
        self.0.state.lock().reservations.get(slot).map(|reservation| reservation.bytes.clone())
    }

    /// Registers `bytes`: whoever is told the name reads and writes them.
    pub fn register(&self, bytes: Vec<u8>) -> RangeName {
        let name = RangeName { range: drawn(), key: drawn() };
        self.0.state.lock().ranges.insert(name, bytes);
        name
    }

    /// What a registered range holds.
    #[must_use]
    pub fn registered(&self, name: &RangeName) -> Option<Vec<u8>> {
        self.0.state.lock().ranges.get(name).cloned()
    }

    /// Writes to a registered range; `false` if there is none or the bytes do not fit.
    pub fn write_range(&self, name: &RangeName, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.0.state.lock();
        let place = state.ranges.get_mut(name).and_then(|range| piece_mut(range, offset, bytes.len()));
        place.map(|place| place.copy_from_slice(bytes)).is_some()
    }

    /// Notes that a reader, or this node itself, found copies damaged.
    pub fn report(&self, copies: &[(BlockId, CopyName)]) {
        self.0.state.lock().reports.extend_from_slice(copies);
    }

    /// The copies reported so far.
    #[must_use]
    pub fn reports(&self) -> Vec<(BlockId, CopyName)> {
        self.0.state.lock().reports.clone()
    }
}

fn piece_mut(bytes: &mut [u8], offset: u64, len: usize) -> Option<&mut [u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get_mut(start..start.checked_add(len)?)
}

impl RangeSource for MemoryNode {
    type Lent = Vec<u8>;

    fn lend(&self, item: &RangeItem) -> Result<Vec<u8>, RangeOutcome> {
        let state = self.0.state.lock();
        let range = state.ranges.get(&item.name).ok_or(RangeOutcome::Miss)?;
        let range_len = range.len() as u64;
        check_range(item.offset, item.len, range_len).map_err(|_| RangeOutcome::BadRange { range_len })?;
        Ok(range[item.offset as usize..(item.offset + item.len) as usize].to_vec())
    }
}

impl State {
    fn next_generation(&mut self) -> Generation {
        self.last_generation += 1;
        Generation(self.last_generation)
    }
}

impl BlockSource for MemoryNode {
    type Held = Arc<Block>;

    fn hold(&self, id: &BlockId, copy: Option<CopyName>) -> Option<Arc<Block>> {
        let block = Arc::clone(self.0.state.lock().blocks.get(id)?);
        copy.is_none_or(|copy| copy == block.copy).then_some(block)
    }

    fn damaged(&self, id: &BlockId, copy: CopyName) {
        self.report(&[(*id, copy)]);
        self.remove(id);
    }
}

// SAFETY: the bytes belong to a vector that is never changed after the block was made; the `Arc` keeps it.
unsafe impl HeldBlock for Arc<Block> {
    fn bytes(&self) -> (*const u8, u64) {
        (self.bytes.as_ptr(), self.bytes.len() as u64)
    }

    fn checksums(&self) -> &[u32] {
        &self.checksums
    }

    fn copy(&self) -> CopyName {
        self.copy
    }

    fn writer(&self) -> ClientId {
        self.writer
    }
}

/// A transport to a [`MemoryNode`]: every operation is over when `submit` returns.
#[derive(Debug)]
pub struct MemoryTransport {
    node: MemoryNode,
    finished: Vec<Completion>,
}

impl MemoryTransport {
    /// A transport to `node`.
    #[must_use]
    pub fn new(node: MemoryNode) -> Self {
        Self { node, finished: Vec::new() }
    }

    fn read(&self, op: ReadOp) -> Result<Done, Failure> {
        let block = self.node.hold(&op.id, op.copy).ok_or(Failure::Miss)?;
        let block_len = block.bytes.len() as u64;
        let len = op.len.unwrap_or(block_len.saturating_sub(op.offset));
        check_range(op.offset, len, block_len).map_err(|_| Failure::BadRange { block_len })?;
        let checksum = BlockChecksum::new(op.id, block_len);
        if checksum.verify(0, &block.bytes, &block.checksums).is_err() {
            self.node.report(&[(op.id, block.copy)]);
            return Err(Failure::Corrupt(block.copy));
        }
        let bytes = &block.bytes[op.offset as usize..(op.offset + len) as usize];
        let data = match op.destination {
            Destination::Allocate => Some(bytes.to_vec()),
            Destination::Device(_) => return Err(Failure::Unavailable),
            Destination::Into(regions) if regions.total() < len => return Err(Failure::TooSmall { block_len }),
            Destination::Into(regions) => {
                copy_out(bytes, &regions);
                None
            }
        };
        let checksums = (op.wants_checksums && len == block_len).then(|| Box::new(block.checksums.clone()));
        Ok(Done::Read { copy: block.copy, slot: None, writer: block.writer, block_len, bytes: len, data, checksums })
    }

    fn read_range(&self, op: ReadRangeOp) -> Result<Done, Failure> {
        let item = RangeItem { name: op.range, offset: op.offset, len: op.len };
        let bytes = self.node.lend(&item).map_err(|outcome| match outcome {
            RangeOutcome::BadRange { range_len } => Failure::BadRange { block_len: range_len },
            RangeOutcome::Miss | RangeOutcome::Hit { .. } => Failure::Miss,
        })?;
        match op.destination {
            Destination::Allocate => Ok(Done::RangeRead { data: Some(bytes) }),
            Destination::Into(regions) if regions.total() < op.len => Err(Failure::TooSmall { block_len: op.len }),
            Destination::Into(regions) => {
                copy_out(&bytes, &regions);
                Ok(Done::RangeRead { data: None })
            }
            Destination::Device(_) => Err(Failure::Unavailable),
        }
    }

    fn write_range(&self, op: &WriteRangeOp) -> Result<Done, Failure> {
        match op.source.total() > 0 && self.node.write_range(&op.range, op.offset, &gathered(&op.source)) {
            true => Ok(Done::RangeWritten),
            false => Err(Failure::Unavailable),
        }
    }

    fn write(&self, op: &WriteOp) -> Result<Done, Failure> {
        let bytes = gathered(&op.source);
        match self.node.write(&op.slot, 0, &bytes) {
            true => Ok(Done::Written { checksums: BlockChecksum::new(op.id, bytes.len() as u64).range(0, &bytes) }),
            false => Err(Failure::Unavailable),
        }
    }
}

/// The bytes of a submitted operation's source.
fn gathered(source: &Regions) -> Vec<u8> {
    let mut bytes = Vec::new();
    for region in source.as_slice() {
        // SAFETY: the submitter promised that the source is valid and does not change.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(region.start, region.len) });
    }
    bytes
}

/// Copies `bytes` to the regions of a submitted operation, which are at least as long.
fn copy_out(bytes: &[u8], regions: &Regions) {
    let from = Regions::One(Region::of(bytes));
    // SAFETY: the submitter lends the regions for writing; the source is this process's own.
    let copy = |to, from, len| unsafe { crate::copy::copy(to, from, len) };
    for_each_pair(&mut regions.cursor(), &mut from.cursor(), bytes.len(), copy);
}

impl Transport for MemoryTransport {
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>> {
        let late = deadline.has_passed();
        let run = |op| {
            let token = Op::token(&op);
            let outcome = match op {
                _ if late => Err(Failure::TimedOut),
                Op::Read(read) => self.read(read),
                Op::Write(write) => self.write(&write),
                Op::ReadRange(read) => self.read_range(read),
                Op::WriteRange(write) => self.write_range(&write),
            };
            Completion { token, outcome }
        };
        let finished: Vec<Completion> = ops.into_iter().map(run).collect();
        let answers = finished.iter().map(|_| Ok(())).collect();
        self.finished.extend(finished);
        answers
    }

    fn poll(&mut self, done: &mut Vec<Completion>, _until: Deadline) -> usize {
        let finished = self.finished.len();
        done.append(&mut self.finished);
        finished
    }

    fn cancel(&mut self, _token: u64) {}

    fn cancel_all(&mut self) {}

    fn health(&self) -> Health {
        Health::Up
    }
}
