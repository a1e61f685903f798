//! LRU's stack: blocks by last use, with the number of blocks used after each.
//!
//! Every use takes the next position of a line; a block stands at the position of its last use. A tree of sums
//! (Fenwick) over the line counts the blocks behind a position. A full line is compacted.

use crate::hash::ByHash;
use tidepool_trace::Millis;

const SHORTEST: usize = 1 << 10;

/// The stack. Memory is that of its blocks.
pub(crate) struct Stack {
    positions: ByHash<u32>,
    /// The block at each used position, and the time of its use; void where the block has moved on.
    line: Vec<(u64, Millis)>,
    /// Sums over the line; entry 0 is not used.
    sums: Vec<u32>,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self { positions: ByHash::default(), line: Vec::new(), sums: vec![0; SHORTEST + 1] }
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    /// The number of blocks used since `block` was, and the time of that use; none if the stack lacks it.
    pub(crate) fn last_use(&self, block: u64) -> Option<(u64, Millis)> {
        let position = *self.positions.get(&block)? as usize;
        // The blocks up to the position, `block` itself included.
        let (mut index, mut before) = (position + 1, 0);
        while index > 0 {
            before += u64::from(self.sums[index]);
            index &= index - 1;
        }
        Some((self.len() as u64 - before, self.line[position].1))
    }

    /// Makes `block` the last used, at this time.
    pub(crate) fn touch(&mut self, block: u64, at: Millis) {
        if self.line.len() + 1 == self.sums.len() {
            self.close_ranks();
        }
        let position = self.line.len() as u32;
        self.line.push((block, at));
        self.add(position, 1);
        if let Some(before) = self.positions.insert(block, position) {
            self.add(before, u32::MAX);
        }
    }

    /// Keeps only the blocks that `stays` accepts.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(u64) -> bool) {
        self.positions.retain(|block, _| stays(*block));
        self.close_ranks();
    }

    /// Adds modulo 2^32, so that -1 can be added.
    fn add(&mut self, position: u32, value: u32) {
        let mut index = position as usize + 1;
        while index < self.sums.len() {
            self.sums[index] = self.sums[index].wrapping_add(value);
            index += index & index.wrapping_neg();
        }
    }

    /// Compacts the blocks at the front of a line that is at least twice as long as needed.
    fn close_ranks(&mut self) {
        let mut standing = 0;
        for position in 0..self.line.len() {
            let (block, at) = self.line[position];
            if let Some(place) = self.positions.get_mut(&block).filter(|place| **place as usize == position) {
                *place = standing as u32;
                self.line[standing] = (block, at);
                standing += 1;
            }
        }
        self.line.truncate(standing);
        let length = (2 * standing).max(SHORTEST);
        self.sums = vec![0; length + 1];
        // Each entry holds the sum of as many positions as its lowest bit says.
        for index in 1..=length {
            self.sums[index] += u32::from(index <= standing);
            let above = index + (index & index.wrapping_neg());
            if above <= length {
                self.sums[above] += self.sums[index];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distances_are_those_in_a_naive_list(
            uses in prop::collection::vec(0..40_u64, 0..4000), dropped in 0..40_u64, when in 0..4000_usize,
        ) {
            let (mut stack, mut naive) = (Stack::new(), Vec::<(u64, u64)>::new());
            for (time, block) in uses.into_iter().enumerate() {
                if time == when {
                    stack.retain(|block| block >= dropped);
                    naive.retain(|(block, _)| *block >= dropped);
                }
                let place = naive.iter().position(|(known, _)| *known == block);
                let distance = stack.last_use(block).map(|(distance, at)| (distance, at.0));
                prop_assert_eq!(distance, place.map(|place| ((naive.len() - 1 - place) as u64, naive[place].1)));
                stack.touch(block, Millis(time as u64));
                naive.retain(|(known, _)| *known != block);
                naive.push((block, time as u64));
                prop_assert_eq!(stack.len(), naive.len());
            }
        }
    }
}
