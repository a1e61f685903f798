//! Making room: what was used longest ago goes first, and no more than the room needs.
//!
//! One-size traffic evicts one block for one block. A block larger than its victim clears a *window*: the victim and the
//! colder of its neighbours, again and again, until the space is long enough. Neighbours were mostly written together, so
//! they are mostly of an age. The cost is that of the blocks evicted; nothing is scanned.

use super::{Inner, Pool, SlotState};
use crate::heap::{Heap, Neighbour, Side};
use crate::protocol::State;

/// Victims that are tried before a writer has to wait: each may be walled in by blocks that are held.
const ATTEMPTS: usize = 64;

impl Pool {
    /// A free slot with `bytes` of space, and where it starts; `None` when what stands in the way is held.
    pub(super) fn make_room(&self, inner: &mut Inner, bytes: u64, align: u64) -> Option<(u32, u64)> {
        for _ in 0..ATTEMPTS {
            let Some(&slot) = inner.free_slots.front() else {
                let victim = inner.coldest_evictable()?;
                self.evict(inner, victim);
                continue;
            };
            if let Some((run, offset)) = inner.heap.take(bytes, align, slot) {
                inner.free_slots.pop_front();
                inner.slots[slot as usize].run = Some(run);
                return Some((slot, offset));
            }
            let victim = inner.coldest_evictable()?;
            match inner.window(victim, bytes, Heap::sure_fit(bytes, align)) {
                Some(window) => window.into_iter().for_each(|slot| self.evict(inner, slot)),
                // Walled in: look at it again only after everything else.
                None => inner.order.touch(victim),
            }
        }
        None
    }

    fn evict(&self, inner: &mut Inner, slot: u32) {
        let before = inner.stats.block_bytes;
        self.withdraw(inner, slot, State::Free);
        inner.stats.evictions_total += 1;
        inner.stats.evicted_bytes_total += before - inner.stats.block_bytes;
        self.release(inner, slot);
    }
}

impl Inner {
    fn evictable(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.state == SlotState::Sealed && slot.holds == 0
    }

    /// The coldest block that nobody holds. Held ones are in use, so they are moved to the warm end on the way.
    fn coldest_evictable(&mut self) -> Option<u32> {
        for _ in 0..ATTEMPTS {
            let coldest = self.order.coldest()?;
            if self.evictable(coldest) {
                return Some(coldest);
            }
            self.order.touch(coldest);
        }
        None
    }

    /// The blocks to evict, `victim` among them, for at least `enough` bytes in one piece; just `victim` when that
    /// alone may do for `bytes`. `None` when held blocks stand in the way.
    fn window(&self, victim: u32, bytes: u64, enough: u64) -> Option<Vec<u32>> {
        let run = |slot: u32| self.slots[slot as usize].run;
        let (mut first, mut last) = (run(victim)?, run(victim)?);
        let mut window = vec![victim];
        let mut len = self.heap.len(first)
            + self.heap.free_beside(first, Side::Before)
            + self.heap.free_beside(last, Side::After);
        if len >= bytes {
            return Some(window);
        }
        while len < enough {
            let before = self.usable(self.heap.neighbour_past_free(first, Side::Before));
            let after = self.usable(self.heap.neighbour_past_free(last, Side::After));
            let colder = [before, after].into_iter().flatten().min_by_key(|&slot| self.slots[slot as usize].last_use);
            let Some(slot) = colder else {
                // Between two walls: enough only if the plain length is.
                return (len >= bytes).then_some(window);
            };
            let side = if before == Some(slot) { Side::Before } else { Side::After };
            let run = run(slot)?;
            match side {
                Side::Before => first = run,
                Side::After => last = run,
            }
            len += self.heap.len(run) + self.heap.free_beside(run, side);
            window.push(slot);
        }
        Some(window)
    }

    fn usable(&self, neighbour: Neighbour) -> Option<u32> {
        match neighbour {
            Neighbour::Used(slot) if self.evictable(slot) => Some(slot),
            _ => None,
        }
    }
}
