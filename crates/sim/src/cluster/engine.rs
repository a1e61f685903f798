//! An engine: prompts one after the other, answers beside each other.
//!
//! Requests wait until the engine gets to them, which is when it looks up what is held of them: as the scheduler of a real engine does
//! when it takes a request off its queue, and not when it comes. The engine gets to nobody while it computes a prompt. What the pool
//! holds is loaded while others are looked up and computed; a request of which it holds nothing is computed at once.

use crate::{Blocks, Pool};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidepool_policy::eviction::Policy;

/// An engine, with requests by their numbers.
pub(super) struct Engine {
    pub(super) local: Pool,
    /// Requests that have come, and that the engine has not got to.
    waiting: VecDeque<u32>,
    /// Those that are loaded and not computed, in the order of arrivals.
    loaded: BinaryHeap<Reverse<(u64, u32)>>,
    /// Requests that are looked up and not answered.
    under_way: u32,
    /// Of these, requests that are computed or decoded.
    pub(super) running: u32,
    /// Whether a prompt is computed, or about to be.
    computing: bool,
}

/// What an engine does next.
pub(super) enum Next {
    /// It looks up a request.
    LookUp(u32),
    /// It computes one whose blocks have come.
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

    /// What to do next, if the engine can do anything. Who came first is first, with up to `batch` requests under way.
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

    /// Keeps the engine for a request that is about to be computed: it does nothing else before.
    pub(super) fn hold(&mut self) {
        self.computing = true;
    }

    /// The blocks of the `nth` request of all have come.
    pub(super) fn loaded(&mut self, nth: u64, request: u32) {
        self.loaded.push(Reverse((nth, request)));
    }

    /// Begins to compute a prompt.
    pub(super) fn compute(&mut self) {
        self.computing = true;
        self.running += 1;
    }

    /// A prompt is computed, and its answer is decoded beside others.
    pub(super) fn computed(&mut self) {
        self.computing = false;
    }

    /// An answer is out.
    pub(super) fn answered(&mut self) {
        self.running -= 1;
        self.under_way -= 1;
    }
}
