//! Walking over what a pool holds: for catalogs, for listings and for the scrubber. Every page is a short section.

use super::{Hold, NodeMemory, SlotState, TIER};
use crate::inventory::{Change, Inventory, Overrun, PageEnd};
use crate::protocol::load_sealed;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_types::{BlockId, Tier};

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
}

impl Inventory for NodeMemory {
    fn latest(&self) -> u64 {
        self.inner.lock().journal.latest()
    }

    fn changes(&self, after: u64, max: usize, out: &mut Vec<Change>) -> Result<(), Overrun> {
        self.inner.lock().journal.after(after, max, out)
    }

    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Tier)>) -> PageEnd {
        let inner = self.inner.lock();
        let end = inner.slots_used.min(cursor.saturating_add(max as u64));
        for slot in cursor..end {
            if inner.slots[slot as usize].state == SlotState::Sealed {
                let sealed = load_sealed(self.header(slot as u32));
                out.extend(sealed.map(|(_, described)| (BlockId::from_words(described.id), TIER)));
            }
        }
        PageEnd { as_of: inner.journal.latest(), next: (end < inner.slots_used).then_some(end) }
    }

    fn wait(&self, after: u64, timeout: Duration) -> u64 {
        let until = Instant::now() + timeout;
        let mut inner = self.inner.lock();
        while inner.journal.latest() <= after {
            if self.changed.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.journal.latest()
    }

    fn wake(&self) {
        self.changed.notify_all();
    }
}
