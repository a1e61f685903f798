//! Belady's rule: evicts the block whose next use is farthest away. A bound for all orders that do not know the future.
//!
//! It reads the trace twice: once to learn the future, once to play it.

use crate::hash::ByHash;
use std::collections::BTreeSet;
use std::time::Duration;
use tidepool_policy::eviction::{Eviction, Tag, Use};
use tidepool_trace::Request;

/// The next use of a block that is not used again.
const NEVER: u32 = u32::MAX;

/// The next use of every block of every request.
#[derive(Default)]
pub struct Future {
    /// By use, in the order in which a pool uses blocks: the number of the request that needs the block next.
    next: Vec<u32>,
    /// The last use of each block so far.
    last: ByHash<usize>,
    requests: u32,
}

impl Future {
    /// Learns the next request, at four bytes a block.
    pub fn learn(&mut self, request: &Request) {
        for block in request.blocks.iter().rev() {
            let usage = self.next.len();
            self.next.push(NEVER);
            if let Some(before) = self.last.insert(block.0, usage) {
                self.next[before] = self.requests;
            }
        }
        self.requests = self.requests.saturating_add(1);
    }
}

/// The rule between blocks whose next use is in the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ties {
    /// The block nearest to the start of its prefix goes. Published figures count this way: Belady's rule knows no
    /// prefixes.
    Shallowest,
    /// The block farthest from the start of its prefix goes, since it is useless without the others. No order has more
    /// hits.
    Deepest,
}

/// An order by next use. The caller must tell it exactly the uses that its future was learnt from.
pub struct Clairvoyant {
    next: std::vec::IntoIter<u32>,
    ties: Ties,
    /// By next use, rank and slot; the victim is the last.
    order: BTreeSet<(u32, u32, u32)>,
    /// By slot.
    places: Vec<Option<(u32, u32)>>,
}

impl Clairvoyant {
    /// An order that knows `future`.
    #[must_use]
    pub fn new(future: Future, ties: Ties) -> Self {
        Self { ties, next: future.next.into_iter(), order: BTreeSet::new(), places: Vec::new() }
    }

    fn place(&self, slot: u32) -> Option<(u32, u32, u32)> {
        let (next, rank) = (*self.places.get(slot as usize)?)?;
        Some((next, rank, slot))
    }

    fn put(&mut self, slot: u32, next: u32, rank: u32) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, None);
        }
        self.places[slot as usize] = Some((next, rank));
        self.order.insert((next, rank, slot));
    }
}

impl Eviction for Clairvoyant {
    fn insert(&mut self, slot: u32, _tag: Tag, usage: &Use) {
        let next = self.next.next().unwrap_or(NEVER);
        let rank = match self.ties {
            Ties::Shallowest => u32::MAX - usage.depth,
            Ties::Deepest => usage.depth,
        };
        self.put(slot, next, rank);
    }

    fn touch(&mut self, slot: u32, usage: &Use) {
        self.remove(slot);
        self.insert(slot, Tag(0), usage);
    }

    fn remove(&mut self, slot: u32) {
        if let Some(place) = self.place(slot) {
            self.order.remove(&place);
            self.places[slot as usize] = None;
        }
    }

    fn chill(&mut self, slot: u32) {
        if self.place(slot).is_some() {
            self.remove(slot);
            self.put(slot, NEVER, u32::MAX);
        }
    }

    fn contains(&self, slot: u32) -> bool {
        self.place(slot).is_some()
    }

    fn victim(&mut self, _at: Duration) -> Option<u32> {
        self.order.last().map(|(_, _, slot)| *slot)
    }

    fn after(&self, slot: u32) -> Option<u32> {
        self.order.range(..self.place(slot)?).next_back().map(|(_, _, slot)| *slot)
    }
}
