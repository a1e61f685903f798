//! A walk in the order of eviction, for a slower tier that works ahead of it.
//!
//! The cursor remembers the last block that it came to, not what lies behind that. When that block has been used, moved or let go
//! since, the walk starts anew at the block that goes next; so it does when another block has become the next one to go and the
//! tier lacks it. A walk passes over what the tier has already, so starting anew costs look-ups and nothing is spilled twice.

use super::Holdings;
use crate::node_memory::{Inner, NodeMemory, SlotState};
use crate::protocol::load_sealed;
use crate::tier::{Evicting, SlowerTier};
use tidepool_types::{BlockId, Generation};
use tidepool_wire::message::SlotName;

/// A block that goes soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    /// Its slot.
    pub name: SlotName,
    /// Its id.
    pub id: BlockId,
    /// Its bytes.
    pub len: u64,
}

/// Where a walk in the order of eviction is; at first where that begins.
#[derive(Debug, Clone, Default)]
pub struct ColdCursor {
    /// The block that was the next to go in the last step.
    front: Option<SlotName>,
    /// The last block looked at, and its last use then.
    last: Option<(SlotName, u64)>,
}

impl Holdings {
    /// Appends blocks in the order in which they go that `tier` neither has nor is about to have, looking at `max` blocks. Blocks
    /// that are held are passed over. False at the end of the order: the next step begins anew.
    pub fn coldest(&self, cursor: &mut ColdCursor, tier: &dyn SlowerTier, max: usize, out: &mut Vec<Cold>) -> bool {
        let memory = &*self.memory;
        let mut inner = memory.inner.lock();
        let front = inner.front();
        let inner = &*inner;
        let lacking = |slot| memory.cold(inner, slot).filter(|cold| tier.evicting(&cold.id) == Evicting::Go);
        let last = cursor.last.filter(|(name, used)| inner.is_in_order(*name, *used));
        let front_name = front.map(|slot| inner.slot_name(slot));
        let is_overtaken = front_name != cursor.front && front.and_then(lacking).is_some();
        cursor.front = front_name;
        let mut next = match last.filter(|_| !is_overtaken) {
            Some((name, _)) => inner.next_in_order(name.slot),
            None => front,
        };
        for _ in 0..max {
            let Some(slot) = next else {
                *cursor = ColdCursor::default();
                return false;
            };
            out.extend(lacking(slot));
            cursor.last = Some((inner.slot_name(slot), inner.slots[slot as usize].last_use));
            next = inner.next_in_order(slot);
        }
        true
    }
}

impl NodeMemory {
    /// The block in `slot`, unless it is held.
    fn cold(&self, inner: &Inner, slot: u32) -> Option<Cold> {
        let entry = &inner.slots[slot as usize];
        let (_, described) = load_sealed(self.header(slot)).filter(|_| entry.holds == 0)?;
        Some(Cold { name: inner.slot_name(slot), id: BlockId::from_words(described.id), len: described.len })
    }
}

impl Inner {
    /// The first block of the order, held or not.
    fn front(&mut self) -> Option<u32> {
        let first = self.order.victim((self.clock)());
        first.or_else(|| self.soft.from_coldest().next())
    }

    /// The block that goes after the one in `slot`, held or not.
    fn next_in_order(&self, slot: u32) -> Option<u32> {
        if self.order.contains(slot) {
            self.order.after(slot).or_else(|| self.soft.from_coldest().next())
        } else {
            self.soft.after(slot)
        }
    }

    /// Whether a block is where it was in the order when it had been `used`.
    fn is_in_order(&self, name: SlotName, used: u64) -> bool {
        let entry = &self.slots[name.slot as usize];
        let is_same = entry.generation == name.generation.0 && entry.last_use == used;
        is_same && entry.state == SlotState::Sealed && (self.order.contains(name.slot) || self.soft.contains(name.slot))
    }

    fn slot_name(&self, slot: u32) -> SlotName {
        SlotName { slot, generation: Generation(self.slots[slot as usize].generation) }
    }
}
