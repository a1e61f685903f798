//! A set of stream slots that any thread may read and change.

use super::holder::StreamSlot;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = StreamSlot::COUNT.div_ceil(64);

/// One bit per slot.
#[derive(Debug)]
pub struct SlotSet([AtomicU64; WORDS]);

impl Default for SlotSet {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl SlotSet {
    /// Whether `slot` is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, slot: StreamSlot) -> bool {
        self.0[slot.index() / 64].load(Ordering::Acquire) >> (slot.index() % 64) & 1 == 1
    }

    /// Puts `slot` into the set.
    pub fn insert(&self, slot: StreamSlot) {
        self.0[slot.index() / 64].fetch_or(1 << (slot.index() % 64), Ordering::AcqRel);
    }

    /// Takes `slot` out of the set.
    pub fn remove(&self, slot: StreamSlot) {
        self.0[slot.index() / 64].fetch_and(!(1 << (slot.index() % 64)), Ordering::AcqRel);
    }
}
