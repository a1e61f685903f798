//! Groups a batch of ids by the lock that guards them, so that each lock is taken once.

use super::segment::{Hasher, Mixed, SEGMENT_BITS};
use super::{SEGMENTS_PER_SHARD, SHARDS};
use tidepool_types::BlockId;

/// A packed id.
pub(super) type Raw = [u8; BlockId::LEN];

/// One id of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Item {
    pub(super) id: Mixed,
    /// Where in the batch.
    pub(super) index: u32,
}

impl Item {
    /// The segment of the shard that the id belongs to.
    #[inline]
    pub(super) const fn segment(self) -> usize {
        segment_of(self.id.hash) % SEGMENTS_PER_SHARD
    }
}

/// The segment, counted over the whole table, that a hash belongs to.
#[inline]
pub(super) const fn segment_of(hash: u64) -> usize {
    (hash >> (64 - SEGMENT_BITS)) as usize
}

/// A batch in the order of its shards; ids of one shard keep the order they came in.
pub(super) struct Batch {
    items: Vec<Item>,
    ends: [u32; SHARDS],
}

impl Batch {
    pub(super) fn new(ids: &[Raw], hasher: Hasher) -> Self {
        let shard_of = |hash: u64| segment_of(hash) / SEGMENTS_PER_SHARD;
        let mixed: Vec<Mixed> = ids.iter().map(|id| hasher.mix(BlockId::from_bytes(*id).words())).collect();
        let mut ends = [0u32; SHARDS];
        for id in &mixed {
            ends[shard_of(id.hash)] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        // `ends` now says where each shard starts, and moves to where it ends as the shard fills up.
        let mut items = vec![Item::default(); mixed.len()];
        for (index, id) in mixed.into_iter().enumerate() {
            let place = &mut ends[shard_of(id.hash)];
            items[*place as usize] = Item { id, index: index as u32 };
            *place += 1;
        }
        Self { items, ends }
    }

    /// The shards that have ids in the batch, each with its ids.
    pub(super) fn groups(&self) -> impl Iterator<Item = (usize, &[Item])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends).map(|(start, end)| start as usize..*end as usize);
        ranges.map(|range| &self.items[range]).enumerate().filter(|(_, group)| !group.is_empty())
    }
}
