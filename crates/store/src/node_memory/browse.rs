//! Walking over what a pool's memory holds: for the scrubber, for listings of keys and for those of the holdings. Every page is a
//! short section.

use super::{Hold, Inner, NodeMemory, SlotState};
use crate::protocol::{Described, load_sealed};
use std::sync::Arc;

/// Slots that are looked at under one lock.
const SLOTS_PER_LOCK: u64 = 8192;

impl NodeMemory {
    /// Holds the first sealed block at or after slot `cursor`; also returns where to go on. `None` at the end.
    pub fn hold_from(self: &Arc<Self>, cursor: u64) -> Option<(Hold, u64)> {
        let mut first = cursor;
        loop {
            let mut inner = self.inner.lock();
            let end = inner.slots_used.min(first + SLOTS_PER_LOCK);
            if first >= end {
                return None;
            }
            let sealed = |slot: &u64| inner.slots[*slot as usize].state == SlotState::Sealed;
            if let Some(slot) = (first..end).find(sealed) {
                let (_, described) = load_sealed(self.header(slot as u32))?;
                return Some((self.peek_slot(&mut inner, slot as u32, described), slot + 1));
            }
            first = end;
        }
    }

    /// Slots that have ever been in use: no slot from this number on holds anything.
    pub fn slots_used(&self) -> u64 {
        self.inner.lock().slots_used
    }

    /// Calls `each` for the blocks in `max` slots from slot `first` on; returns where to go on, `None` at the end.
    pub(super) fn walk(
        &self,
        inner: &Inner,
        first: u64,
        max: usize,
        mut each: impl FnMut(u32, Described),
    ) -> Option<u64> {
        let end = inner.slots_used.min(first.saturating_add(max as u64));
        for slot in first..end {
            if inner.slots[slot as usize].state == SlotState::Sealed
                && let Some((_, described)) = load_sealed(self.header(slot as u32))
            {
                each(slot as u32, described);
            }
        }
        (end < inner.slots_used).then_some(end)
    }
}
