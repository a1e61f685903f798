//! The node's side: answering Get and receiving Write, straight from and into the slab.
//!
//! The node decides what is held; [`serve_get`] asks it through [`BlockSource`], groups many small blocks into one frame and
//! sends their bytes from where they lie. A block is held only while its frame is sent.

use crate::conn::{ConnError, Connection, FrameReceiver};
use crate::ops::Region;
use crate::regions::Cursor;
use std::io::IoSlice;
use tidepool_types::{BlockId, CHUNK_LEN, ClientId, CopyName, Deadline, UsedFor, check_range};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{Blocks, Get, GetItem, GetOutcome, Hit, Reply, Run};

/// Payload of one answer, unless a single item has more: large enough that frames cost nothing, small enough that blocks
/// are not held for long and the reader can start early.
const GROUP_BYTES: u64 = 1 << 20;
/// Items that are looked up together: enough for their cache misses to overlap, few enough not to hold much.
const HOLD_STEP: usize = 32;
/// Items of one answer.
const GROUP_ITEMS: usize = 512;
/// Received bytes are summed in steps of this many, while they are in cache.
const STEP: u64 = 128 << 10;

/// Where a node keeps its blocks, as far as sending them goes.
pub trait BlockSource {
    /// A block that stays where it is while this lives.
    type Held: HeldBlock;

    /// Holds a block, or `copy` of it if one is named; `None` if it is not there.
    fn hold(&self, id: &BlockId, copy: Option<CopyName>) -> Option<Self::Held>;

    /// As [`BlockSource::hold`] for several items: for sources that look up many faster than one by one. `_uses` says for each
    /// item what is known of its use, and goes on with the items of the next call.
    fn hold_all(&self, items: &[GetItem], _uses: &mut dyn Iterator<Item = Option<UsedFor>>) -> Vec<Option<Self::Held>> {
        items.iter().map(|item| self.hold(&item.id, item.copy)).collect()
    }

    /// Lets many blocks go: for sources that do so faster than one by one.
    fn let_go(&self, held: Vec<Self::Held>) {
        drop(held);
    }

    /// A held copy does not match its checksums: it must not be served again.
    fn damaged(&self, id: &BlockId, copy: CopyName);
}

/// A block that stays where it is while this lives.
///
/// # Safety
/// The bytes must be readable while this lives, and nobody may write to them.
pub unsafe trait HeldBlock {
    /// First byte and length.
    fn bytes(&self) -> (*const u8, u64);

    /// One checksum per chunk.
    fn checksums(&self) -> &[u32];

    /// The copy's name.
    fn copy(&self) -> CopyName;

    /// Who wrote the block.
    fn writer(&self) -> ClientId;
}

/// What became of a [`Get`], for the node's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Items answered with bytes.
    pub hits: u64,
    /// Items answered without.
    pub misses: u64,
    /// Items whose copy was found damaged.
    pub damaged: u64,
    /// Bytes sent.
    pub bytes: u64,
}

/// Answers a [`Get`] with as many frames as its bytes need.
pub fn serve_get<S: BlockSource>(
    connection: &mut Connection,
    number: u64,
    get: &Get,
    source: &S,
    until: Deadline,
) -> Result<Served, ConnError> {
    let mut served = Served::default();
    let mut group = Group::default();
    let (steps, mut uses) = (get.items.chunks(HOLD_STEP), Run::uses(&get.runs));
    for (item, held) in steps.flat_map(|items| items.iter().zip(source.hold_all(items, &mut uses))) {
        let (outcome, part) = answer(source, item, held);
        match outcome {
            // A read that names its copy continues one that has been counted.
            GetOutcome::Hit(_) => served.hits += u64::from(item.copy.is_none()),
            GetOutcome::Damaged => served.damaged += 1,
            GetOutcome::Miss | GetOutcome::BadRange { .. } => served.misses += 1,
        }
        let bytes = part.as_ref().map_or(0, |part| part.range.len as u64);
        if !group.has_room_for(bytes) {
            group.send(connection, number, source, until)?;
        }
        served.bytes += bytes;
        group.push(outcome, part);
    }
    group.send(connection, number, source, until)?;
    Ok(served)
}

/// Consecutive outcomes that travel together.
struct Group<H> {
    blocks: Blocks,
    parts: Vec<Part<H>>,
    bytes: u64,
}

/// A held block and the range of it to send.
struct Part<H> {
    range: Region,
    /// Keeps the range in place; only ever let go.
    held: H,
}

impl<H> Default for Group<H> {
    fn default() -> Self {
        Self { blocks: Blocks { first: 0, items: Vec::new() }, parts: Vec::new(), bytes: 0 }
    }
}

impl<H: HeldBlock> Group<H> {
    fn has_room_for(&self, bytes: u64) -> bool {
        self.blocks.items.is_empty() || (self.blocks.items.len() < GROUP_ITEMS && self.bytes + bytes <= GROUP_BYTES)
    }

    fn push(&mut self, outcome: GetOutcome, part: Option<Part<H>>) {
        self.bytes += part.as_ref().map_or(0, |part| part.range.len as u64);
        self.blocks.items.push(outcome);
        self.parts.extend(part);
    }

    /// Sends the group and starts the next one, which lets the blocks go.
    fn send(
        &mut self,
        connection: &mut Connection,
        number: u64,
        source: &impl BlockSource<Held = H>,
        until: Deadline,
    ) -> Result<(), ConnError> {
        let next = self.blocks.first + self.blocks.items.len() as u32;
        let group = std::mem::take(self);
        self.blocks.first = next;
        if group.blocks.items.is_empty() {
            return Ok(());
        }
        let payload: Vec<IoSlice<'_>> = group.parts.iter().map(|part| IoSlice::new(bytes_of(part))).collect();
        let sent = connection.send_reply(number, &Reply::Blocks(group.blocks), &payload, &[], until);
        source.let_go(group.parts.into_iter().map(|part| part.held).collect());
        sent
    }
}

fn bytes_of<H: HeldBlock>(part: &Part<H>) -> &[u8] {
    // SAFETY: the range lies in the block (checked by `answer`), which is held as long as the part lives and which nobody
    // writes to while it is held.
    unsafe { std::slice::from_raw_parts(part.range.start, part.range.len) }
}

fn answer<S: BlockSource>(source: &S, item: &GetItem, held: Option<S::Held>) -> (GetOutcome, Option<Part<S::Held>>) {
    let Some(held) = held else { return (GetOutcome::Miss, None) };
    let (start, block_len) = held.bytes();
    let len = item.len.min(block_len.saturating_sub(item.offset));
    if check_range(item.offset, len, block_len).is_err() {
        return (GetOutcome::BadRange { block_len }, None);
    }
    // SAFETY: the block is held, so its bytes are readable and do not change.
    let block = unsafe { std::slice::from_raw_parts(start, block_len as usize) };
    let Some(checksums) = range_checksums(&item.id, block, held.checksums(), item.offset, len) else {
        source.damaged(&item.id, held.copy());
        return (GetOutcome::Damaged, None);
    };
    let hit = Hit { copy: held.copy(), writer: held.writer(), block_len, len, checksums };
    let range = Region::of(&block[item.offset as usize..(item.offset + len) as usize]);
    (GetOutcome::Hit(hit), Some(Part { range, held }))
}

/// The checksums that travel with a range: the block's own, and new ones at ragged ends, whose chunks are verified first.
/// `None` if one of these does not match.
fn range_checksums(id: &BlockId, block: &[u8], sums: &[u32], offset: u64, len: u64) -> Option<Sums> {
    let checksum = BlockChecksum::new(*id, block.len() as u64);
    let one = |piece: tidepool_wire::checksum::Piece| {
        let own = *sums.get(piece.chunk as usize)?;
        if piece.whole {
            return Some(own);
        }
        let start = (piece.chunk * CHUNK_LEN) as usize;
        let chunk = &block[start..(start + CHUNK_LEN as usize).min(block.len())];
        let part = &chunk[piece.offset as usize..(piece.offset + piece.len) as usize];
        (checksum.chunk(piece.chunk, chunk) == own).then(|| checksum.part(piece.chunk, piece.offset, part))
    };
    checksum.pieces(offset, len).map(one).collect()
}

/// Receives a Write's payload of `len` bytes to where it belongs in the slab, and returns the checksums of the pieces of
/// chunks that it covers, made on the way. `checksum` is the block's, `offset` where in the block the bytes belong.
///
/// # Safety
/// `to` must be valid for writes of `len` bytes and unshared until this returns: the reservation must not be sealed, freed
/// or reused meanwhile.
pub unsafe fn recv_write(
    receiver: &mut FrameReceiver,
    to: Region,
    checksum: &BlockChecksum,
    offset: u64,
    until: Deadline,
) -> Result<Sums, ConnError> {
    let regions = [to];
    let (mut cursor, mut left) = (Cursor::new(&regions), to.len as u64);
    let mut running = checksum.start_range(offset, left);
    while left > 0 {
        let start = cursor.peek(1).start;
        // SAFETY: passed on from the caller.
        let received = unsafe { receiver.payload(&mut cursor, left.min(STEP), until)? };
        if received == 0 {
            return Err(ConnError::Unexpected("a payload shorter than its message says"));
        }
        // SAFETY: these bytes have just been received and nobody else writes to them.
        running.update(unsafe { std::slice::from_raw_parts(start, received as usize) });
        left -= received;
    }
    running.finish().ok_or(ConnError::Unexpected("a payload past the block's end"))
}
