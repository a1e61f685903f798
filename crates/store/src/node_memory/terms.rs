//! Blocks with terms: a version, a pin, a group. Most blocks have none, and cost nothing for it.
//!
//! A *version* takes the place of older ones when it is sealed. A *hard pin* keeps a block out of the order of eviction; hard
//! pins have a bounded share of the pool. A *soft pin* has it evicted last, until the pin ends. When a block is evicted, the
//! others of its *group* are the next. Removal takes no notice of any of them.

use super::{Inner, NodeMemory, SlotState};
use crate::protocol::load_sealed;
use std::time::Duration;
use tidepool_policy::eviction::{Tag, Use};
use tidepool_types::{BlockId, Key, Version};
use tidepool_wire::message::{Pin, SupersedeOutcome};

/// The share of a pool that hard pins may take: one part of so many.
const HARD_SHARE: u64 = 2;

/// What a writer wants for a block beyond its being stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockTerms {
    /// Its version, if it is to take the place of older ones.
    pub version: Option<Version>,
    /// What keeps it from being evicted.
    pub pin: Pin,
    /// The group that it belongs to.
    pub group: Option<BlockId>,
}

/// The terms that a sealed block has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    version: Option<Version>,
    pin: Pinned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pinned {
    No,
    Until(Duration),
    /// For good, with so many bytes.
    Hard(u64),
}

/// A block that is being copied from another node.
#[derive(Debug)]
pub(super) struct Incoming {
    id: [u64; 2],
    key: Box<[u8]>,
    /// Whether the block was removed meanwhile: what comes in is what was removed.
    void: bool,
}

impl NodeMemory {
    /// Removes a block from every tier if it is older than `version`, and voids copies of it that are on their way here.
    pub fn supersede(&self, id: &BlockId, version: Version) -> SupersedeOutcome {
        let mut inner = self.inner.lock();
        inner.void_incoming(id);
        let held = match self.lookup(&inner, id) {
            Some((slot, _)) => Some(inner.version(slot)),
            None => self.slower.place(id).map(|place| place.version),
        };
        match held {
            None => SupersedeOutcome::Absent,
            Some(Some(held)) if held >= version && version != Version::NEVER => SupersedeOutcome::Kept(held),
            Some(_) => {
                self.remove_everywhere(&mut inner, id);
                SupersedeOutcome::Removed
            }
        }
    }

    /// Voids copies that are on their way here of blocks with these keys, which are about to be removed.
    pub fn void_matching(&self, matches: impl Fn(&[u8]) -> bool) {
        let mut inner = self.inner.lock();
        inner.incoming.values_mut().for_each(|incoming| incoming.void |= matches(&incoming.key));
    }

    /// The blocks that are in one group with `id`, itself included; none when it has no group.
    pub fn group_of(&self, id: &BlockId) -> Vec<BlockId> {
        let inner = self.inner.lock();
        let Some((slot, _)) = self.lookup(&inner, id) else { return Vec::new() };
        let id_in = |slot: &u32| load_sealed(self.header(*slot)).map(|(_, found)| BlockId::from_words(found.id));
        inner.groups.members(slot).iter().filter_map(id_in).collect()
    }

    /// Bytes that hard pins may take.
    pub(super) fn most_pinned(&self) -> u64 {
        self.capacity() / HARD_SHARE
    }
}

impl Inner {
    /// The version of a sealed block, if it was given one.
    pub(super) fn version(&self, slot: u32) -> Option<Version> {
        self.terms.get(&slot)?.version
    }

    /// Notes the terms of a block that is being sealed, with `bytes` of space, before it is offered for eviction.
    pub(super) fn keep_terms(&mut self, slot: u32, terms: &BlockTerms, bytes: u64) {
        if *terms == BlockTerms::default() {
            return;
        }
        let pin = match terms.pin {
            Pin::None => Pinned::No,
            Pin::Soft { millis } => Pinned::Until((self.clock)() + Duration::from_millis(millis.into())),
            Pin::Hard => Pinned::Hard(bytes),
        };
        self.terms.insert(slot, Kept { version: terms.version, pin });
        if let Some(group) = terms.group {
            self.groups.join(slot, group);
        }
    }

    /// Forgets the terms of a block that goes out of sight.
    pub(super) fn drop_terms(&mut self, slot: u32) {
        if self.terms.is_empty() {
            return;
        }
        self.groups.leave(slot);
        if let Some(Kept { pin: Pinned::Hard(bytes), .. }) = self.terms.remove(&slot) {
            self.stats.pinned_bytes -= bytes;
        }
    }

    /// Makes a sealed block that nobody holds one that may be evicted, where its pin wants it. `usage` is its last use.
    pub(super) fn place(&mut self, slot: u32, usage: &Use) {
        let pin = self.terms.get(&slot).map_or(Pinned::No, |kept| kept.pin);
        if !matches!(pin, Pinned::Hard(_)) {
            self.walls.remove(slot);
        }
        match pin {
            Pinned::Hard(_) => {}
            Pinned::Until(end) => self.soft.insert(slot, self.slots[slot as usize].last_use, end),
            Pinned::No if self.order.contains(slot) => {}
            Pinned::No => self.enter_order(slot, usage),
        }
    }

    fn enter_order(&mut self, slot: u32, usage: &Use) {
        self.order.insert(slot, Tag(self.slots[slot as usize].tag), usage);
    }

    /// Blocks whose soft pins have ended are evicted as all others are.
    pub(super) fn end_pins(&mut self) {
        if self.soft.is_empty() {
            return;
        }
        let usage = self.use_now();
        while let Some(slot) = self.soft.pop_ended(usage.at) {
            if let Some(kept) = self.terms.get_mut(&slot) {
                kept.pin = Pinned::No;
            }
            self.enter_order(slot, &usage);
        }
    }

    /// A block is evicted: the others of its group are the next.
    pub(super) fn chill_group(&mut self, slot: u32) {
        for &member in self.groups.members(slot).iter().filter(|member| **member != slot) {
            self.order.chill(member);
        }
    }

    /// Has removals be noticed by a block that is being copied from another node.
    pub(super) fn watch_incoming(&mut self, slot: u32, id: [u64; 2], key: Key<'_>) {
        self.incoming.insert(slot, Incoming { id, key: key.as_bytes().into(), void: false });
    }

    /// What comes in of a block that is removed must not be sealed.
    pub(super) fn void_incoming(&mut self, id: &BlockId) {
        self.incoming
            .values_mut()
            .filter(|incoming| incoming.id == id.words())
            .for_each(|incoming| incoming.void = true);
    }

    /// Whether the block that was to fill `slot` has been removed since it began to come in.
    pub(super) fn is_void(&self, slot: u32) -> bool {
        self.incoming.get(&slot).is_some_and(|incoming| incoming.void)
    }

    /// Whether a block is on its way here.
    pub(super) fn is_incoming(&self, id: &BlockId) -> bool {
        self.incoming.values().any(|incoming| incoming.id == id.words() && !incoming.void)
    }

    pub(super) fn forget_incoming(&mut self, slot: u32) {
        self.incoming.remove(&slot);
    }

    /// Whether a block may be evicted at all; one that is softly pinned only when nothing else is left.
    pub(super) fn evictable(&self, slot: u32) -> bool {
        let entry = &self.slots[slot as usize];
        let offered = self.order.contains(slot) || (!self.sparing && self.soft.contains(slot));
        entry.state == SlotState::Sealed && entry.holds == 0 && offered
    }
}

#[cfg(test)]
mod tests;
