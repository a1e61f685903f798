//! Space for a block that is being written, and the step that makes it visible.

use super::{BlockTerms, Inner, NodeMemory, SlotState, TIER};
use crate::inventory::Change;
use crate::layout::CONTROL_BYTES;
use crate::placed::Placed;
use crate::protocol::{Described, State, publish, retire, stamp};
use std::sync::Arc;
use std::time::Duration;
use tidepool_locks::MutexGuard;
use tidepool_policy::eviction::Tag;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, Generation, Key, UsedFor, chunk_count};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{Pin, SlotName};

/// How long a writer waits for space before it is asked whether it still lives.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// Why there is no reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Nothing could be evicted before the deadline.
    Full,
    /// The block is larger than the whole pool.
    TooLarge,
}

/// Space that one writer fills. Dropping it gives the space back; a writer that may still be writing must therefore be
/// gone first, or its reservation kept.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<NodeMemory>,
    slot: u32,
    generation: u64,
    described: Described,
    terms: BlockTerms,
    /// What is known of the use that the put is: of most nothing.
    used: Option<Box<UsedFor>>,
}

/// Space whose block does not have its key yet. Keys lie behind the bytes of their blocks, where nobody has been for long:
/// those of a batch are best written one right after the other, so that the processor waits for that memory once and not
/// once a block.
#[derive(Debug)]
pub struct Unnamed<'k>(Reservation, Key<'k>);

impl Unnamed<'_> {
    /// As [`Reservation::with_terms`].
    pub fn with_terms(self, terms: BlockTerms) -> Result<Self, NoRoom> {
        let Self(reservation, key) = self;
        Ok(Self(reservation.with_terms(terms)?, key))
    }

    /// Says for which request the block is put, which is its first use.
    #[must_use]
    pub fn used_for(self, used: Option<UsedFor>) -> Self {
        let Self(mut reservation, key) = self;
        reservation.used = used.map(Box::new);
        Self(reservation, key)
    }

    /// Gives the block its key.
    pub fn named(self) -> Reservation {
        let Self(reservation, key) = self;
        reservation.write_behind(reservation.placed().key_at(), key.as_bytes());
        reservation
    }
}

impl std::fmt::Debug for NodeMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeMemory").field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// What a seal came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// The block is visible under this name from now on.
    New(CopyName),
    /// Another writer sealed the same block first, or a later version of it: that copy stays, this one is gone.
    Held(CopyName),
    /// The block was removed while it was being copied here: this copy is gone.
    Void,
}

impl NodeMemory {
    /// Takes space for `len` bytes under `key`, evicting what the policy says, and waiting until `deadline` if
    /// nothing can be evicted; `is_wanted` is asked every now and then whether anybody still waits for it.
    pub fn reserve<'k>(
        self: &Arc<Self>,
        key: Key<'k>,
        id: BlockId,
        len: u64,
        writer: ClientId,
        deadline: Deadline,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Unnamed<'k>, NoRoom> {
        let (bytes, align) = self.needed(key, len)?;
        let mut inner = self.inner.lock();
        let room = loop {
            if let Some(room) = self.make_room(&mut inner, bytes, align) {
                break room;
            }
            let step = deadline.capped(WAIT_STEP);
            inner.stats.waiting += 1;
            let waited = self.freed.wait_until(&mut inner, step.instant());
            inner.stats.waiting -= 1;
            if waited.timed_out() && (deadline.has_passed() || !is_wanted()) {
                inner.stats.no_space_total += 1;
                return Err(NoRoom::Full);
            }
        };
        Ok(self.reserve_in(inner, room, (key, id, len), writer))
    }

    /// The same where there is space already: nothing is evicted, and nothing waited for.
    pub fn reserve_free<'k>(
        self: &Arc<Self>,
        key: Key<'k>,
        id: BlockId,
        len: u64,
        writer: ClientId,
    ) -> Result<Unnamed<'k>, NoRoom> {
        let (bytes, align) = self.needed(key, len)?;
        let mut inner = self.inner.lock();
        let Some(room) = inner.free_room(bytes, align) else {
            inner.stats.no_space_total += 1;
            return Err(NoRoom::Full);
        };
        Ok(self.reserve_in(inner, room, (key, id, len), writer))
    }

    /// Whether a block of `len` bytes comes in, which costs others their places if there is no space left. Asking counts: what is
    /// not let in may be the next time.
    pub fn admits(&self, key: Key<'_>, id: &BlockId, len: u64) -> bool {
        let Ok((bytes, _)) = self.needed(key, len) else { return true };
        let mut inner = self.inner.lock();
        let is_full = inner.heap.free_bytes() < bytes || inner.free_slots.is_empty();
        let admits = !is_full || inner.admission.admits(Tag(id.words()[0]));
        inner.stats.declined_total += u64::from(!admits);
        admits
    }

    /// The space that a block takes, and how it is aligned.
    fn needed(&self, key: Key<'_>, len: u64) -> Result<(u64, u64), NoRoom> {
        let bytes = Placed::run_bytes(len, key.as_bytes().len() as u64);
        if bytes > self.capacity() { Err(NoRoom::TooLarge) } else { Ok((bytes, Placed::align(len))) }
    }

    fn reserve_in<'k>(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        (slot, offset): (u32, u64),
        (key, id, len): (Key<'k>, BlockId, u64),
        writer: ClientId,
    ) -> Unnamed<'k> {
        let key_len = key.as_bytes().len() as u64;
        let generation = inner.next_generation();
        let entry = &mut inner.slots[slot as usize];
        (entry.generation, entry.state) = (generation, SlotState::Reserved);
        inner.stats.reserved += 1;
        retire(self.header(slot), stamp(generation, State::Reserved));
        drop(inner);
        let described = Described { id: id.words(), offset: CONTROL_BYTES + offset, len, key_len, writer: writer.0 };
        let terms = BlockTerms::default();
        Unnamed(Reservation { memory: Arc::clone(self), slot, generation, described, terms, used: None }, key)
    }
}

impl Reservation {
    /// Says what is wanted for the block. Refused when that takes more than hard pins may.
    pub fn with_terms(mut self, terms: BlockTerms) -> Result<Self, NoRoom> {
        if terms.pin == Pin::Hard {
            let mut inner = self.memory.inner.lock();
            if inner.stats.pinned_bytes + self.run_bytes() > self.memory.most_pinned() {
                inner.stats.no_space_total += 1;
                drop(inner);
                return Err(NoRoom::Full);
            }
            inner.stats.pinned_bytes += self.run_bytes();
        }
        self.terms = terms;
        Ok(self)
    }

    /// Says that the bytes come from another node: they are worth nothing if the block is removed meanwhile.
    #[must_use]
    pub fn watched(self, key: Key<'_>) -> Self {
        self.memory.inner.lock().watch_incoming(self.slot, self.described.id, key);
        self
    }

    fn run_bytes(&self) -> u64 {
        Placed::run_bytes(self.described.len, self.described.key_len)
    }

    /// The reservation's name for its writer.
    pub fn name(&self) -> SlotName {
        SlotName { slot: self.slot, generation: Generation(self.generation) }
    }

    /// The block's id.
    pub fn id(&self) -> BlockId {
        BlockId::from_words(self.described.id)
    }

    /// Where in the slab the block's bytes go.
    pub fn offset(&self) -> u64 {
        self.described.offset
    }

    /// Bytes of the block.
    #[expect(clippy::len_without_is_empty, reason = "a block has at least one byte")]
    pub fn len(&self) -> u64 {
        self.described.len
    }

    /// The address of `len` bytes at `offset` of the block, if they lie inside it.
    pub fn address(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.described.len {
            return None;
        }
        self.memory.slab.at(self.described.offset + offset, len)
    }

    /// Whether the bytes now in place match `checksums`.
    pub fn matches(&self, checksums: &[u32]) -> bool {
        let Some(start) = self.address(0, self.described.len) else { return false };
        // SAFETY: the reservation's bytes lie inside the slab and stay there while it lives. A writer that breaks the
        // protocol could still be storing to them; the checksum is then of whatever was read, and decides nothing but
        // whether this writer's block is refused.
        let bytes = unsafe { std::slice::from_raw_parts(start, self.described.len as usize) };
        BlockChecksum::new(self.id(), self.described.len).verify(0, bytes, checksums).is_ok()
    }

    /// Makes the block visible. The number of checksums must be that of the block's chunks. Announcers hear of it with the
    /// next [`Inventory::wake`](crate::inventory::Inventory::wake).
    pub fn seal(self, checksums: &[u32]) -> Result<Sealed, Box<Self>> {
        if checksums.len() as u64 != chunk_count(self.described.len) {
            return Err(Box::new(self));
        }
        for (at, sum) in (self.placed().checksums_at()..).step_by(4).zip(checksums) {
            self.write_behind(at, &sum.to_le_bytes());
        }
        let memory = Arc::clone(&self.memory);
        let mut inner = memory.inner.lock();
        if inner.is_void(self.slot) {
            drop(inner);
            return Ok(Sealed::Void);
        }
        let id = self.id();
        let held = memory.lookup(&inner, &id).map(|(slot, _)| slot);
        if let Some(slot) = held.filter(|slot| self.terms.version.is_none_or(|own| inner.version(*slot) >= Some(own))) {
            let held = memory.name(inner.slots[slot as usize].generation);
            let usage = inner.use_for(self.used.as_deref());
            inner.mark_used(slot, &usage);
            drop(inner);
            return Ok(Sealed::Held(held));
        }
        let slower = memory.slower.place(&id);
        if let Some(newer) = slower.filter(|slower| slower.version > self.terms.version) {
            drop(inner);
            return Ok(Sealed::Held(newer.copy));
        }
        // The same version in a slower tier stays there.
        if held.is_some() || slower.is_some_and(|slower| slower.version < self.terms.version) {
            memory.remove_everywhere(&mut inner, &id);
        }
        publish(memory.header(self.slot), stamp(self.generation, State::Sealed), &self.described);
        if !memory.index().insert(self.described.id, self.slot) {
            retire(memory.header(self.slot), stamp(self.generation, State::Reserved));
            drop(inner);
            return Err(Box::new(self));
        }
        inner.keep_terms(self.slot, &self.terms, self.run_bytes());
        memory.note_sealed(&mut inner, &self);
        Ok(Sealed::New(memory.name(self.generation)))
    }

    fn placed(&self) -> Placed {
        Placed::of(&self.described)
    }

    /// Stores the key or the checksums behind the block's bytes.
    fn write_behind(&self, at: u64, bytes: &[u8]) {
        if let Some(target) = self.memory.slab.at(at, bytes.len() as u64) {
            // SAFETY: the run was sized for key and checksums, nobody else writes to them, and no reader is led to them
            // before the block is sealed.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        }
    }
}

impl NodeMemory {
    fn note_sealed(&self, inner: &mut Inner, sealed: &Reservation) {
        let Reservation { slot, described, used, .. } = sealed;
        let slot = *slot;
        let entry = &mut inner.slots[slot as usize];
        (entry.state, entry.tag) = (SlotState::Sealed, described.id[0]);
        inner.count_use(slot);
        let usage = inner.use_for(used.as_deref());
        inner.place(slot, &usage);
        inner.stats.blocks += 1;
        inner.stats.block_bytes += described.len;
        inner.stats.sealed_total += 1;
        inner.journal.push(Change::Added(BlockId::from_words(described.id), TIER));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut inner = self.memory.inner.lock();
        inner.stats.reserved -= 1;
        inner.forget_incoming(self.slot);
        if inner.slots[self.slot as usize].state != SlotState::Reserved {
            return; // sealed
        }
        if self.terms.pin == Pin::Hard {
            inner.stats.pinned_bytes -= self.run_bytes();
        }
        let generation = inner.next_generation();
        retire(self.memory.header(self.slot), stamp(generation, State::Free));
        let _ = self.memory.release(&mut inner, self.slot);
    }
}
