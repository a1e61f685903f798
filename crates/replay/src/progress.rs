//! What has been seen so far, by all engines.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts while a replay runs. Everything about the pool that is not as it should be.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests that were answered.
    pub answered: AtomicU64,
    /// Blocks that came with wrong bytes: there must not be one.
    pub wrong_blocks: AtomicU64,
    /// Blocks that a look-up promised and a read did not get.
    pub lost_blocks: AtomicU64,
    /// Blocks that the pool did not take.
    pub failed_puts: AtomicU64,
    /// Blocks that were put.
    pub put_blocks: AtomicU64,
    /// Blocks that were held already when they were put.
    pub held_blocks: AtomicU64,
    /// Whether the run is to end early.
    pub(crate) stop: AtomicBool,
}

impl Progress {
    /// Ends the run: what was answered until then counts.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
