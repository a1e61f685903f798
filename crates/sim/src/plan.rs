//! How much memory is enough: a pool's hit rate, and what that means for engines, at many sizes.

use crate::{Blocks, Curve};

/// What a pool and the engines around it are like.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes a second at which an engine gets blocks out of memory.
    pub memory_rate: f64,
    /// Bytes a second at which it gets them from disk.
    pub disk_rate: f64,
    /// Disk behind the memory: what falls out of memory is kept there.
    pub disk_bytes: u64,
    /// Requests of the trace.
    pub requests: u64,
    /// Blocks of all their inputs.
    pub blocks: u64,
}

/// A pool of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Blocks hit over all blocks.
    pub hit_rate: f64,
    /// How far it may be off.
    pub error: f64,
    /// Seconds of GPU time that hits save over the whole trace.
    pub gpu_seconds_saved: f64,
    /// Mean seconds until a prompt is ready, by computing and loading alone: nobody waits for anybody.
    pub first_token_seconds: f64,
}

/// Seconds for a block, of those that are asked for again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSeconds {
    /// To compute it, on average.
    pub compute: f64,
    /// To get it out of memory.
    pub memory: f64,
    /// To get it from disk.
    pub disk: f64,
}

impl Setting {
    /// What a block takes, if any is ever asked for again. What takes longer to get than to compute saves GPU time, and makes
    /// prompts wait.
    #[must_use]
    pub fn block_seconds(&self, curve: &Curve) -> Option<BlockSeconds> {
        let (hits, bytes) = (curve.hit_references(Blocks::UNLIMITED), self.block_bytes as f64);
        let compute = curve.saved_seconds(Blocks::UNLIMITED) / hits;
        (hits > 0.0).then(|| BlockSeconds { compute, memory: bytes / self.memory_rate, disk: bytes / self.disk_rate })
    }

    /// The pool with `memory_bytes` of memory.
    #[must_use]
    pub fn point(&self, curve: &Curve, memory_bytes: u64) -> Point {
        let blocks = |bytes: u64| Blocks(bytes / self.block_bytes.max(1));
        let (memory, all) = (blocks(memory_bytes), blocks(memory_bytes.saturating_add(self.disk_bytes)));
        let from_memory = curve.hit_rate(memory);
        let from_disk = (curve.hit_rate(all) - from_memory).max(0.0);
        let bytes = |rate: f64| rate * self.blocks as f64 * self.block_bytes as f64;
        let loading = bytes(from_memory) / self.memory_rate + bytes(from_disk) / self.disk_rate;
        let saved = curve.saved_seconds(all);
        Point {
            memory_bytes,
            hit_rate: from_memory + from_disk,
            error: curve.error(all),
            gpu_seconds_saved: saved,
            first_token_seconds: (curve.prefill_seconds() - saved + loading) / self.requests.max(1) as f64,
        }
    }

    /// Sizes worth looking at: each about twice the one before, from one block to more than enough.
    #[must_use]
    pub fn sizes(&self, curve: &Curve) -> Vec<u64> {
        let most = curve.largest().0.max(1).saturating_mul(self.block_bytes);
        let most = most.checked_next_power_of_two().unwrap_or(1 << 63);
        let least = (most >> 12).max(self.block_bytes);
        std::iter::successors(Some(most), |size| Some(size / 2))
            .take_while(|size| *size >= least)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect()
    }

    /// The knee: the memory from which on more buys less than it did on average so far. None if nothing is ever hit.
    #[must_use]
    pub fn knee(&self, curve: &Curve) -> Option<u64> {
        let (largest, ceiling) = (curve.largest().0, curve.ceiling());
        if largest == 0 || ceiling <= 0.0 {
            return None;
        }
        // The point farthest above the straight line from nothing to everything.
        let above = |size: u64| curve.hit_rate(Blocks(size)) / ceiling - size as f64 / largest as f64;
        let step = largest.div_ceil(1000).max(1) as usize;
        let sizes = (0..=largest).step_by(step);
        let knee = sizes.max_by(|a, b| above(*a).total_cmp(&above(*b)))?;
        Some(knee.saturating_mul(self.block_bytes))
    }
}
