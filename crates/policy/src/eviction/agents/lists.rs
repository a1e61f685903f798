//! Many ordered lists over the same numbers; each number is in at most one list.

/// No number: the end of a list.
const NONE: u32 = u32::MAX;

/// The neighbours of every number in the list that it is in.
#[derive(Default)]
pub(super) struct Links(Vec<(u32, u32)>);

/// One order, from the coldest to the warmest.
#[derive(Clone, Copy)]
pub(super) struct List {
    coldest: u32,
    warmest: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { coldest: NONE, warmest: NONE }
    }
}

const fn some(number: u32) -> Option<u32> {
    if number == NONE { None } else { Some(number) }
}

impl List {
    pub(super) const fn coldest(&self) -> Option<u32> {
        some(self.coldest)
    }

    pub(super) const fn warmest(&self) -> Option<u32> {
        some(self.warmest)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.coldest == NONE
    }
}

impl Links {
    /// Links with memory for the numbers `0..count`.
    pub(super) fn new(count: u32) -> Self {
        Self(vec![(NONE, NONE); count as usize])
    }

    /// Adds a number that is in no list as the warmest.
    pub(super) fn push(&mut self, list: &mut List, number: u32) {
        let length = self.0.len().max(number as usize + 1);
        self.0.resize(length, (NONE, NONE));
        self.0[number as usize] = (list.warmest, NONE);
        match list.warmest {
            NONE => list.coldest = number,
            warmest => self.0[warmest as usize].1 = number,
        }
        list.warmest = number;
    }

    /// Adds a number that is in no list as the coldest.
    pub(super) fn push_coldest(&mut self, list: &mut List, number: u32) {
        let coldest = std::mem::replace(&mut list.coldest, NONE);
        let warmest = std::mem::replace(&mut list.warmest, NONE);
        self.push(list, number);
        if coldest != NONE {
            self.0[number as usize].1 = coldest;
            self.0[coldest as usize].0 = number;
            list.warmest = warmest;
        }
    }

    /// Adds a number that is in no list as the next warmer one of `colder`, which is in this list.
    pub(super) fn push_after(&mut self, list: &mut List, colder: u32, number: u32) {
        let Some(warmer) = self.warmer(colder) else { return self.push(list, number) };
        let length = self.0.len().max(number as usize + 1);
        self.0.resize(length, (NONE, NONE));
        self.0[number as usize] = (colder, warmer);
        self.0[colder as usize].1 = number;
        self.0[warmer as usize].0 = number;
    }

    /// Takes out a number that is in this list.
    pub(super) fn remove(&mut self, list: &mut List, number: u32) {
        let (colder, warmer) = self.0[number as usize];
        match colder {
            NONE => list.coldest = warmer,
            colder => self.0[colder as usize].1 = warmer,
        }
        match warmer {
            NONE => list.warmest = colder,
            warmer => self.0[warmer as usize].0 = colder,
        }
    }

    /// The next number in its list.
    pub(super) fn warmer(&self, number: u32) -> Option<u32> {
        self.0.get(number as usize).and_then(|link| some(link.1))
    }

    /// All numbers of a list, the coldest first.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = u32> {
        std::iter::successors(list.coldest(), |&number| self.warmer(number))
    }
}
