//! An engine: computes prompts one after another and decodes answers side by side.
//!
//! A request waits until the engine gets to it, and is looked up only then: as the scheduler of a real engine does when
//! it takes a request off its queue. The engine starts no look-up while it computes a prompt. It loads a request's
//! blocks from the pool while it looks up and computes others; a request without blocks in the pool is computed at
//! once.

use crate::{Blocks, Pool};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidepool_policy::eviction::Policy;

/// An engine, with requests by their numbers.
pub(super) struct Engine {
    pub(super) local: Pool,
    /// Requests that have come and are not looked up yet.
    waiting: VecDeque<u32>,
    /// Requests that are loaded and not computed, in the order of arrivals.
    loaded: BinaryHeap<Reverse<(u64, u32)>>,
    /// Number of requests that are looked up and not answered.
    under_way: u32,
    /// Number of these that are computed or decoded.
    pub(super) running: u32,
    /// Whether a prompt is computed or about to be.
    computing: bool,
}

/// An engine's next step.
pub(super) enum Next {
    /// Look up a request.
    LookUp(u32),
    /// Compute a request whose blocks have come.
    Compute(u32),
}

impl Engine {
    pub(super) fn new(local: Blocks) -> Self {
        Self {
            local: Pool::new(local, Policy::Lru.build()),
            waiting: VecDeque::new(),
            loaded: BinaryHeap::new(),
            under_way: 0,
            running: 0,
            computing: false,
        }
    }

    /// A request comes.
    pub(super) fn arrive(&mut self, request: u32) {
        self.waiting.push_back(request);
    }

    /// The next step, if the engine can take any. Earlier requests go first, with up to `batch` requests under way.
    pub(super) fn next(&mut self, batch: u32) -> Option<Next> {
        if self.computing {
            return None;
        }
        if let Some(Reverse((_, request))) = self.loaded.pop() {
            return Some(Next::Compute(request));
        }
        if self.under_way >= batch.max(1) {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.under_way += 1;
        Some(Next::LookUp(request))
    }

    /// Reserves the engine for a request that it is about to compute: it takes no other step before.
    pub(super) fn hold(&mut self) {
        self.computing = true;
    }

    /// Notes that the blocks of a request have come; it was the `nth` to arrive.
    pub(super) fn loaded(&mut self, nth: u64, request: u32) {
        self.loaded.push(Reverse((nth, request)));
    }

    /// Begins to compute a prompt.
    pub(super) fn compute(&mut self) {
        self.computing = true;
        self.running += 1;
    }

    /// Notes that a prompt is computed: its answer is decoded beside others.
    pub(super) fn computed(&mut self) {
        self.computing = false;
    }

    /// Notes that an answer is complete.
    pub(super) fn answered(&mut self) {
        self.running -= 1;
        self.under_way -= 1;
    }
}
