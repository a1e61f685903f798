//! Making room: what the policy says goes first, and no more than the room needs.
//!
//! A policy (`tidepool_policy::eviction`) has an order of blocks and knows nothing of where they lie; here that is known.
//! One-size traffic evicts one block for one block. A block larger than its victim clears a *window*: the victim and the
//! colder of its neighbours, again and again, until the space is long enough. Neighbours were mostly written together, so
//! they are mostly of an age. What cannot be evicted (held, reserved, damaged) is a *wall*. Where walls leave the coldest
//! block too little room, they are put in order once, and the coldest block between walls that are far enough apart is the
//! victim. The cost is that of the blocks evicted, plus a bounded look around; blocks that stay keep their order.
//!
//! Slower tiers are asked about each victim. A block that one of them is about to have is passed over as long as there is room
//! without it: a tier keeps no put waiting. A block that one of them has already moves there by being evicted.

use super::{Inner, NodeMemory};
use crate::heap::{FreeRun, Neighbour, RunId, Side};
use crate::protocol::{State, load_sealed};
use tidepool_types::BlockId;

/// Blocks that are passed over in search of the coldest one between walls that are far enough apart. After so many, any
/// block there will do.
const MOST_SKIPPED: usize = 16 << 10;
/// Blocks that are passed over, for one block that comes, because slower tiers are about to have them. After so many, nobody
/// asks the tiers.
const MOST_SPARED: u32 = 256;

/// The space that a block needs.
#[derive(Clone, Copy)]
struct Need {
    bytes: u64,
    align: u64,
}

impl Need {
    /// Whether there is room from `start` to `end`.
    fn fits(self, (start, end): (u64, u64)) -> bool {
        start.next_multiple_of(self.align) + self.bytes <= end
    }
}

/// How space can be had.
enum Room {
    /// By evicting these, the victim first and then outwards.
    Window(Vec<u32>),
    /// It is free already.
    Free(FreeRun),
}

impl NodeMemory {
    /// A free slot with `bytes` of space, and where it starts; `None` when what stands in the way is held.
    pub(super) fn make_room(&self, inner: &mut Inner, bytes: u64, align: u64) -> Option<(u32, u64)> {
        inner.end_pins();
        inner.sparing = !inner.soft.is_empty();
        let patience = if self.slower.is_empty() { 0 } else { MOST_SPARED };
        inner.patience.set(patience);
        let mut room = self.make_room_for(inner, bytes, align);
        if room.is_none() && inner.patience.replace(0) < patience {
            room = self.make_room_for(inner, bytes, align);
        }
        if room.is_none() && std::mem::take(&mut inner.sparing) {
            inner.patience.set(patience);
            room = self.make_room_for(inner, bytes, align);
            if room.is_none() && inner.patience.replace(0) < patience {
                room = self.make_room_for(inner, bytes, align);
            }
        }
        room
    }

    fn make_room_for(&self, inner: &mut Inner, bytes: u64, align: u64) -> Option<(u32, u64)> {
        if inner.free_slots.is_empty() {
            let coldest = self.coldest(inner)?;
            let _ = self.evict(inner, coldest);
        }
        let slot = *inner.free_slots.front()?;
        let (run, offset) = match inner.heap.take(bytes, align, slot) {
            Some(taken) => taken,
            None => {
                let free = match self.find_room(inner, Need { bytes, align })? {
                    // Evicted outwards from the victim, so the last run freed is the whole window.
                    Room::Window(window) => window.into_iter().fold(None, |_, slot| self.evict(inner, slot))?,
                    Room::Free(free) => free,
                };
                inner.heap.take_from(free, bytes, align, slot)?
            }
        };
        inner.occupy(slot, run);
        Some((slot, offset))
    }

    fn evict(&self, inner: &mut Inner, slot: u32) -> Option<FreeRun> {
        inner.chill_group(slot);
        inner.order.evict(slot);
        let before = inner.stats.block_bytes;
        self.withdraw(inner, slot, State::Free);
        inner.stats.evictions_total += 1;
        inner.stats.evicted_bytes_total += before - inner.stats.block_bytes;
        self.release(inner, slot)
    }

    /// Whether a block may go now: neither a hold nor a slower tier wants it to stay.
    fn may_go(&self, inner: &Inner, slot: u32) -> bool {
        inner.evictable(slot) && !self.is_spared(inner, slot)
    }

    /// Whether a block is passed over because a slower tier is about to have it.
    fn is_spared(&self, inner: &Inner, slot: u32) -> bool {
        let Some(patience) = inner.patience.get().checked_sub(1) else { return false };
        let sealed = load_sealed(self.header(slot));
        let is_spared = sealed.is_some_and(|(_, described)| self.slower.are_busy(&BlockId::from_words(described.id)));
        if is_spared {
            inner.patience.set(patience);
        }
        is_spared
    }

    /// The block that goes next.
    fn coldest(&self, inner: &mut Inner) -> Option<u32> {
        let first = inner.first_in_order();
        inner.in_order(first).find(|&slot| self.may_go(inner, slot))
    }

    /// Room for a block where it costs the least; `None` when held blocks stand everywhere.
    fn find_room(&self, inner: &mut Inner, need: Need) -> Option<Room> {
        let first = inner.first_in_order();
        let inner = &*inner;
        let coldest = inner.in_order(first).find(|&slot| self.may_go(inner, slot));
        if let Some(window) = coldest.and_then(|victim| self.window(inner, victim, need)) {
            return Some(Room::Window(window));
        }
        let gaps = inner.gaps_for(need);
        let longest = gaps.iter().max_by_key(|gap| gap.end - gap.start)?;
        let is_victim = |slot: &u32| {
            let at = inner.slots[*slot as usize].run.map_or(u64::MAX, |run| inner.heap.span(run).0);
            let after = gaps.partition_point(|gap| gap.start <= at);
            let in_gap = inner.evictable(*slot) && gaps[..after].last().is_some_and(|gap| at < gap.end);
            in_gap && !self.is_spared(inner, *slot)
        };
        let victim = inner.in_order(first).take(MOST_SKIPPED).find(is_victim);
        match victim.map_or(longest.first, Neighbour::Used) {
            Neighbour::Used(victim) if self.is_spared(inner, victim) => None,
            Neighbour::Used(victim) => self.window(inner, victim, need).map(Room::Window),
            Neighbour::Free(free) => Some(Room::Free(free)),
            Neighbour::Edge => None,
        }
    }

    /// The blocks to evict, `victim` first and then outwards, for room in one piece; `None` when walls stand in the way.
    fn window(&self, inner: &Inner, victim: u32, need: Need) -> Option<Vec<u32>> {
        let run = |slot: u32| inner.slots[slot as usize].run;
        let (mut first, mut last) = (run(victim)?, run(victim)?);
        let mut window = vec![victim];
        while !need.fits(inner.cleared(first, last)) {
            let before = self.usable(inner, inner.heap.neighbour_past_free(first, Side::Before));
            let after = self.usable(inner, inner.heap.neighbour_past_free(last, Side::After));
            let colder =
                [before, after].into_iter().flatten().min_by_key(|&slot| inner.slots[slot as usize].last_use)?;
            match before == Some(colder) {
                true => first = run(colder)?,
                false => last = run(colder)?,
            }
            window.push(colder);
        }
        Some(window)
    }

    fn usable(&self, inner: &Inner, neighbour: Neighbour) -> Option<u32> {
        match neighbour {
            Neighbour::Used(slot) if self.may_go(inner, slot) => Some(slot),
            _ => None,
        }
    }
}

impl Inner {
    /// A free slot with `bytes` of space, if nothing need be evicted for it.
    pub(super) fn free_room(&mut self, bytes: u64, align: u64) -> Option<(u32, u64)> {
        let slot = *self.free_slots.front()?;
        let (run, offset) = self.heap.take(bytes, align, slot)?;
        self.occupy(slot, run);
        Some((slot, offset))
    }

    /// The first free slot has its space now.
    fn occupy(&mut self, slot: u32, run: RunId) {
        self.free_slots.pop_front();
        self.slots_used = self.slots_used.max(u64::from(slot) + 1);
        self.slots[slot as usize].run = Some(run);
        self.walls.insert(slot);
    }

    /// The first block of the order. One that is in use when its turn comes leaves the order until it is let go: however many
    /// are held, each is met only once.
    fn first_in_order(&mut self) -> Option<u32> {
        let now = (self.clock)();
        loop {
            let slot = self.order.victim(now)?;
            if self.slots[slot as usize].firm_holds == 0 {
                return Some(slot);
            }
            self.order.remove(slot);
        }
    }

    /// All blocks from the first one of the order on, in the order in which they go, those included that are held.
    fn in_order(&self, first: Option<u32>) -> impl Iterator<Item = u32> {
        std::iter::successors(first, |&slot| self.order.after(slot)).chain(self.soft.from_coldest())
    }

    /// From where to where there is free space once all from `first` to `last` is evicted.
    fn cleared(&self, first: RunId, last: RunId) -> (u64, u64) {
        let start = self.heap.span(first).0 - self.heap.free_beside(first, Side::Before);
        (start, self.heap.span(last).1 + self.heap.free_beside(last, Side::After))
    }
}

/// Space between two walls that are next to each other.
struct Gap {
    start: u64,
    end: u64,
    /// What lies first in it.
    first: Neighbour,
}

impl Inner {
    /// The gaps with room for a block, in order.
    fn gaps_for(&self, need: Need) -> Vec<Gap> {
        let held = std::iter::successors(self.walls.coldest(), |&slot| self.walls.warmer(slot));
        let spared = self.soft.from_coldest().filter(|_| self.sparing);
        let walls =
            held.chain(self.looked_at.iter().copied()).chain(spared).filter_map(|slot| self.slots[slot as usize].run);
        let mut walls: Vec<RunId> = walls.collect();
        walls.sort_unstable_by_key(|&run| self.heap.span(run).0);
        let (mut gaps, mut start, mut first) = (Vec::new(), 0, self.heap.first());
        for wall in walls {
            let (end, next) = self.heap.span(wall);
            gaps.push(Gap { start, end, first });
            (start, first) = (next, self.heap.neighbour(wall, Side::After));
        }
        gaps.push(Gap { start, end: self.heap.end(), first });
        gaps.retain(|gap| need.fits((gap.start, gap.end)));
        gaps
    }
}

#[cfg(test)]
mod tests;
