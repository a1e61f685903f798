//! SIEVE (Zhang et al., NSDI 2024): first in, first out, with a hand that spares blocks used since it last passed.
//!
//! A use marks its block and moves nothing. The hand walks from the oldest block to the newest and starts over. It
//! takes the marks off marked blocks; the first block without a mark is the victim.

use super::{Eviction, Tag, Use, entry};
use crate::SlotList;
use std::time::Duration;

/// The order of slots by arrival, and the position of the hand.
#[derive(Default)]
pub struct Sieve {
    arrivals: SlotList,
    used: Vec<bool>,
    /// The slot that the hand looks at next; none is the oldest.
    hand: Option<u32>,
}

impl Sieve {
    /// An empty order with memory for slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { arrivals: SlotList::new(slots), used: vec![false; slots as usize], hand: None }
    }

    /// The slot after `slot` in the hand's walk.
    fn next(&self, slot: u32) -> Option<u32> {
        self.arrivals.warmer(slot).or_else(|| self.arrivals.coldest())
    }
}

impl Eviction for Sieve {
    fn insert(&mut self, slot: u32, _tag: Tag, _usage: &Use) {
        self.arrivals.insert(slot);
        *entry(&mut self.used, slot) = false;
    }

    fn touch(&mut self, slot: u32, _usage: &Use) {
        if self.contains(slot) {
            self.used[slot as usize] = true;
        }
    }

    fn remove(&mut self, slot: u32) {
        if self.hand == Some(slot) {
            self.hand = self.arrivals.warmer(slot);
        }
        self.arrivals.remove(slot);
    }

    fn chill(&mut self, slot: u32) {
        if self.contains(slot) {
            self.used[slot as usize] = false;
            self.hand = Some(slot);
        }
    }

    fn contains(&self, slot: u32) -> bool {
        self.arrivals.contains(slot)
    }

    fn victim(&mut self, _at: Duration) -> Option<u32> {
        let mut slot = self.hand.or_else(|| self.arrivals.coldest())?;
        // Ends within two rounds: the first one clears all marks.
        while std::mem::take(&mut self.used[slot as usize]) {
            slot = self.next(slot)?;
        }
        self.hand = Some(slot);
        Some(slot)
    }

    fn after(&self, slot: u32) -> Option<u32> {
        let first = self.hand.or_else(|| self.arrivals.coldest());
        self.next(slot).filter(|next| self.contains(slot) && Some(*next) != first)
    }
}
