//! One cache of blocks of one size.

use crate::Blocks;
use crate::hash::ByHash;
use std::collections::hash_map::Entry;
use std::time::Duration;
use tidepool_policy::admission::{Admission, Everything};
use tidepool_policy::eviction::{Eviction, Tag, Use};
use tidepool_trace::{BlockHash, Request};

/// One cache, and its order of eviction.
pub struct Pool {
    capacity: u64,
    order: Box<dyn Eviction>,
    admission: Box<dyn Admission>,
    slots: ByHash<u32>,
    /// Blocks by slot; a free slot keeps its last one.
    blocks: Vec<u64>,
    free: Vec<u32>,
    evicted: u64,
    /// Places of a request's blocks; empty between requests.
    found: Vec<Option<u32>>,
}

impl Pool {
    /// An empty cache for `capacity` blocks.
    #[must_use]
    pub fn new(capacity: Blocks, order: Box<dyn Eviction>) -> Self {
        Self {
            capacity: capacity.0,
            order,
            admission: Box::new(Everything),
            slots: ByHash::default(),
            blocks: Vec::new(),
            free: Vec::new(),
            evicted: 0,
            found: Vec::new(),
        }
    }

    /// The same cache, with `admission` to decide about blocks that would push others out.
    #[must_use]
    pub fn admitting(self, admission: Box<dyn Admission>) -> Self {
        Self { admission, ..self }
    }

    /// Number of blocks in the cache.
    #[must_use]
    pub fn len(&self) -> Blocks {
        Blocks(self.slots.len() as u64)
    }

    /// Whether the cache has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Blocks that were evicted so far.
    #[must_use]
    pub const fn evicted(&self) -> Blocks {
        Blocks(self.evicted)
    }

    /// Length of the longest held run from the start of `blocks`.
    #[must_use]
    pub fn run(&self, blocks: &[BlockHash]) -> Blocks {
        Blocks(blocks.iter().take_while(|block| self.slots.contains_key(&block.0)).count() as u64)
    }

    /// Serves a request: uses all of its blocks and makes room. Returns the number of hits.
    pub fn serve(&mut self, request: &Request) -> Blocks {
        let hits = self.run(&request.blocks);
        self.take_in(request, Duration::from_millis(request.at.0));
        hits
    }

    /// Uses all blocks of a request, from the last to the first, and makes room.
    pub fn take_in(&mut self, request: &Request, at: Duration) {
        let mut slots = std::mem::take(&mut self.found);
        // Look-ups first, touches later: look-ups that do not depend on each other take a fraction of the time.
        slots.extend(request.blocks.iter().map(|block| self.slots.get(&block.0).copied()));
        for (depth, block) in request.blocks.iter().enumerate().rev() {
            let usage = Use { at, depth: depth as u32, origin: request.origin };
            match slots.pop().flatten() {
                Some(slot) => self.order.touch(slot, &usage),
                None => self.insert(*block, &usage),
            }
        }
        self.found = slots;
        self.cut(self.capacity, at);
    }

    /// Uses one block as a node does, which makes room before a block comes in. Returns whether the block was held.
    pub fn use_one(&mut self, block: BlockHash, usage: &Use) -> bool {
        let held = self.slots.contains_key(&block.0);
        let is_full = self.slots.len() as u64 >= self.capacity;
        if !held && is_full {
            if !self.admission.admits(Tag(block.0)) {
                return false;
            }
            self.cut(self.capacity.saturating_sub(1), usage.at);
        }
        self.insert(block, usage);
        held
    }

    fn insert(&mut self, block: BlockHash, usage: &Use) {
        let is_full = self.slots.len() as u64 >= self.capacity;
        let entry = match self.slots.entry(block.0) {
            // A block that is in a request twice came a moment ago.
            Entry::Occupied(entry) => return self.order.touch(*entry.get(), usage),
            Entry::Vacant(entry) => entry,
        };
        if is_full && !self.admission.admits(Tag(block.0)) {
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(0);
            u32::try_from(self.blocks.len() - 1).expect("a table of 2^32 blocks is more than memory holds")
        });
        entry.insert(slot);
        self.blocks[slot as usize] = block.0;
        self.order.insert(slot, Tag(block.0), usage);
    }

    fn cut(&mut self, most: u64, at: Duration) {
        while self.slots.len() as u64 > most {
            let Some(slot) = self.order.victim(at) else { return };
            self.order.evict(slot);
            self.slots.remove(&self.blocks[slot as usize]);
            self.free.push(slot);
            self.evicted += 1;
        }
    }
}
