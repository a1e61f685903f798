//! Leases: a block that was read or found a moment ago is not removed, unless the remover insists.
//!
//! Reads are many and removals few, so noting a lease is cheap and judging is not: leases lie in the order of noting,
//! and a judgement looks at all of them. The table is bounded: it drops expired leases first, then the oldest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tidepool_types::BlockId;

/// Up to this many blocks are compared with every lease one by one; for more, a table of them pays.
const FEW: usize = 8;

/// A bounded table of leases. Times count from any fixed moment.
#[derive(Debug)]
pub struct Leases {
    noted: VecDeque<(BlockId, Duration)>,
    most: usize,
}

impl Leases {
    /// A table of at most `most` leases.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { noted: VecDeque::new(), most }
    }

    /// Leases `ids` until `until`.
    pub fn note(&mut self, ids: impl IntoIterator<Item = BlockId>, until: Duration, now: Duration) {
        self.note_each(ids.into_iter().map(|id| (id, until)), now);
    }

    /// Leases each block until its own time.
    pub fn note_each(&mut self, leases: impl IntoIterator<Item = (BlockId, Duration)>, now: Duration) {
        while self.noted.front().is_some_and(|(_, until)| *until <= now) {
            self.noted.pop_front();
        }
        self.noted.extend(leases);
        let over = self.noted.len().saturating_sub(self.most);
        self.noted.drain(..over);
    }

    /// For each of `asked`, whether it is leased.
    #[must_use]
    pub fn leased(&self, asked: &[BlockId], now: Duration) -> Vec<bool> {
        let live = self.noted.iter().filter(|(_, until)| *until > now).map(|(id, _)| id);
        let mut leased = vec![false; asked.len()];
        if asked.len() <= FEW {
            live.for_each(|id| leased.iter_mut().zip(asked).for_each(|(leased, asked)| *leased |= asked == id));
            return leased;
        }
        let mut places: HashMap<&BlockId, Vec<usize>> = HashMap::with_capacity(asked.len());
        asked.iter().enumerate().for_each(|(place, id)| places.entry(id).or_default().push(place));
        // A block that was found needs no second match.
        live.filter_map(|id| places.remove(id)).flatten().for_each(|place| leased[place] = true);
        leased
    }

    /// Number of leases, including expired ones that the table has not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.noted.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u64) -> BlockId {
        BlockId::from_words([n, !n])
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_full_table_loses_the_oldest_first() {
        let mut leases = Leases::new(3);
        leases.note((0..5).map(id), at(10), at(0));
        assert_eq!(leases.len(), 3);
        assert_eq!(leases.leased(&[id(1), id(2), id(4)], at(9)), [false, true, true]);
        leases.note([id(7)], at(30), at(20));
        assert_eq!(leases.len(), 1, "expired leases make room");
    }

    proptest! {
        #[test]
        fn a_block_is_leased_until_its_latest_lease_ends(
            notes in prop::collection::vec((0..20u64, 1..9u64, 0..3u64), 0..80),
            later in 0..12u64,
        ) {
            let (mut leases, mut naive, mut now) = (Leases::new(1000), HashMap::new(), 0);
            for (block, ttl, step) in notes {
                now += step;
                leases.note([id(block)], at(now + ttl), at(now));
                let until: &mut u64 = naive.entry(block).or_default();
                *until = (*until).max(now + ttl);
            }
            now += later;
            let expected: Vec<bool> = (0..20).map(|block| naive.get(&block).is_some_and(|until| *until > now)).collect();
            let blocks: Vec<BlockId> = (0..20).map(id).collect();
            prop_assert_eq!(leases.leased(&blocks, at(now)), expected.clone());
            let few: Vec<bool> = blocks.chunks(4).flat_map(|some| leases.leased(some, at(now))).collect();
            prop_assert_eq!(few, expected);
        }
    }
}
