//! The table: 16-byte id -> holders, about 35 bytes a block.
//!
//! 4,096 segments under 256 locks. Every operation takes one lock at a time, for one group of a batch or for one segment
//! of a walk: a look-up never waits for a whole resize, a whole sweep or a whole load.

mod arena;
mod batch;
mod holder;
mod prefetch;
mod segment;
mod shard;
mod slots;
#[cfg(test)]
mod tests;

pub use holder::{Holder, StreamSlot};
pub use slots::SlotSet;

use arena::Arena;
use batch::{Batch, Item, Raw, segment_of};
use holder::Packed;
use prefetch::prefetch;
use segment::{Hasher, INLINE, SEGMENT_BITS};
use shard::Shard;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidepool_locks::RwLock;
use tidepool_types::{BlockId, Tier};

const SEGMENTS: usize = 1 << SEGMENT_BITS;
const SHARDS: usize = 256;
const SEGMENTS_PER_SHARD: usize = SEGMENTS / SHARDS;

/// Chunks kept in stock for growing segments.
const STOCK: usize = 512;

/// How many searches, or groups of them, ahead of the current one memory is asked for.
const AHEAD: usize = 16;

/// What the table remembers about one id: a copy of its entry's holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found([Packed; INLINE]);

impl Found {
    const NOTHING: Self = Self([Packed::NONE; INLINE]);

    /// Whether anybody has claimed to hold the block.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.0[0].is_none()
    }

    /// The holders that lie in the entry itself.
    pub fn inline(&self) -> impl Iterator<Item = Holder> + '_ {
        self.0.iter().filter_map(|holder| holder.get())
    }

    /// Whether there are more holders than the entry has room for: ask [`Index::holders`].
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.0.contains(&Packed::OVERFLOW)
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct Index {
    shards: Box<[RwLock<Shard>]>,
    /// Bytes from a lock to the shard behind it.
    behind_lock: usize,
    arena: Arc<Arena>,
    hasher: Hasher,
    live: SlotSet,
    blocks: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        let random = RandomState::new();
        let arena = Arc::new(Arena::default());
        let shards: Box<[_]> = (0..SHARDS).map(|_| RwLock::new(Shard::new(&arena))).collect();
        let behind_lock = std::ptr::from_ref(&*shards[0].read()).addr() - std::ptr::from_ref(&shards[0]).addr();
        Self {
            shards,
            behind_lock,
            arena,
            hasher: Hasher::new([random.hash_one(0), random.hash_one(1)]),
            live: SlotSet::default(),
            blocks: AtomicU64::new(0),
        }
    }
}

impl Index {
    /// Ids in the table, those included that only streams not yet swept have named.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// The slots whose entries count. Entries of other slots are ignored, overwritten, and swept.
    #[must_use]
    pub const fn live(&self) -> &SlotSet {
        &self.live
    }

    /// What the table remembers about each of `ids`, in their order.
    #[must_use]
    pub fn fetch(&self, ids: &[Raw]) -> Vec<Found> {
        let mut found = vec![Found::NOTHING; ids.len()];
        let batch = Batch::new(ids, self.hasher);
        // The next shard is locked, and its memory asked for, before the current one is searched. Nobody who changes the
        // table holds one lock while waiting for another, so holding two cannot deadlock.
        let open = |(shard, group): (usize, &'_ [Item])| {
            let shard = self.shards[shard].read();
            group.iter().take(AHEAD).for_each(|item| shard.prefetch(*item));
            shard
        };
        let mut groups = batch.groups().peekable();
        let mut next = groups.peek().copied().map(open);
        while let (Some(shard), Some((_, group))) = (next.take(), groups.next()) {
            next = groups.peek().copied().map(open);
            for (n, item) in group.iter().enumerate() {
                if let Some(later) = group.get(n + AHEAD) {
                    shard.prefetch(*later);
                }
                if let Some(entry) = shard.segments[item.segment()].get(item.id) {
                    found[item.index as usize] = Found(entry.holders);
                }
            }
        }
        found
    }

    /// All holders of one block, however many.
    #[must_use]
    pub fn holders(&self, id: BlockId) -> Vec<Holder> {
        let id = self.hasher.mix(id.words());
        let segment = segment_of(id.hash);
        let shard = self.shards[segment / SEGMENTS_PER_SHARD].read();
        match shard.segments[segment % SEGMENTS_PER_SHARD].get(id) {
            Some(entry) => shard.holders_of(entry).collect(),
            None => Vec::new(),
        }
    }

    /// Applies what the stream in `slot` says about `ids`, in their order: each is held in the tier at the same place
    /// of `tiers`, or, for `None`, not held.
    pub fn apply(&self, slot: StreamSlot, ids: &[Raw], tiers: impl Fn(usize) -> Option<Tier>) {
        // Segments rarely grow by more than this at once; if they do, they wait for memory under their lock.
        self.arena.stock_up(STOCK);
        let batch = Batch::new(ids, self.hasher);
        // Of a short group every search waits for memory, unless that is asked for before the group's turn. Where a search
        // begins is only known from memory that is itself far away: first that is asked for, then this.
        let is_short = |(_, group): &(usize, &[Item])| group.len() < AHEAD;
        let (mut far, mut near) = (batch.groups(), batch.groups());
        far.by_ref().take(2 * AHEAD).filter(is_short).for_each(|group| self.approach(group));
        near.by_ref().take(AHEAD).filter(is_short).for_each(|group| self.peek(group));
        for (shard, group) in batch.groups() {
            far.next().filter(is_short).into_iter().for_each(|later| self.approach(later));
            near.next().filter(is_short).into_iter().for_each(|later| self.peek(later));
            let mut shard = self.shards[shard].write();
            let before = shard.len();
            group.iter().take(AHEAD).for_each(|item| shard.prefetch(*item));
            for (n, item) in group.iter().enumerate() {
                if let Some(later) = group.get(n + AHEAD) {
                    shard.prefetch(*later);
                }
                match tiers(item.index as usize) {
                    Some(tier) => shard.add(*item, Holder { slot, tier }, &self.live),
                    None => shard.remove(*item, slot),
                }
            }
            self.count(before, shard.len());
        }
    }

    /// Takes every entry of `gone` out of one step's part of the table; there are [`Index::STEPS`] steps.
    pub fn sweep(&self, step: usize, gone: impl Fn(StreamSlot) -> bool) {
        let mut shard = self.shards[step / SEGMENTS_PER_SHARD].write();
        let before = shard.len();
        shard.sweep(step % SEGMENTS_PER_SHARD, gone);
        self.count(before, shard.len());
    }

    /// Shows `see` every holder in one step's part of the table; there are [`Index::STEPS`] steps. How many ids the part has.
    pub fn look_through(&self, step: usize, mut see: impl FnMut(BlockId, Holder)) -> usize {
        let shard = self.shards[step / SEGMENTS_PER_SHARD].read();
        let segment = &shard.segments[step % SEGMENTS_PER_SHARD];
        for entry in segment.entries() {
            let id = BlockId::from_words(self.hasher.unmix(entry.id));
            shard.holders_of(entry).for_each(|holder| see(id, holder));
        }
        segment.len()
    }

    /// Steps of a whole walk through the table; each holds one lock for a few microseconds.
    pub const STEPS: usize = SEGMENTS;

    fn count(&self, before: usize, after: usize) {
        // Two's complement: adding the wrapped difference subtracts when there are fewer.
        self.blocks.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
    }

    /// Asks for the places at which searches for the ids of a group begin, if nobody is changing them.
    fn peek(&self, (shard, group): (usize, &[Item])) {
        if let Some(shard) = self.shards[shard].try_read() {
            group.iter().for_each(|item| shard.prefetch(*item));
        }
    }

    /// Asks for the memory that tells where those places are.
    fn approach(&self, (shard, group): (usize, &[Item])) {
        let lock = std::ptr::from_ref(&self.shards[shard]);
        prefetch(lock);
        let shard = lock.wrapping_byte_add(self.behind_lock).cast();
        group.iter().for_each(|item| prefetch(Shard::segment_at(shard, item.segment())));
    }
}
