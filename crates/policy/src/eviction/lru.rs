//! Least recently used first.

use super::{Eviction, Tag, Use};
use crate::SlotList;
use std::time::Duration;

/// An order by last use.
#[derive(Default)]
pub struct Lru(SlotList);

impl Lru {
    /// An empty order with memory for slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self(SlotList::new(slots))
    }
}

impl Eviction for Lru {
    fn insert(&mut self, slot: u32, _tag: Tag, _usage: &Use) {
        self.0.insert(slot);
    }

    fn touch(&mut self, slot: u32, _usage: &Use) {
        self.0.touch(slot);
    }

    fn remove(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    fn chill(&mut self, slot: u32) {
        self.0.chill(slot);
    }

    fn contains(&self, slot: u32) -> bool {
        self.0.contains(slot)
    }

    fn victim(&mut self, _at: Duration) -> Option<u32> {
        self.0.coldest()
    }

    fn after(&self, slot: u32) -> Option<u32> {
        self.0.warmer(slot)
    }
}
