//! An order of slots, as an intrusive list over their numbers. Every operation takes constant time; only a slot number
//! higher than any before takes memory.

/// No slot: the end of the list.
const NONE: u32 = u32::MAX;

/// A slot that is not in the list points at itself.
#[derive(Clone, Copy)]
struct Link {
    colder: u32,
    warmer: u32,
}

impl Link {
    const fn alone(slot: u32) -> Self {
        Self { colder: slot, warmer: slot }
    }
}

/// A list of slots, by default in the order of their last uses.
pub struct SlotList {
    links: Vec<Link>,
    coldest: u32,
    warmest: u32,
    len: u32,
}

impl Default for SlotList {
    fn default() -> Self {
        Self::new(0)
    }
}

impl SlotList {
    /// An empty order with memory for slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { links: (0..slots).map(Link::alone).collect(), coldest: NONE, warmest: NONE, len: 0 }
    }

    /// Number of slots in the list.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether no slot is in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the order holds `slot`.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        self.links.get(slot as usize).is_some_and(|link| link.colder != slot)
    }

    /// Adds `slot` as the most recently used. It must not be in the order.
    pub fn insert(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot), "slot {slot} is in the order already");
        let known = self.links.len() as u32;
        self.links.extend((known..=slot).map(Link::alone));
        self.links[slot as usize] = Link { colder: self.warmest, warmer: NONE };
        match self.warmest {
            NONE => self.coldest = slot,
            warmest => self.links[warmest as usize].warmer = slot,
        }
        self.warmest = slot;
        self.len += 1;
    }

    /// Makes `slot` the least recently used; does nothing when it is not in.
    pub fn chill(&mut self, slot: u32) {
        if !self.contains(slot) || self.coldest == slot {
            return;
        }
        self.remove(slot);
        // The list has another slot, or `slot` would be the coldest already.
        self.links[slot as usize] = Link { colder: NONE, warmer: self.coldest };
        self.links[self.coldest as usize].colder = slot;
        self.coldest = slot;
        self.len += 1;
    }

    /// Takes `slot` out; does nothing when it is not in.
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
        self.links[slot as usize] = Link::alone(slot);
        self.len -= 1;
    }

    /// Makes `slot` the most recently used; does nothing when it is not in.
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

    /// The slot after `slot`, towards the most recently used.
    #[must_use]
    pub fn warmer(&self, slot: u32) -> Option<u32> {
        let link = self.links.get(slot as usize)?;
        (link.colder != slot && link.warmer != NONE).then_some(link.warmer)
    }

    /// All slots, the least recently used first.
    pub fn from_coldest(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.coldest(), |&slot| self.warmer(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_a_naive_list(operations in prop::collection::vec((0..4u8, 0..8u32), 0..200)) {
            let (mut list, mut naive) = (SlotList::new(4), Vec::new());
            for (operation, slot) in operations {
                let held = naive.contains(&slot);
                match operation {
                    0 if !held => { list.insert(slot); naive.push(slot); }
                    1 if held => { list.touch(slot); naive.retain(|&s| s != slot); naive.push(slot); }
                    3 if held => { list.chill(slot); naive.retain(|&s| s != slot); naive.insert(0, slot); }
                    2 => { list.remove(slot); naive.retain(|&s| s != slot); }
                    _ => {}
                }
                prop_assert_eq!(list.from_coldest().collect::<Vec<_>>(), naive.clone());
                prop_assert_eq!(list.len() as usize, naive.len());
            }
        }
    }
}
