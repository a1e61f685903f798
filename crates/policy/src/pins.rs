//! Soft pins: pinned blocks are evicted last, by last use, until their pins end.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The softly pinned slots, ordered by last use, with the ends of their pins.
#[derive(Debug, Default)]
pub struct SoftPins {
    pinned: HashMap<u32, (u64, Duration)>,
    by_use: BTreeSet<(u64, u32)>,
    by_end: BTreeSet<(Duration, u32)>,
}

impl SoftPins {
    /// Pins `slot`, which was last used at `used`, until `until`.
    pub fn insert(&mut self, slot: u32, used: u64, until: Duration) {
        self.remove(slot);
        self.pinned.insert(slot, (used, until));
        self.by_use.insert((used, slot));
        self.by_end.insert((until, slot));
    }

    /// Takes `slot` out; does nothing when it is not in.
    pub fn remove(&mut self, slot: u32) {
        if let Some((used, until)) = self.pinned.remove(&slot) {
            self.by_use.remove(&(used, slot));
            self.by_end.remove(&(until, slot));
        }
    }

    /// Notes a use of `slot`; does nothing when it is not in.
    pub fn touch(&mut self, slot: u32, used: u64) {
        if let Some((before, _)) = self.pinned.get_mut(&slot) {
            self.by_use.remove(&(*before, slot));
            self.by_use.insert((used, slot));
            *before = used;
        }
    }

    /// Whether `slot` is in.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        self.pinned.contains_key(&slot)
    }

    /// Whether no slot is pinned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pinned.is_empty()
    }

    /// The pinned slots, the least recently used first.
    pub fn from_coldest(&self) -> impl Iterator<Item = u32> {
        self.by_use.iter().map(|(_, slot)| *slot)
    }

    /// The slot that goes after `slot`; `None` behind the last one, and when `slot` is not in.
    #[must_use]
    pub fn after(&self, slot: u32) -> Option<u32> {
        let (used, _) = self.pinned.get(&slot)?;
        self.by_use.range((*used, slot)..).nth(1).map(|(_, next)| *next)
    }

    /// Takes out a slot whose pin has ended by `now`.
    pub fn pop_ended(&mut self, now: Duration) -> Option<u32> {
        let (_, slot) = *self.by_end.first().filter(|(until, _)| *until <= now)?;
        self.remove(slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_slots_go_by_use_and_leave_when_their_pins_end() {
        let at = Duration::from_secs;
        let mut pins = SoftPins::default();
        pins.insert(1, 10, at(5));
        pins.insert(2, 11, at(3));
        pins.insert(3, 12, at(9));
        pins.touch(1, 13);
        pins.touch(7, 14);
        assert_eq!(pins.from_coldest().collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!([2, 3, 1, 7].map(|slot| pins.after(slot)), [Some(3), Some(1), None, None]);
        assert_eq!(pins.pop_ended(at(2)), None);
        assert_eq!(pins.pop_ended(at(5)), Some(2));
        assert_eq!(pins.pop_ended(at(5)), Some(1));
        assert_eq!(pins.pop_ended(at(5)), None);
        assert!(pins.contains(3));
        pins.remove(3);
        assert!(pins.is_empty());
    }
}
