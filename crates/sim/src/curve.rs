//! LRU's hit rate at every size of the cache, in one pass over the trace.
//!
//! A cache of `n` blocks holds a block if fewer than `n` others were used since its last use: that number is its
//! distance in LRU's stack. A hit needs all blocks before it too, so a block counts with the largest distance up to it.
//! The curve is exact while there are no more distinct blocks than the builder may track.
//!
//! Past that, the builder samples (SHARDS): it follows only blocks whose hashes end in a zero bit, then in two, and so
//! on. A sampled block stands for `2^bits` blocks, and its distance counts `2^bits` times. The number of all references
//! is known exactly; the difference to the samples' sum counts as hits at distance zero, since a few blocks that are
//! used all the time cause it. Samples are split into groups, and the spread of the groups' curves estimates the error.

use crate::hash::spread;
use crate::stack::Stack;
use crate::{Blocks, Prefill, Quantiles};
use tidepool_trace::Request;

/// Groups of samples, from which the error is estimated.
const GROUPS: usize = 8;

/// Builds a [`Curve`].
pub struct CurveBuilder {
    stack: Stack,
    most_tracked: usize,
    /// One of `2^bits` blocks is followed.
    bits: u32,
    /// References by group and distance, the latter in units of `2^bits` blocks.
    hits: [Vec<u64>; GROUPS],
    /// References that miss at every size, by group.
    misses: [u64; GROUPS],
    references: u64,
    /// Milliseconds between two uses of a block.
    gaps: Quantiles,
    cost: Cost,
}

/// The cost of computing blocks.
struct Cost {
    prefill: Prefill,
    block_tokens: u32,
    /// Seconds saved, by distance in the same units as references.
    saved: Vec<f64>,
    /// Seconds that all requested blocks take.
    all: f64,
}

impl CurveBuilder {
    /// A builder that follows at most `most_tracked` blocks at a time, at about 80 bytes each. A block has
    /// `block_tokens` tokens; `prefill` gives the cost of computing them.
    #[must_use]
    pub fn new(most_tracked: usize, prefill: Prefill, block_tokens: u32) -> Self {
        let hits = std::array::from_fn(|_| Vec::new());
        let cost = Cost { prefill, block_tokens, saved: Vec::new(), all: 0.0 };
        Self {
            stack: Stack::new(),
            most_tracked,
            bits: 0,
            hits,
            misses: [0; GROUPS],
            references: 0,
            gaps: Quantiles::default(),
            cost,
        }
    }

    /// Adds the next request.
    pub fn add(&mut self, request: &Request) {
        self.references += request.blocks.len() as u64;
        let mut farthest = Some(0);
        self.cost.all += self.cost.prefill.seconds(0.0, f64::from(request.input_tokens));
        for (depth, block) in request.blocks.iter().enumerate() {
            if self.follows(block.0) {
                let last = self.stack.last_use(block.0);
                if let Some((_, at)) = last {
                    self.gaps.add_many(request.at.0.saturating_sub(at.0), 1 << self.bits);
                }
                farthest = farthest.and_then(|far: u64| Some(far.max(last?.0)));
                self.record(block.0, farthest, depth);
            }
        }
        for block in request.blocks.iter().rev() {
            if self.follows(block.0) {
                self.stack.touch(block.0, request.at);
            }
        }
        while self.stack.len() > self.most_tracked {
            self.halve();
        }
    }

    fn record(&mut self, block: u64, distance: Option<u64>, depth: usize) {
        // By the highest bits: the lowest ones choose the sample.
        let group = (spread(block) >> (u64::BITS - GROUPS.ilog2())) as usize;
        let Some(distance) = distance else {
            self.misses[group] += 1 << self.bits;
            return;
        };
        let (weight, tokens) = (1_u64 << self.bits, f64::from(self.cost.block_tokens));
        *entry(&mut self.hits[group], distance) += weight;
        let seconds = self.cost.prefill.seconds(depth as f64 * tokens, tokens);
        *entry(&mut self.cost.saved, distance) += seconds * weight as f64;
    }

    fn follows(&self, block: u64) -> bool {
        spread(block) & ((1 << self.bits) - 1) == 0
    }

    /// Follows half as many blocks from now on.
    fn halve(&mut self) {
        self.bits += 1;
        let mask = (1 << self.bits) - 1;
        self.stack.retain(|block| spread(block) & mask == 0);
        for hits in &mut self.hits {
            *hits = hits.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        self.cost.saved = self.cost.saved.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Milliseconds between two uses of a block.
    #[must_use]
    pub const fn reuse_gaps(&self) -> &Quantiles {
        &self.gaps
    }

    /// The curve over all requests added.
    #[must_use]
    pub fn finish(self) -> Curve {
        let length = self.hits.iter().map(Vec::len).max().unwrap_or(0);
        let groups = std::array::from_fn(|group| self.group(group, length));
        let saved = self.seconds_for_a_hit(length);
        Curve { unit: 1 << self.bits, references: self.references, groups, saved, seconds: self.cost.all }
    }

    /// Seconds that a hit saves on average, at every size up to `length` units.
    fn seconds_for_a_hit(&self, length: usize) -> Vec<f64> {
        let (mut hits, mut seconds) = (0, 0.0);
        let size = |distance: usize| {
            hits += self.hits.iter().filter_map(|hits| hits.get(distance)).sum::<u64>();
            seconds += self.cost.saved.get(distance).copied().unwrap_or(0.0);
            if hits == 0 { 0.0 } else { seconds / hits as f64 }
        };
        (0..length).map(size).collect()
    }

    /// Hits of a group at every size up to `length` units, as fractions of its share of all references.
    fn group(&self, group: usize, length: usize) -> Vec<f64> {
        let (hits, misses) = (&self.hits[group], self.misses[group]);
        let counted = hits.iter().sum::<u64>() + misses;
        let share = if self.bits == 0 { counted as f64 } else { self.references as f64 / GROUPS as f64 };
        let mut sum = share - counted as f64;
        let at = |distance: usize| hits.get(distance).copied().unwrap_or(0) as f64;
        let size = |distance| {
            sum += at(distance);
            if self.bits == 0 { sum } else { sum.clamp(0.0, share) }
        };
        (0..length).map(size).collect()
    }
}

fn entry<T: Default + Clone>(table: &mut Vec<T>, index: u64) -> &mut T {
    let index = index as usize;
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}

/// LRU's hit rate by size.
pub struct Curve {
    unit: u64,
    references: u64,
    /// References that hit, by group and size: entry `n` is for `n + 1` units.
    groups: [Vec<f64>; GROUPS],
    /// Seconds of prefill that a hit saves on average, in a cache of `n + 1` units.
    saved: Vec<f64>,
    seconds: f64,
}

impl Curve {
    /// Blocks that one followed block stands for: 1 if the curve is exact.
    #[must_use]
    pub const fn unit(&self) -> Blocks {
        Blocks(self.unit)
    }

    /// The size above which more memory changes nothing.
    #[must_use]
    pub fn largest(&self) -> Blocks {
        Blocks(self.groups[0].len() as u64 * self.unit)
    }

    /// The hit rate of a cache of `capacity` blocks.
    #[must_use]
    pub fn hit_rate(&self, capacity: Blocks) -> f64 {
        if self.references == 0 { 0.0 } else { self.hit_references(capacity) / self.references as f64 }
    }

    /// References that hit a cache of `capacity` blocks.
    pub(crate) fn hit_references(&self, capacity: Blocks) -> f64 {
        self.hits(capacity).iter().sum()
    }

    /// The error of the hit rate: two standard errors of the groups' mean. Zero if the curve is exact.
    #[must_use]
    pub fn error(&self, capacity: Blocks) -> f64 {
        if self.unit == 1 || self.references == 0 {
            return 0.0;
        }
        let hits = self.hits(capacity);
        let mean = hits.iter().sum::<f64>() / GROUPS as f64;
        let variance = hits.iter().map(|hits| (hits - mean).powi(2)).sum::<f64>() / (GROUPS - 1) as f64;
        2.0 * (variance * GROUPS as f64).sqrt() / self.references as f64
    }

    /// Seconds that all prompts take to compute without a cache.
    #[must_use]
    pub const fn prefill_seconds(&self) -> f64 {
        self.seconds
    }

    /// Seconds of these that a cache of `capacity` blocks saves.
    #[must_use]
    pub fn saved_seconds(&self, capacity: Blocks) -> f64 {
        (self.hit_references(capacity) * self.at(&self.saved, capacity)).min(self.seconds)
    }

    fn hits(&self, capacity: Blocks) -> [f64; GROUPS] {
        std::array::from_fn(|group| self.at(&self.groups[group], capacity))
    }

    fn at(&self, sizes: &[f64], capacity: Blocks) -> f64 {
        let units = usize::try_from(capacity.0 / self.unit).unwrap_or(usize::MAX);
        units.min(sizes.len()).checked_sub(1).map_or(0.0, |last| sizes[last])
    }
}
