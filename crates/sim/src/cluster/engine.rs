//! An engine: prompts one after the other, answers beside each other.

use crate::{Blocks, Pool};
use std::collections::VecDeque;
use tidepool_policy::eviction::Policy;

/// An engine, with requests by their numbers.
pub(super) struct Engine {
    pub(super) local: Pool,
    /// Loaded, and not computed yet.
    pub(super) waiting: VecDeque<u32>,
    pub(super) computing: bool,
    /// Requests that are computed or decoded.
    pub(super) running: u32,
}

impl Engine {
    pub(super) fn new(local: Blocks) -> Self {
        Self { local: Pool::new(local, Policy::Lru.build()), waiting: VecDeque::new(), computing: false, running: 0 }
    }

    /// The request to compute next, if the engine can.
    pub(super) fn start(&mut self, batch: u32) -> Option<u32> {
        if self.computing || self.running >= batch.max(1) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.computing = true;
        self.running += 1;
        Some(next)
    }
}
