//! The pool: which host's node holds which block, in memory or on disk.

use super::{Made, Nanos};
use crate::Blocks;
use crate::hash::ByHash;
use tidepool_policy::admission::{Admission, Rule};
use tidepool_policy::eviction::{Eviction, Policy, Tag, Use};
use tidepool_policy::placement::{self, Candidate};
use tidepool_trace::{BlockHash, Request};

/// A tier of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    Memory,
    Disk,
}

/// A block's place, in eight bytes: the table has one for every block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The host's number, and the lowest bit set for disk.
    shelf: u32,
    slot: u32,
}

impl Place {
    fn new(host: u32, tier: Tier, slot: u32) -> Self {
        Self { shelf: host << 1 | tier as u32, slot }
    }

    pub(super) const fn host(self) -> u32 {
        self.shelf >> 1
    }

    pub(super) const fn tier(self) -> Tier {
        if self.shelf & 1 == 0 { Tier::Memory } else { Tier::Disk }
    }
}

/// All nodes' blocks.
pub(super) struct Store {
    index: ByHash<Place>,
    nodes: Vec<[Shelf; 2]>,
    pub(super) evicted: u64,
    /// Blocks that went from memory to disk since the last look, by host.
    pub(super) demoted: Vec<(u32, u64)>,
    /// Places of a request's blocks; empty between requests.
    places: Vec<Option<Place>>,
    /// Hosts whose memory got fuller; empty between requests.
    fuller: Vec<u32>,
}

/// A tier's blocks, and the order in which they are evicted.
struct Shelf {
    capacity: u64,
    order: Box<dyn Eviction>,
    admission: Box<dyn Admission>,
    blocks: Vec<u64>,
    free: Vec<u32>,
}

impl Shelf {
    fn new(capacity: Blocks, policy: Policy, admission: Rule) -> Self {
        let admission = admission.build(capacity.0);
        Self { capacity: capacity.0, order: policy.build(), admission, blocks: Vec::new(), free: Vec::new() }
    }

    /// Whether a block comes in that would push another one out.
    fn admits(&mut self, block: u64) -> bool {
        self.len() < self.capacity || self.admission.admits(Tag(block))
    }

    fn len(&self) -> u64 {
        (self.blocks.len() - self.free.len()) as u64
    }

    fn put(&mut self, block: u64, usage: &Use) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(0);
            u32::try_from(self.blocks.len() - 1).expect("a table of 2^32 blocks is more than memory holds")
        });
        self.blocks[slot as usize] = block;
        self.order.insert(slot, Tag(block), usage);
        slot
    }

    /// Takes the next victim out if the tier is over its size.
    fn overflow(&mut self, usage: &Use) -> Option<u64> {
        let slot = (self.len() > self.capacity).then(|| self.order.victim(usage.at))??;
        self.order.evict(slot);
        self.free.push(slot);
        Some(self.blocks[slot as usize])
    }
}

impl Store {
    pub(super) fn new(hosts: u32, memory: Blocks, disk: Blocks, (policy, admission): (Policy, Rule)) -> Self {
        let node = || [Shelf::new(memory, policy, admission), Shelf::new(disk, Policy::Lru, Rule::All)];
        Self {
            index: ByHash::default(),
            nodes: (0..hosts).map(|_| node()).collect(),
            evicted: 0,
            demoted: Vec::new(),
            places: Vec::new(),
            fuller: Vec::new(),
        }
    }

    /// The places of the blocks in the longest held run from the start of `blocks`.
    pub(super) fn run<'a>(&'a self, blocks: &'a [BlockHash]) -> impl Iterator<Item = Place> + 'a {
        blocks.iter().map_while(|block| self.index.get(&block.0).copied())
    }

    /// Uses all blocks of a request, from the last to the first, and stores those that no node has: where a writer on
    /// `host` puts them, or on the host that had `made` them before the request came. Then makes room. Returns the
    /// number of blocks stored.
    pub(super) fn take_in(&mut self, request: &Request, host: u32, made: Option<(u32, &Made)>, now: Nanos) -> Blocks {
        let (mut stored, target) = (0, self.place(request, host));
        let mut places = std::mem::take(&mut self.places);
        // Look-ups first, touches later: look-ups that do not depend on each other take a fraction of the time.
        places.extend(request.blocks.iter().map(|block| self.index.get(&block.0).copied()));
        for (depth, block) in request.blocks.iter().enumerate().rev() {
            let usage = Use { at: now.duration(), depth: depth as u32, origin: request.origin };
            match (places[depth], made.filter(|(_, made)| made.blocks.contains(&depth))) {
                (Some(place), _) => self.touch(block.0, place, &usage),
                // A block that is in a request twice was stored a moment ago.
                (None, _) if self.index.contains_key(&block.0) => {}
                (None, Some((maker, _))) => self.put(block.0, maker, Tier::Memory, &usage),
                (None, None) if !self.nodes[target as usize][Tier::Memory as usize].admits(block.0) => {}
                (None, None) => {
                    stored += 1;
                    self.put(block.0, target, Tier::Memory, &usage);
                }
            }
        }
        places.clear();
        self.places = places;
        self.fuller.extend(made.map(|(maker, _)| maker));
        // Last, so that no place changes before its turn.
        let usage = Use { at: now.duration(), ..Use::default() };
        while let Some(fuller) = self.fuller.pop() {
            self.make_room(fuller, &usage);
        }
        self.make_room(target, &usage);
        Blocks(stored)
    }

    /// The host whose node takes new blocks of a request served on `host`, as clients choose it.
    fn place(&self, request: &Request, host: u32) -> u32 {
        let candidate = |(index, [memory, _]): (usize, &[Shelf; 2])| {
            let free = memory.capacity.saturating_sub(memory.len());
            Candidate { index, preferred: None, full: false, local: false, free }
        };
        let local = ((host as usize) < self.nodes.len()).then_some(host as usize);
        let spread = request.blocks.first().map_or(0, |block| block.0);
        let first = placement::first(local, self.nodes.iter().enumerate().map(candidate), spread);
        first.map_or(host, |index| index as u32)
    }

    /// The blocks of `made` up to the first one that the host does not admit.
    pub(super) fn taken(&mut self, request: &Request, made: &Made, host: u32) -> Made {
        let memory = &mut self.nodes[host as usize][Tier::Memory as usize];
        let blocks = &request.blocks[made.blocks.clone()];
        let taken = blocks.iter().take_while(|block| memory.admits(block.0)).count();
        Made { blocks: made.blocks.start..made.blocks.start + taken, ..*made }
    }

    /// Uses a block, and moves it from disk to memory.
    fn touch(&mut self, block: u64, place: Place, usage: &Use) {
        // A block that is in a request twice has moved already.
        let current = if place.tier() == Tier::Disk { self.index.get(&block).copied() } else { Some(place) };
        let Some(place) = current else { return };
        let shelf = &mut self.nodes[place.host() as usize][place.tier() as usize];
        if place.tier() == Tier::Memory {
            return shelf.order.touch(place.slot, usage);
        }
        shelf.order.remove(place.slot);
        shelf.free.push(place.slot);
        self.put(block, place.host(), Tier::Memory, usage);
        self.fuller.push(place.host());
    }

    fn put(&mut self, block: u64, host: u32, tier: Tier, usage: &Use) {
        let slot = self.nodes[host as usize][tier as usize].put(block, usage);
        self.index.insert(block, Place::new(host, tier, slot));
    }

    /// Evicts until a node is within its size.
    fn make_room(&mut self, host: u32, usage: &Use) {
        let mut demoted = 0;
        while let Some(block) = self.nodes[host as usize][Tier::Memory as usize].overflow(usage) {
            if self.nodes[host as usize][Tier::Disk as usize].capacity == 0 {
                self.forget(block);
                continue;
            }
            demoted += 1;
            self.put(block, host, Tier::Disk, usage);
            while let Some(block) = self.nodes[host as usize][Tier::Disk as usize].overflow(usage) {
                self.forget(block);
            }
        }
        if demoted > 0 {
            self.demoted.push((host, demoted));
        }
    }

    fn forget(&mut self, block: u64) {
        self.index.remove(&block);
        self.evicted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_trace::Millis;

    fn request(blocks: std::ops::Range<u64>) -> Request {
        let blocks = blocks.map(BlockHash).collect();
        Request { at: Millis(0), input_tokens: 0, output_tokens: 0, blocks, origin: None }
    }

    fn tiers(store: &Store, request: &Request) -> Vec<(u32, Tier)> {
        store.run(&request.blocks).map(|place| (place.host(), place.tier())).collect()
    }

    #[test]
    fn what_falls_out_of_memory_is_on_disk_and_comes_back_when_used() {
        let mut store = Store::new(2, Blocks(2), Blocks(2), (Policy::Lru, Rule::All));
        let (first, second) = (request(0..2), request(10..12));
        assert_eq!(store.take_in(&first, 0, None, Nanos(0)), Blocks(2));
        assert_eq!(store.take_in(&second, 0, None, Nanos(1)), Blocks(2));
        assert_eq!(tiers(&store, &first), [(0, Tier::Disk); 2]);
        assert_eq!(store.take_in(&first, 1, None, Nanos(2)), Blocks(0));
        assert_eq!(tiers(&store, &first), [(0, Tier::Memory); 2]);
        assert_eq!(tiers(&store, &second), [(0, Tier::Disk); 2]);
        store.take_in(&request(20..22), 0, None, Nanos(3));
        assert_eq!(store.demoted, [(0, 2); 3]);
        assert_eq!((tiers(&store, &second), store.evicted), (vec![], 2));
    }

    #[test]
    fn what_was_made_before_is_where_it_was_made() {
        let mut store = Store::new(2, Blocks(10), Blocks(0), (Policy::Lru, Rule::All));
        let made = Made { engine: 1, blocks: 1..3 };
        assert_eq!(store.take_in(&request(0..4), 0, Some((1, &made)), Nanos(0)), Blocks(2));
        let hosts: Vec<u32> = tiers(&store, &request(0..4)).iter().map(|(host, _)| *host).collect();
        assert_eq!(hosts, [0, 1, 1, 0]);
    }

    #[test]
    fn every_block_is_in_one_place_whatever_happens() {
        let (mut store, mut random) = (Store::new(3, Blocks(20), Blocks(15), (Policy::Lru, Rule::SecondSight)), 1_u64);
        for time in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len, host) = ((random >> 33) % 20 * 10, (random >> 43) % 14, (random >> 53) as u32 % 3);
            let mut request = request(start..start + len);
            // Now and then a block comes twice.
            request.blocks.extend(request.blocks.first().copied().filter(|_| random >> 60 == 0));
            let (maker, made) = (time as u32 % 3, Made { engine: 0, blocks: 2..4 });
            store.take_in(&request, host, Some((maker, &made)).filter(|_| random >> 62 == 1), Nanos(time));
            for (block, place) in &store.index {
                let shelf = &store.nodes[place.host() as usize][place.tier() as usize];
                assert_eq!((shelf.blocks[place.slot as usize], shelf.order.contains(place.slot)), (*block, true));
            }
            let shelves = || store.nodes.iter().flatten();
            assert!(shelves().all(|shelf| shelf.len() <= shelf.capacity));
            assert_eq!(shelves().map(Shelf::len).sum::<u64>(), store.index.len() as u64);
        }
        assert!(store.evicted > 0);
    }
}
