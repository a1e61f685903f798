//! Least recently used, as an intrusive list over slot numbers: every operation takes constant time and no memory.

/// No slot: the end of the list.
const NONE: u32 = u32::MAX;

/// A slot that is not in the list points at itself.
#[derive(Clone, Copy)]
struct Link {
    colder: u32,
    warmer: u32,
}

/// An order of slots by last use.
pub struct Lru {
    links: Vec<Link>,
    coldest: u32,
    warmest: u32,
}

impl Lru {
    /// An empty order over slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let links = (0..slots).map(|slot| Link { colder: slot, warmer: slot }).collect();
        Self { links, coldest: NONE, warmest: NONE }
    }

    /// Whether the order holds `slot`.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        self.links[slot as usize].colder != slot
    }

    /// Adds `slot` as the most recently used. It must not be in the order.
    pub fn insert(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot), "slot {slot} is in the order already");
        self.links[slot as usize] = Link { colder: self.warmest, warmer: NONE };
        match self.warmest {
            NONE => self.coldest = slot,
            warmest => self.links[warmest as usize].warmer = slot,
        }
        self.warmest = slot;
    }

    /// Makes `slot` the least recently used; nothing happens when it is not in.
    pub fn chill(&mut self, slot: u32) {
        if !self.contains(slot) || self.coldest == slot {
            return;
        }
        self.remove(slot);
        // Something else is in, or this one would have been the coldest.
        self.links[slot as usize] = Link { colder: NONE, warmer: self.coldest };
        self.links[self.coldest as usize].colder = slot;
        self.coldest = slot;
    }

    /// Takes `slot` out; nothing happens when it is not in.
    pub fn remove(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let Link { colder, warmer } = self.links[slot as usize];
        match colder {
            NONE => self.coldest = warmer,
            colder => self.links[colder as usize].warmer = warmer,
        }
        match warmer {
            NONE => self.warmest = colder,
            warmer => self.links[warmer as usize].colder = colder,
        }
        self.links[slot as usize] = Link { colder: slot, warmer: slot };
    }

    /// Makes `slot` the most recently used; nothing happens when it is not in.
    pub fn touch(&mut self, slot: u32) {
        if self.contains(slot) && self.warmest != slot {
            self.remove(slot);
            self.insert(slot);
        }
    }

    /// The least recently used slot.
    #[must_use]
    pub fn coldest(&self) -> Option<u32> {
        (self.coldest != NONE).then_some(self.coldest)
    }

    /// The next slot after `slot`, towards the most recently used.
    #[must_use]
    pub fn warmer(&self, slot: u32) -> Option<u32> {
        let warmer = self.links[slot as usize].warmer;
        (self.contains(slot) && warmer != NONE).then_some(warmer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(lru: &Lru) -> Vec<u32> {
        std::iter::successors(lru.coldest(), |&slot| lru.warmer(slot)).collect()
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_naive_list(operations in prop::collection::vec((0..4u8, 0..8u32), 0..200)) {
            let (mut lru, mut naive) = (Lru::new(8), Vec::new());
            for (operation, slot) in operations {
                let held = naive.contains(&slot);
                match operation {
                    0 if !held => { lru.insert(slot); naive.push(slot); }
                    1 if held => { lru.touch(slot); naive.retain(|&s| s != slot); naive.push(slot); }
                    3 if held => { lru.chill(slot); naive.retain(|&s| s != slot); naive.insert(0, slot); }
                    2 => { lru.remove(slot); naive.retain(|&s| s != slot); }
                    _ => {}
                }
                prop_assert_eq!(order(&lru), naive.clone());
            }
        }
    }
}
