//! Plans: a pool's hit rate, and what that means for engines, at many sizes of memory.

use crate::{Blocks, Curve};

/// The pool and the engines of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes a second at which an engine reads blocks from memory.
    pub memory_rate: f64,
    /// Bytes a second at which an engine reads blocks from disk.
    pub disk_rate: f64,
    /// Bytes of disk behind the memory, which keeps blocks evicted from memory.
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
    /// The error of the hit rate.
    pub error: f64,
    /// Seconds of GPU time that hits save over the whole trace.
    pub gpu_seconds_saved: f64,
    /// Mean seconds until a prompt is ready, for computing and loading alone, without queueing.
    pub first_token_seconds: f64,
}

/// Seconds for a block that is requested again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSeconds {
    /// Mean seconds to compute it.
    pub compute: f64,
    /// Seconds to read it from memory.
    pub memory: f64,
    /// Seconds to read it from disk.
    pub disk: f64,
}

impl Setting {
    /// The seconds for a block; none if no block is requested again. A source slower than computing still saves GPU
    /// time, but makes prompts wait.
    #[must_use]
    pub fn block_seconds(&self, curve: &Curve) -> Option<BlockSeconds> {
        let (hits, bytes) = (curve.hit_references(Blocks::UNLIMITED), self.block_bytes as f64);
        let compute = curve.saved_seconds(Blocks::UNLIMITED) / hits;
        (hits > 0.0).then(|| BlockSeconds { compute, memory: bytes / self.memory_rate, disk: bytes / self.disk_rate })
    }

    /// The point of a pool with `memory_bytes` of memory.
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

    /// Useful sizes, from one block to more than enough, each about twice the size before.
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

    /// The knee: the memory above which more memory buys less than it did on average so far. None if no block is ever
    /// hit.
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
