//! Holds: a sealed block that stays where it is until the hold is dropped. Sends and borrowed views hold; look-ups and
//! copies on the same host never do.

use super::{Inner, NodeMemory, Slot, SlotState};
use crate::inventory::Change;
use crate::memory_file::prefetch;
use crate::placed::Placed;
use crate::protocol::{Described, State, retire, stamp};
use std::sync::Arc;
use tidepool_types::{BlockId, ClientId, CopyName, Generation, Key, UsedFor, chunk_count};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{Run, SlotName};

/// Blocks that are looked up under one lock: a message may name a million, and all others would wait for them.
const PER_LOCK: usize = 256;

/// A sealed block that may be removed or evicted from sight, but not from its place.
pub struct Hold {
    memory: Arc<NodeMemory>,
    slot: u32,
    generation: u64,
    described: Described,
    kind: HoldKind,
    /// What is known of the use: of most nothing.
    used: Option<Box<UsedFor>>,
    /// Whether it has ended already, with others under one lock.
    ended: bool,
}

/// What a block is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldKind {
    /// To be read, which is a use of it once it is let go.
    Use,
    /// To go on with a read that was counted when it began.
    Continued,
    /// To be looked at: for a moment, and it keeps its place in the order of eviction.
    Look,
}

impl NodeMemory {
    /// Holds a block, which counts as a use of it; or only the copy of that name, which goes on with such a use.
    pub fn hold(self: &Arc<Self>, id: &BlockId, copy: Option<CopyName>) -> Option<Hold> {
        self.hold_one(&mut self.inner.lock(), id, copy)
    }

    /// As [`NodeMemory::hold`] for several blocks, whose look-ups overlap.
    pub fn hold_all(self: &Arc<Self>, wanted: &[(BlockId, Option<CopyName>)]) -> Vec<Option<Hold>> {
        self.hold_each(wanted, |_, _, hold| hold)
    }

    /// Holds several blocks, and answers for each in the same section. `answer` must not drop the hold.
    pub(super) fn hold_each<T>(
        self: &Arc<Self>,
        wanted: &[(BlockId, Option<CopyName>)],
        answer: impl Fn(&Inner, &(BlockId, Option<CopyName>), Option<Hold>) -> T,
    ) -> Vec<T> {
        self.prefetch_index(wanted.iter().map(|(id, _)| *id));
        for (id, _) in wanted {
            self.index().find(id.words(), |slot| {
                prefetch(self.header(slot).as_ptr().cast());
                Some(())
            });
        }
        let mut inner = self.inner.lock();
        let one = |wanted: &(BlockId, Option<CopyName>)| {
            let hold = self.hold_one(&mut inner, &wanted.0, wanted.1);
            answer(&inner, wanted, hold)
        };
        wanted.iter().map(one).collect()
    }

    /// Asks for the index lines of blocks that are looked for next, so that their cache misses overlap.
    pub fn prefetch_index(&self, ids: impl Iterator<Item = BlockId>) {
        let index = self.index();
        ids.for_each(|id| prefetch(index.bucket(index.home(id.words())).as_ptr().cast()));
    }

    pub(super) fn hold_one(self: &Arc<Self>, inner: &mut Inner, id: &BlockId, copy: Option<CopyName>) -> Option<Hold> {
        let (slot, described) = self.lookup(inner, id)?;
        let generation = inner.slots[slot as usize].generation;
        if copy.is_some_and(|copy| copy != self.name(generation)) {
            return None;
        }
        inner.wall_in(slot);
        inner.slots[slot as usize].firm_holds += 1;
        let kind = if copy.is_none() { HoldKind::Use } else { HoldKind::Continued };
        let hold = self.hold_slot(inner, slot, described, kind);
        // Whoever holds a block reads its checksums next.
        prefetch(hold.checksums().as_ptr().cast());
        Some(hold)
    }

    /// Ends many holds of this pool under one lock: two senders that take it for each block wait for each other. The
    /// last one was used first: of a prefix, what is behind is to go before what it needs.
    pub fn let_go(&self, mut holds: Vec<Hold>) {
        let mut inner = self.inner.lock();
        let mine = holds.iter_mut().rev().filter(|hold| std::ptr::eq(&raw const *hold.memory, self));
        mine.for_each(|hold| hold.end(&mut inner));
    }

    /// Holds a block without counting it as a use: to look at it.
    pub fn peek(self: &Arc<Self>, id: &BlockId) -> Option<Hold> {
        let mut inner = self.inner.lock();
        let (slot, described) = self.lookup(&inner, id)?;
        Some(self.peek_slot(&mut inner, slot, described))
    }

    /// Holds a sealed slot without counting it as a use.
    pub(super) fn peek_slot(self: &Arc<Self>, inner: &mut Inner, slot: u32, described: Described) -> Hold {
        inner.looked_at.push(slot);
        self.hold_slot(inner, slot, described, HoldKind::Look)
    }

    fn hold_slot(self: &Arc<Self>, inner: &mut Inner, slot: u32, described: Described, kind: HoldKind) -> Hold {
        inner.slots[slot as usize].holds += 1;
        inner.stats.holds += 1;
        let generation = inner.slots[slot as usize].generation;
        Hold { memory: Arc::clone(self), slot, generation, described, kind, used: None, ended: false }
    }

    /// Which of `ids` are held, with their lengths. Counts as a use of each, from the last to the first.
    pub fn confirm(&self, ids: &[BlockId]) -> Vec<Option<(CopyName, u64)>> {
        self.confirm_for(ids, &[])
    }

    /// As [`NodeMemory::confirm`], for the requests that the runs name.
    pub fn confirm_for(&self, ids: &[BlockId], runs: &[Run]) -> Vec<Option<(CopyName, u64)>> {
        let answer = |inner: &Inner, _: &BlockId, found: Option<(u32, Described)>| {
            found.map(|(slot, described)| (self.name(inner.slots[slot as usize].generation), described.len))
        };
        self.confirm_each(ids, runs, answer)
    }

    /// Looks several blocks up, which is a use of those in memory, and answers for each in the same section.
    pub(super) fn confirm_each<T: Clone>(
        &self,
        ids: &[BlockId],
        runs: &[Run],
        answer: impl Fn(&Inner, &BlockId, Option<(u32, Described)>) -> Option<T>,
    ) -> Vec<Option<T>> {
        let mut found = vec![None; ids.len()];
        let mut uses = Run::uses(runs).rev();
        for (ids, found) in ids.chunks(PER_LOCK).zip(found.chunks_mut(PER_LOCK)).rev() {
            let mut inner = self.inner.lock();
            self.prefetch_index(ids.iter().copied());
            let usage = inner.use_now();
            for (id, found) in ids.iter().zip(found).rev() {
                let in_memory = self.lookup(&inner, id);
                let used = uses.next().flatten();
                if let Some((slot, _)) = in_memory {
                    inner.mark_used_for(slot, &usage, used.as_ref());
                }
                *found = answer(&inner, id, in_memory);
            }
        }
        found
    }

    /// Notes that readers on this host used these blocks, from the last to the first, for the requests that the runs name; those
    /// that are gone are passed over.
    pub fn touch(&self, slots: &[SlotName], runs: &[Run]) {
        let mut uses = Run::uses(runs).rev();
        for step in slots.rchunks(PER_LOCK) {
            let mut inner = self.inner.lock();
            let usage = inner.use_now();
            for name in step.iter().rev() {
                let used = uses.next().flatten();
                let known = inner.slots.get(name.slot as usize);
                if known.is_some_and(|slot| slot.state == SlotState::Sealed && slot.generation == name.generation.0) {
                    inner.mark_used_for(name.slot, &usage, used.as_ref());
                }
            }
        }
    }

    /// Whether a block is held. Does not count as a use.
    pub fn contains(&self, id: &BlockId) -> bool {
        self.lookup(&self.inner.lock(), id).is_some()
    }

    /// Removes a block from sight, in every tier; its space is free once nobody holds it. False when it is not there. Announcers
    /// hear of it with the next [`Inventory::wake`](crate::inventory::Inventory::wake).
    pub fn remove(&self, id: &BlockId) -> bool {
        self.remove_everywhere(&mut self.inner.lock(), id)
    }

    /// Removes a block from every tier, which is one change, and voids copies of it that are on their way here.
    pub(super) fn remove_everywhere(&self, inner: &mut Inner, id: &BlockId) -> bool {
        inner.void_incoming(id);
        // The slower tiers first: memory's copy then goes as the last one.
        let was_slower = self.slower.remove(id);
        match self.lookup(inner, id) {
            Some((slot, _)) => self.remove_slot(inner, slot),
            None if was_slower => {
                inner.stats.removed_total += 1;
                inner.journal.push(Change::Removed(*id));
            }
            None => return false,
        }
        true
    }

    fn remove_slot(&self, inner: &mut Inner, slot: u32) {
        inner.stats.removed_total += 1;
        if inner.slots[slot as usize].holds == 0 {
            self.withdraw(inner, slot, State::Free);
            let _ = self.release(inner, slot);
        } else {
            self.withdraw(inner, slot, State::Withdrawn);
            inner.slots[slot as usize].state = SlotState::Withdrawn;
        }
    }

    /// Verifies a copy that somebody doubts. A damaged one is out of sight, counted and never used again.
    /// Returns whether it was damaged.
    pub fn verify(self: &Arc<Self>, id: &BlockId, copy: CopyName) -> bool {
        self.hold(id, Some(copy)).is_some_and(|hold| hold.quarantine_if_damaged())
    }
}

impl Hold {
    /// Says for which request the block is used.
    #[must_use]
    pub fn used_for(mut self, used: Option<UsedFor>) -> Self {
        self.used = used.map(Box::new);
        self
    }

    /// The held slot's name.
    pub fn name(&self) -> SlotName {
        SlotName { slot: self.slot, generation: Generation(self.generation) }
    }

    /// The copy.
    pub fn copy(&self) -> CopyName {
        self.memory.name(self.generation)
    }

    /// The block's id.
    pub fn id(&self) -> BlockId {
        BlockId::from_words(self.described.id)
    }

    /// Who wrote the block.
    pub fn writer(&self) -> ClientId {
        ClientId(self.described.writer)
    }

    /// Holds on the block now, this one included.
    pub fn holds(&self) -> u32 {
        self.memory.inner.lock().slots[self.slot as usize].holds
    }

    /// Where the block starts in the slab.
    pub fn offset(&self) -> u64 {
        self.described.offset
    }

    /// The block's bytes. They are immutable, but damage (or a writer that breaks the rules) can change them: whoever
    /// sends them on sends their checksums too.
    pub fn bytes(&self) -> &[u8] {
        self.behind(self.described.offset, self.described.len)
    }

    /// The block's key; `None` when what is stored is damaged. A key has no checksum: the block's id is made from it.
    pub fn key(&self) -> Option<&[u8]> {
        let key = Key::new(self.behind(self.placed().key_at(), self.described.key_len)).ok()?;
        (BlockId::derive(self.memory.secret(), key) == self.id()).then_some(key.as_bytes())
    }

    /// One checksum per chunk.
    pub fn checksums(&self) -> &[u32] {
        let count = chunk_count(self.described.len);
        let bytes = self.behind(self.placed().checksums_at(), 4 * count);
        // SAFETY: the checksums start at a multiple of four and every bit pattern is a u32.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 4) }
    }

    /// Whether every byte of block and key is as its writer meant it to be.
    pub fn is_intact(&self) -> bool {
        self.key().is_some()
            && BlockChecksum::new(self.id(), self.described.len).verify(0, self.bytes(), self.checksums()).is_ok()
    }

    /// Takes a damaged block out of sight and out of use for good. Returns whether it was damaged.
    pub fn quarantine_if_damaged(&self) -> bool {
        if self.is_intact() {
            return false;
        }
        let mut inner = self.memory.inner.lock();
        match inner.slots[self.slot as usize].state {
            SlotState::Sealed => self.memory.withdraw(&mut inner, self.slot, State::Damaged),
            // Out of sight already; the memory below it is no better for that.
            SlotState::Withdrawn => {
                let generation = inner.next_generation();
                retire(self.memory.header(self.slot), stamp(generation, State::Damaged));
            }
            SlotState::Free | SlotState::Reserved | SlotState::Damaged => return true,
        }
        inner.slots[self.slot as usize].state = SlotState::Damaged;
        inner.stats.damaged_total += 1;
        inner.stats.damaged_bytes += self.described.len;
        self.memory.changed.notify_all();
        tracing::error!(block = %self.id(), slot = self.slot, "a block is damaged in memory and was quarantined");
        true
    }

    fn placed(&self) -> Placed {
        Placed::of(&self.described)
    }

    fn behind(&self, at: u64, len: u64) -> &[u8] {
        match self.memory.slab.at(at, len) {
            // SAFETY: the run stays this block's while the hold lives; sealed bytes are not written to by anybody who
            // keeps to the protocol, and others on the host are trusted not to (see the architecture page).
            Some(start) => unsafe { std::slice::from_raw_parts(start, len as usize) },
            None => &[],
        }
    }
}

impl Hold {
    fn end(&mut self, inner: &mut Inner) {
        self.ended = true;
        inner.stats.holds -= 1;
        inner.let_go(self.slot, self.kind, self.used.as_deref());
        let Slot { state, holds, .. } = inner.slots[self.slot as usize];
        if holds > 0 {
            return;
        }
        if state == SlotState::Withdrawn {
            let generation = inner.next_generation();
            retire(self.memory.header(self.slot), stamp(generation, State::Free));
            let _ = self.memory.release(inner, self.slot);
        }
        self.memory.freed.notify_all();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.ended {
            let memory = Arc::clone(&self.memory);
            self.end(&mut memory.inner.lock());
        }
    }
}

impl Inner {
    /// A hold ends. A block that was in use has been used now, and may be evicted again; one that was looked at is where it was.
    fn let_go(&mut self, slot: u32, kind: HoldKind, used: Option<&UsedFor>) {
        let entry = &mut self.slots[slot as usize];
        entry.holds -= 1;
        if kind == HoldKind::Look {
            if let Some(at) = self.looked_at.iter().position(|&looked_at| looked_at == slot) {
                self.looked_at.swap_remove(at);
            }
            return;
        }
        entry.firm_holds -= 1;
        let Slot { state, firm_holds, .. } = *entry;
        if state != SlotState::Sealed {
            return;
        }
        let usage = self.use_for(used);
        if kind == HoldKind::Use {
            self.mark_used(slot, &usage);
        }
        if firm_holds == 0 {
            self.place(slot, &usage);
        }
    }
}
