//! S3-FIFO (Yang et al., SOSP 2023): a small queue for new blocks, a main queue for blocks that were used again, and a
//! memory of blocks that left the small one.
//!
//! Most blocks are used once. New blocks wait in the small queue, a tenth of all. Blocks used again there move to the
//! main queue; the others are evicted and remembered by name, as many names as there are blocks. A block that comes
//! back while its name is remembered enters the main queue at once. In the main queue, used blocks go round again, once
//! for each of up to three uses.

use super::{Eviction, Tag, Use, entry};
use crate::SlotList;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// One block in this many is in the small queue.
const SMALL_SHARE: u32 = 10;
/// The most uses that are counted for a block.
const MOST_USES: u8 = 3;

/// The order of eviction: both queues, and the names of blocks evicted from the small one.
#[derive(Default)]
pub struct S3Fifo {
    small: SlotList,
    main: SlotList,
    blocks: Vec<Block>,
    gone: Ghosts,
}

/// The block in a slot.
#[derive(Clone, Default)]
struct Block {
    tag: u64,
    uses: u8,
}

impl S3Fifo {
    /// An empty order with memory for slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let (small, main) = (SlotList::new(slots), SlotList::new(slots));
        Self { small, main, blocks: vec![Block::default(); slots as usize], gone: Ghosts::default() }
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    /// Whether the small queue has more than its share.
    fn small_goes_first(&self) -> bool {
        self.main.is_empty() || self.small.len() > self.len() / SMALL_SHARE
    }

    /// The queue of the next victim, and then the other queue.
    fn in_order(&self) -> (&SlotList, &SlotList) {
        if self.small_goes_first() { (&self.small, &self.main) } else { (&self.main, &self.small) }
    }

    fn uses(&mut self, slot: u32) -> &mut u8 {
        &mut self.blocks[slot as usize].uses
    }

    /// The oldest block of the small queue. A used block moves to the main queue instead, and there is no victim yet.
    fn victim_of_small(&mut self) -> Option<u32> {
        let slot = self.small.coldest()?;
        if *self.uses(slot) == 0 {
            return Some(slot);
        }
        *self.uses(slot) = 0;
        self.small.remove(slot);
        self.main.insert(slot);
        None
    }

    /// The oldest block of the main queue. A used block goes round again instead, and there is no victim yet.
    fn victim_of_main(&mut self) -> Option<u32> {
        let slot = self.main.coldest()?;
        if *self.uses(slot) == 0 {
            return Some(slot);
        }
        *self.uses(slot) -= 1;
        self.main.touch(slot);
        None
    }
}

impl Eviction for S3Fifo {
    fn insert(&mut self, slot: u32, tag: Tag, _usage: &Use) {
        *entry(&mut self.blocks, slot) = Block { tag: tag.0, uses: 0 };
        if self.gone.forget(tag.0) { self.main.insert(slot) } else { self.small.insert(slot) }
    }

    fn touch(&mut self, slot: u32, _usage: &Use) {
        if self.contains(slot) {
            let uses = self.uses(slot);
            *uses = MOST_USES.min(*uses + 1);
        }
    }

    fn remove(&mut self, slot: u32) {
        self.small.remove(slot);
        self.main.remove(slot);
    }

    fn evict(&mut self, slot: u32) {
        if self.small.contains(slot) {
            self.gone.remember(self.blocks[slot as usize].tag, self.len() as usize);
        }
        self.remove(slot);
    }

    fn chill(&mut self, slot: u32) {
        if self.contains(slot) {
            self.remove(slot);
            *self.uses(slot) = 0;
            let first = if self.small_goes_first() { &mut self.small } else { &mut self.main };
            first.insert(slot);
            first.chill(slot);
        }
    }

    fn contains(&self, slot: u32) -> bool {
        self.small.contains(slot) || self.main.contains(slot)
    }

    fn victim(&mut self, _at: Duration) -> Option<u32> {
        // Every step without a victim moves a block to the main queue or takes away one of its uses.
        while self.len() > 0 {
            let victim = if self.small_goes_first() { self.victim_of_small() } else { self.victim_of_main() };
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    fn after(&self, slot: u32) -> Option<u32> {
        let (first, second) = self.in_order();
        let next = if first.contains(slot) { first.warmer(slot).or_else(|| second.coldest()) } else { None };
        next.or_else(|| second.warmer(slot))
    }
}

/// Names of blocks that are gone, in the order in which they went.
#[derive(Default)]
struct Ghosts {
    order: VecDeque<(u64, u64)>,
    /// When each went; an entry of `order` with another time is void.
    known: HashMap<u64, u64>,
    clock: u64,
}

impl Ghosts {
    /// Remembers `tag`, and no more than `most`.
    fn remember(&mut self, tag: u64, most: usize) {
        self.clock += 1;
        self.order.push_back((tag, self.clock));
        self.known.insert(tag, self.clock);
        while self.known.len() > most {
            let Some((tag, at)) = self.order.pop_front() else { return };
            if self.known.get(&tag) == Some(&at) {
                self.known.remove(&tag);
            }
        }
        if self.order.len() > 2 * most {
            self.order.retain(|(tag, at)| self.known.get(tag) == Some(at));
        }
    }

    /// Forgets `tag`; whether it was remembered.
    fn forget(&mut self, tag: u64) -> bool {
        self.known.remove(&tag).is_some()
    }
}
