//! Making room: what was used longest ago goes first, and no more than the room needs.
//!
//! One-size traffic evicts one block for one block. A block larger than its victim clears a *window*: the victim and the
//! colder of its neighbours, again and again, until the space is long enough. Neighbours were mostly written together, so
//! they are mostly of an age. The cost is that of the blocks evicted; nothing is scanned.

use super::{Inner, Pool, SlotState};
use crate::heap::{FreeRun, Heap, Neighbour, RunId, Side};
use crate::protocol::State;

/// Victims that are tried before a writer has to wait: each may be walled in by blocks that are held.
const ATTEMPTS: usize = 64;

impl Pool {
    /// A free slot with `bytes` of space, and where it starts; `None` when what stands in the way is held.
    pub(super) fn make_room(&self, inner: &mut Inner, bytes: u64, align: u64) -> Option<(u32, u64)> {
        // The first window is as long as the block; if it starts where the block cannot, the next ones have room to align.
        for enough in std::iter::once(bytes).chain(std::iter::repeat_n(Heap::sure_fit(bytes, align), ATTEMPTS)) {
            let Some(&slot) = inner.free_slots.front() else {
                let victim = inner.coldest_evictable()?;
                let _ = self.evict(inner, victim);
                continue;
            };
            let taken = match inner.heap.take(bytes, align, slot) {
                Some(taken) => Some(taken),
                None => self.evict_for(inner, (bytes, enough), align, slot)?,
            };
            if let Some((run, offset)) = taken {
                inner.free_slots.pop_front();
                inner.slots_used = inner.slots_used.max(u64::from(slot) + 1);
                inner.slots[slot as usize].run = Some(run);
                return Some((slot, offset));
            }
        }
        None
    }

    /// Evicts what stands where the coldest block is and takes the space for `user`. `None` when nothing can be evicted,
    /// `Some(None)` when this attempt failed and another may do better.
    fn evict_for(
        &self,
        inner: &mut Inner,
        (bytes, enough): (u64, u64),
        align: u64,
        user: u32,
    ) -> Option<Option<(RunId, u64)>> {
        let victim = inner.coldest_evictable()?;
        let Some(window) = inner.window(victim, bytes, enough) else {
            // Walled in: look at it again only after everything else.
            inner.order.touch(victim);
            return Some(None);
        };
        let freed = window.into_iter().fold(None, |_, slot| self.evict(inner, slot));
        // The window's neighbours are evicted outwards from the victim, so the last run freed is the whole window.
        Some(freed.and_then(|freed| inner.heap.take_from(freed, bytes, align, user)))
    }

    fn evict(&self, inner: &mut Inner, slot: u32) -> Option<FreeRun> {
        let before = inner.stats.block_bytes;
        self.withdraw(inner, slot, State::Free);
        inner.stats.evictions_total += 1;
        inner.stats.evicted_bytes_total += before - inner.stats.block_bytes;
        self.release(inner, slot)
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

    /// The blocks to evict, `victim` first and then outwards, for `enough` bytes in one piece, or between two walls for at
    /// least `bytes`. `None` when held blocks stand in the way.
    fn window(&self, victim: u32, bytes: u64, enough: u64) -> Option<Vec<u32>> {
        let run = |slot: u32| self.slots[slot as usize].run;
        let (mut first, mut last) = (run(victim)?, run(victim)?);
        let mut window = vec![victim];
        let mut len = self.heap.len(first)
            + self.heap.free_beside(first, Side::Before)
            + self.heap.free_beside(last, Side::After);
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
