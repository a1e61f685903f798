//! A stream under full churn that loses, repeats and cuts messages ends equal to the inventory it speaks for.

use super::intake::Intake;
use crate::config::CatalogConfig;
use crate::core::Core;
use crate::index::Index;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidepool_schema::{
    Deltas, Heartbeat, Hello, InventoryDown, InventoryUp, NodeInfo, REMOVED, SnapshotPage, inventory_down,
    inventory_up::Message, pack_ids,
};
use tidepool_types::{BlockId, Tier};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

const IDS: u64 = 500;
const PAGE: usize = 64;

fn id(n: u64) -> BlockId {
    BlockId::from_words([n, n])
}

/// A node's inventory: slots, and every change ever made to them.
struct Node {
    slots: Vec<Option<u64>>,
    changes: Vec<(u64, u8)>,
}

impl Node {
    fn latest(&self) -> u64 {
        self.changes.len() as u64
    }

    /// Adds a block in a free slot, or removes one, or moves one to another slot.
    fn churn(&mut self, random: &mut Random) {
        let slot = random.below(self.slots.len() as u64) as usize;
        match self.slots[slot].take() {
            Some(held) => {
                self.changes.push((held, REMOVED));
                if random.one_in(3) {
                    self.put(held, random);
                }
            }
            None => {
                let fresh = random.below(IDS);
                if !self.slots.contains(&Some(fresh)) {
                    self.put(fresh, random);
                }
            }
        }
    }

    fn put(&mut self, block: u64, random: &mut Random) {
        let start = random.below(self.slots.len() as u64) as usize;
        let free = (start..self.slots.len()).chain(0..start).find(|slot| self.slots[*slot].is_none());
        if let Some(free) = free {
            self.slots[free] = Some(block);
            self.changes.push((block, 0));
        }
    }
}

/// Sends to an intake as an announcer does, over a line that loses, repeats and cuts.
struct Line {
    intake: Intake,
    node: Node,
    random: Random,
    faulty: bool,
    history: Vec<InventoryUp>,
    snapshot: u64,
    resync: bool,
    sent: u64,
}

impl Line {
    fn send(&mut self, message: Message) {
        let mut up = InventoryUp { message: Some(message) };
        if self.faulty && self.random.one_in(25) {
            return;
        }
        if self.faulty && self.random.one_in(25) {
            cut(&mut up, &mut self.random);
        }
        self.history.push(up.clone());
        self.deliver(up);
        if self.faulty && self.random.one_in(15) {
            let again = self.random.below(self.history.len() as u64) as usize;
            self.deliver(self.history[again].clone());
        }
    }

    fn deliver(&mut self, up: InventoryUp) {
        let down = self.intake.take(up).expect("messages are well formed");
        if let Some(InventoryDown { message: Some(inventory_down::Message::Resync(_)) }) = down {
            self.resync = true;
        }
    }

    fn send_changes(&mut self, until: u64) {
        while self.sent < until {
            let count = (1 + self.random.below(20)).min(until - self.sent);
            let changes = &self.node.changes[self.sent as usize..(self.sent + count) as usize];
            let ids: Vec<_> = changes.iter().map(|(block, _)| id(*block)).collect();
            let kinds: Vec<u8> = changes.iter().map(|(_, kind)| *kind).collect();
            let deltas = Deltas { first: self.sent + 1, ids: pack_ids(ids.iter()), kinds: kinds.into() };
            self.sent += count;
            self.send(Message::Deltas(deltas));
        }
    }

    fn send_snapshot(&mut self) {
        self.snapshot += 1;
        self.resync = false;
        let pages = self.node.slots.len().div_ceil(PAGE);
        for page in 0..pages {
            let slots = &self.node.slots[page * PAGE..self.node.slots.len().min((page + 1) * PAGE)];
            let ids: Vec<_> = slots.iter().flatten().map(|block| id(*block)).collect();
            let as_of = self.node.latest();
            if page == 0 {
                self.sent = as_of;
            }
            self.send_changes(as_of);
            let (snapshot, ids, last) = (self.snapshot, pack_ids(ids.iter()), page + 1 == pages);
            let page = SnapshotPage { snapshot, page: page as u64, as_of, ids, last, ..SnapshotPage::default() };
            self.send(Message::Page(page));
            (0..30).for_each(|_| self.node.churn(&mut self.random));
        }
    }

    fn heartbeat(&mut self) {
        self.send_changes(self.node.latest());
        self.send(Message::Heartbeat(Heartbeat { latest: self.sent, echo: 0, used_bytes: 0 }));
    }
}

/// Leaves out the end of a batch.
fn cut(up: &mut InventoryUp, random: &mut Random) {
    if let Some(Message::Deltas(deltas)) = &mut up.message {
        let keep = random.below(deltas.kinds.len() as u64) as usize;
        deltas.kinds.truncate(keep);
        deltas.ids.truncate(keep * BlockId::LEN);
    }
}

fn run(seed: u64) -> (Arc<Core>, Line) {
    let core = Arc::new(Core::new(&CatalogConfig::default()));
    let info = NodeInfo { name: "n".to_owned(), ..NodeInfo::default() };
    let hello = InventoryUp { message: Some(Message::Hello(Hello { node: Some(info), ack_bound_millis: 0 })) };
    let (intake, _ended) = Intake::admit(core.clone(), hello).unwrap();
    let node = Node { slots: vec![None; 300], changes: Vec::new() };
    let (random, history) = (Random(seed), Vec::new());
    let mut line = Line { intake, node, random, faulty: true, history, snapshot: 0, resync: true, sent: 0 };
    for _ in 0..400 {
        if line.resync {
            line.send_snapshot();
        }
        let changes = line.random.below(20);
        (0..changes).for_each(|_| line.node.churn(&mut line.random));
        line.heartbeat();
    }
    line.faulty = false;
    line.heartbeat();
    while line.resync {
        line.send_snapshot();
        line.heartbeat();
    }
    (core, line)
}

fn held(index: &Index, view: &crate::members::View) -> BTreeMap<u64, Tier> {
    let holders = |n| index.holders(id(n)).into_iter().filter(|holder| view.owner(*holder).is_some());
    (0..IDS).flat_map(|n| holders(n).map(move |holder| (n, holder.tier))).collect()
}

#[test]
fn a_snapshot_under_churn_with_deltas_lost_repeated_and_cut_ends_equal_to_the_inventory() {
    for seed in 0..20 {
        println!("seed {seed}");
        let (core, line) = run(seed);
        let expected: BTreeMap<u64, Tier> = line.node.slots.iter().flatten().map(|n| (*n, Tier::Dram)).collect();
        assert_eq!(held(&core.index, &core.directory.view()), expected, "seed {seed}");
        assert!(line.snapshot > 1, "faults have shown");
    }
}
