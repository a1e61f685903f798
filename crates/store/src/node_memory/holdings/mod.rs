//! A node's holdings: memory and the slower tiers below it, as one.
//!
//! Each tier keeps an index of its own, and all share memory's journal. A node announces the fastest tier that has a block, so a
//! block that moves between tiers is one change. Memory's lock orders all changes: eviction asks the slower tiers under it
//! ([`SlowerTier::evicting`]), and they commit their own changes under it ([`Commit`]). Nothing waits under it.
//!
//! | what happens to a block | change |
//! |---|---|
//! | put into memory, or promoted | added: dram |
//! | spilled, and still in memory | none |
//! | evicted from memory or damaged there, a slower tier has it | added: that tier |
//! | evicted from memory or damaged there, no slower tier has it | removed |
//! | dropped by a slower tier, a faster one has it | none |
//! | dropped by the last tier that has it | removed |
//! | removed on request, from every tier | removed |

mod coldest;
mod commit;
mod read;

pub use coldest::{Cold, ColdCursor};
pub use commit::Commit;
pub use read::Reading;

use super::{NodeMemory, NodeMemoryConfig, OpenError, Reservation};
use crate::inventory::{Change, Inventory, Overrun, PageEnd};
use crate::node_memory::BlockTerms;
use crate::tier::{Place, SlowerTier, SlowerTiers};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_types::{BlockId, Key, Tier};

/// A page's cursor: how many tiers are behind it, and a position in the tier that it is in.
const POSITION_BITS: u32 = 56;

/// All places of one node. Cheap to clone: clones share them.
#[derive(Clone)]
pub struct Holdings {
    memory: Arc<NodeMemory>,
}

impl Holdings {
    /// Makes a node's memory on top of slower tiers, whatever their order here; as [`NodeMemory::create_while`].
    pub fn create(
        config: &NodeMemoryConfig,
        slower: Vec<Arc<dyn SlowerTier>>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Self, OpenError> {
        let memory = NodeMemory::create_over(SlowerTiers::new(slower), config, go_on)?;
        Ok(Self { memory })
    }

    /// The holdings that a memory is the first tier of.
    pub fn of(memory: Arc<NodeMemory>) -> Self {
        Self { memory }
    }

    /// The first tier.
    pub fn memory(&self) -> &Arc<NodeMemory> {
        &self.memory
    }

    /// Has a reservation take in a block that a slower tier has, once it is filled and sealed; `None` when that copy is gone.
    /// Asked before the copy is read: from here on a removal of the block is noticed.
    #[must_use]
    pub fn promote(&self, reservation: Reservation, key: Key<'_>, from: &Place) -> Option<Reservation> {
        let terms = BlockTerms { version: from.version, ..BlockTerms::default() };
        let reservation = reservation.watched(key).with_terms(terms).ok()?;
        let inner = self.memory.inner.lock();
        let found = self.memory.slower.place(&reservation.id());
        drop(inner);
        let is_there = found.is_some_and(|found| found.copy == from.copy && found.len == reservation.len());
        is_there.then_some(reservation)
    }

    /// Appends what is held and where, the fastest place of each block, as [`Inventory::page`] does.
    pub fn list(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Place)>) -> PageEnd {
        self.walk(cursor, max, |id, place| out.push((id, place)))
    }

    fn walk(&self, cursor: u64, max: usize, mut each: impl FnMut(BlockId, Place)) -> PageEnd {
        let memory = &*self.memory;
        let inner = memory.inner.lock();
        let (level, position) = (cursor >> POSITION_BITS, cursor & ((1 << POSITION_BITS) - 1));
        let tier_at = |level: u64| memory.slower.get(usize::try_from(level).ok()?.checked_sub(1)?);
        let mut next = None;
        if let Some(tier) = tier_at(level) {
            let mut found = Vec::new();
            next = tier.page(position, max, &mut found);
            let fastest = |(id, _): &(BlockId, Place)| memory.fastest(&inner, id) == Some(tier.tier());
            found.into_iter().filter(fastest).for_each(|(id, place)| each(id, place));
        } else if level == 0 {
            next = memory.walk(&inner, position, max, |slot, described| {
                each(BlockId::from_words(described.id), memory.place_of(&inner, slot, &described));
            });
        }
        let below = || tier_at(level + 1).map(|_| (level + 1) << POSITION_BITS);
        let next = next.map(|position| (level << POSITION_BITS) | position).or_else(below);
        PageEnd { as_of: inner.journal.latest(), next }
    }
}

impl Inventory for Holdings {
    fn latest(&self) -> u64 {
        self.memory.inner.lock().journal.latest()
    }

    fn changes(&self, after: u64, max: usize, out: &mut Vec<Change>) -> Result<(), Overrun> {
        self.memory.inner.lock().journal.after(after, max, out)
    }

    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Tier)>) -> PageEnd {
        self.walk(cursor, max, |id, place| out.push((id, place.tier)))
    }

    fn wait(&self, after: u64, timeout: Duration) -> u64 {
        let until = Instant::now() + timeout;
        let mut inner = self.memory.inner.lock();
        while inner.journal.latest() <= after {
            if self.memory.changed.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.journal.latest()
    }

    fn wake(&self) {
        self.memory.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
