//! The pool under every policy: against a naive model of itself, and against the simulator.

use super::tests::common::{create_with, id, put, reserve, sums};
use super::*;
use crate::placed::Placed;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::{Policy, Tag};
use tidepool_sim::Blocks;
use tidepool_trace::{BlockHash, Millis, Request};
use tidepool_types::Key;
use tidepool_wire::message::{Pin, SlotName};

/// Bytes of every block: with its key and checksum it takes a page.
const BLOCK: usize = 4080;
const KEY: usize = 4;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A clock that moves when a test says so.
fn clock() -> Duration {
    NOW.get()
}

fn use_now() -> Use {
    Use { at: clock(), ..Use::default() }
}

struct Fixture {
    _dir: tempfile::TempDir,
    memory: Arc<NodeMemory>,
}

/// A pool for so many blocks.
fn memory(blocks: u64, policy: Policy) -> Fixture {
    admitting(blocks, policy, Rule::All)
}

fn admitting(blocks: u64, policy: Policy, rule: Rule) -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let page = Placed::run_bytes(BLOCK as u64, KEY as u64);
    let memory = create_with(dir.path(), "n", Epoch(1), (blocks * page, page / 2), (policy, rule));
    memory.inner.lock().clock = clock;
    Fixture { _dir: dir, memory }
}

fn key(block: u32) -> [u8; KEY] {
    block.to_le_bytes()
}

fn is_held(memory: &NodeMemory, block: u32) -> bool {
    memory.contains(&id(&key(block)))
}

/// Puts a block that is not held. False when there is no room.
fn store(memory: &Arc<NodeMemory>, block: u32, pin: Pin) -> bool {
    let Ok(reservation) = reserve(memory, &key(block), &[7; BLOCK]) else { return false };
    let Ok(reservation) = reservation.with_terms(BlockTerms { pin, ..BlockTerms::default() }) else { return false };
    reservation.seal(&sums(&key(block), &[7; BLOCK])).is_ok()
}

fn slot_of(memory: &NodeMemory, block: u32) -> Option<SlotName> {
    let inner = memory.inner.lock();
    let (slot, _) = memory.lookup(&inner, &id(&key(block)))?;
    Some(SlotName { slot, generation: Generation(inner.slots[slot as usize].generation) })
}

/// What a pool of blocks of one size does, said as shortly as possible: slots are blocks' names, and there is no memory.
struct Naive {
    capacity: usize,
    order: Box<dyn Eviction>,
    blocks: BTreeMap<u32, NaiveBlock>,
    /// Removed while they were held: their space is not free.
    removed: Vec<u32>,
    uses: u64,
}

#[derive(Default, Clone, Copy)]
struct NaiveBlock {
    holds: u32,
    looks: u32,
    pin: Pin,
    last_use: u64,
}

impl Naive {
    fn touch(&mut self, block: u32) {
        let Some(known) = self.blocks.get_mut(&block) else { return };
        self.uses += 1;
        known.last_use = self.uses;
        self.order.touch(block, &use_now());
    }

    fn insert(&mut self, block: u32) {
        let unpinned = self.blocks.get(&block).is_some_and(|known| known.pin == Pin::None);
        if unpinned && !self.order.contains(block) {
            self.order.insert(block, Tag(id(&key(block)).words()[0]), &use_now());
        }
    }

    /// The block that goes: the first one that nobody holds; those that are pinned softly last.
    fn victim(&mut self) -> Option<u32> {
        while let Some(first) = self.order.victim(clock()).filter(|first| self.blocks[first].holds > 0) {
            self.order.remove(first);
        }
        let free = |block: &u32| self.blocks[block].holds == 0 && self.blocks[block].looks == 0;
        let first = self.order.victim(clock());
        let plain = std::iter::successors(first, |block| self.order.after(*block)).find(free);
        let soft = self.blocks.iter().filter(|(block, known)| matches!(known.pin, Pin::Soft { .. }) && free(block));
        plain.or_else(|| soft.min_by_key(|(_, known)| known.last_use).map(|(block, _)| *block))
    }

    fn put(&mut self, block: u32, pin: Pin) -> bool {
        if self.blocks.len() + self.removed.len() == self.capacity {
            let Some(victim) = self.victim() else { return false };
            self.order.evict(victim);
            self.blocks.remove(&victim);
        }
        let pinned = self.blocks.values().filter(|known| known.pin == Pin::Hard).count();
        if pin == Pin::Hard && pinned + 1 > self.capacity / 2 {
            return false;
        }
        self.uses += 1;
        self.blocks.insert(block, NaiveBlock { pin, last_use: self.uses, ..NaiveBlock::default() });
        self.insert(block);
        true
    }

    fn let_go(&mut self, block: u32) {
        self.touch(block);
        if let Some(known) = self.blocks.get_mut(&block) {
            known.holds -= 1;
            if known.holds == 0 {
                self.insert(block);
            }
        }
    }
}

/// What happens to a pool.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u32, Pin),
    Touch(u32),
    Hold(u32),
    Look(u32),
    LetGo(usize),
    Remove(u32),
}

const BLOCKS: u32 = 40;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..BLOCKS).prop_map(|block| Step::Put(block, Pin::None)),
        1 => (0..BLOCKS).prop_map(|block| Step::Put(block, Pin::Hard)),
        1 => (0..BLOCKS).prop_map(|block| Step::Put(block, Pin::Soft { millis: 3_600_000 })),
        8 => (0..BLOCKS).prop_map(Step::Touch),
        3 => (0..BLOCKS).prop_map(Step::Hold),
        1 => (0..BLOCKS).prop_map(Step::Look),
        4 => (0..8_usize).prop_map(Step::LetGo),
        1 => (0..BLOCKS).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..300)
}

fn behaves_as_its_model(policy: Policy, steps: &[Step]) -> Result<(), TestCaseError> {
    let fixture = memory(16, policy);
    let memory = &fixture.memory;
    let (order, blocks) = (policy.build(), BTreeMap::new());
    let mut naive = Naive { capacity: 16, order, blocks, removed: Vec::new(), uses: 0 };
    let mut holds: Vec<(u32, bool, Hold)> = Vec::new();
    for (time, step) in steps.iter().enumerate() {
        NOW.set(Duration::from_millis(500 * time as u64));
        match *step {
            // A block that is held while removed is one of its own, which the model does not tell apart.
            Step::Put(block, _) | Step::Remove(block) if naive.removed.contains(&block) => {}
            Step::Put(block, pin) if !naive.blocks.contains_key(&block) => {
                prop_assert_eq!(store(memory, block, pin), naive.put(block, pin), "{} {:?}", policy, step);
            }
            Step::Put(block, _) | Step::Touch(block) => {
                memory.touch(&slot_of(memory, block).into_iter().collect::<Vec<_>>(), &[]);
                naive.touch(block);
            }
            Step::Hold(block) if let Some(hold) = memory.hold(&id(&key(block)), None) => {
                holds.push((block, true, hold));
                naive.blocks.get_mut(&block).expect("both have it").holds += 1;
            }
            Step::Look(block) if let Some(hold) = memory.peek(&id(&key(block))) => {
                holds.push((block, false, hold));
                naive.blocks.get_mut(&block).expect("both have it").looks += 1;
            }
            Step::Hold(_) | Step::Look(_) => {}
            Step::LetGo(at) if at < holds.len() => {
                let (block, is_use, hold) = holds.swap_remove(at);
                drop(hold);
                let space = naive.removed.iter().position(|removed| *removed == block);
                match space {
                    Some(space) if holds.iter().all(|(other, ..)| *other != block) => drop(naive.removed.remove(space)),
                    Some(_) => {}
                    None if is_use => naive.let_go(block),
                    None => naive.blocks.get_mut(&block).expect("what is looked at stays").looks -= 1,
                }
            }
            Step::LetGo(_) => {}
            Step::Remove(block) => {
                prop_assert_eq!(memory.remove(&id(&key(block))), naive.blocks.remove(&block).is_some());
                naive.order.remove(block);
                naive.removed.extend(holds.iter().any(|(held, ..)| *held == block).then_some(block));
            }
        }
        for block in 0..BLOCKS {
            prop_assert_eq!(
                is_held(memory, block),
                naive.blocks.contains_key(&block),
                "{} {:?} {}",
                policy,
                step,
                block
            );
        }
        prop_assert!(holds.iter().all(|(.., hold)| hold.bytes() == [7; BLOCK]));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Held and pinned blocks in everybody's way, and the very block goes that the policy says.
    #[test]
    fn under_every_policy_the_pool_is_that_of_a_naive_model(steps in steps()) {
        for policy in Policy::ALL {
            behaves_as_its_model(policy, &steps)?;
        }
    }
}

/// Conversations that go on, and one-off requests between them.
fn trace(seed: u64) -> Vec<Request> {
    let mut random = seed;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut lengths = [0_u64; 12];
    (0..600)
        .map(|number| {
            let chat = next(16);
            let blocks: Vec<u64> = match lengths.get_mut(chat as usize) {
                Some(length) => {
                    *length = if *length > 9 { 1 } else { *length + 1 + next(2) };
                    (0..*length).map(|depth| if depth == 0 { 0 } else { chat * 100 + depth }).collect()
                }
                None => (0..1 + next(4)).map(|depth| 10_000 + 10 * number + depth).collect(),
            };
            let blocks = blocks.into_iter().map(BlockHash).collect();
            Request { at: Millis(number * 700), input_tokens: 0, output_tokens: 0, blocks, origin: None }
        })
        .collect()
}

/// What policies call a block in a node.
fn name(block: u32) -> BlockHash {
    BlockHash(id(&key(block)).words()[0])
}

/// Serves a request as engines do: reads what is there, puts the rest. Says how many blocks were hit.
fn serve(memory: &Arc<NodeMemory>, request: &Request, mut told: impl FnMut(BlockHash)) -> usize {
    NOW.set(Duration::from_millis(request.at.0));
    let blocks = request.blocks.iter().map(|block| block.0 as u32);
    let hits = blocks.clone().take_while(|block| is_held(memory, *block)).count();
    let (held, lacking): (Vec<u32>, Vec<u32>) = blocks.partition(|block| is_held(memory, *block));
    held.iter().rev().chain(lacking.iter().rev()).for_each(|block| told(name(*block)));
    memory.confirm(&held.iter().map(|block| id(&key(*block))).collect::<Vec<_>>());
    let is_admitted = |block: &&u32| {
        let key = key(**block);
        memory.admits(Key::new(&key).unwrap(), &id(&key), BLOCK as u64)
    };
    for block in lacking.iter().rev().filter(is_admitted) {
        assert!(store(memory, *block, Pin::None), "nobody holds anything");
    }
    hits
}

/// What the simulator says of a policy holds for a node with that policy: both evict the same blocks.
#[test]
fn a_node_evicts_what_the_simulator_does() {
    let rules = |policy| Rule::ALL.map(|rule| (policy, rule));
    for (seed, (policy, rule)) in
        (1..4).flat_map(|seed| Policy::ALL.into_iter().flat_map(rules).map(move |of| (seed, of)))
    {
        let fixture = admitting(30, policy, rule);
        // Slots are twice as many as blocks.
        let simulated = tidepool_sim::Pool::new(Blocks(30), policy.build());
        let mut simulated = simulated.admitting(rule.build(60));
        let (mut hits, mut evicted) = (0, 0);
        for request in trace(seed) {
            let names: Vec<BlockHash> = request.blocks.iter().map(|block| name(block.0 as u32)).collect();
            let run = simulated.run(&names).0;
            let hit = serve(&fixture.memory, &request, |block| {
                simulated.use_one(block, &use_now());
            });
            assert_eq!(hit as u64, run, "{policy}, {rule}, seed {seed}, request at {:?}", request.at);
            (hits, evicted) = (hits + hit, simulated.evicted().0);
        }
        assert_eq!(fixture.memory.stats().evictions_total, evicted, "{policy}, {rule}, seed {seed}");
        assert!(hits > 300 && evicted > 100, "{policy}, {rule}, seed {seed}: {hits} hits, {evicted} evicted");
        assert_eq!(fixture.memory.stats().declined_total > 0, rule != Rule::All);
    }
}

/// With LRU it is of no matter that the simulator makes room after a request and the node before each block.
#[test]
fn a_node_hits_what_the_simulator_hits() {
    let (fixture, mut simulated) = (memory(30, Policy::Lru), tidepool_sim::Pool::new(Blocks(30), Policy::Lru.build()));
    for request in trace(4) {
        let hits = serve(&fixture.memory, &request, |_| {});
        // An engine that has read and put all of a request has used all of it.
        fixture.memory.confirm(&request.blocks.iter().map(|block| id(&key(block.0 as u32))).collect::<Vec<_>>());
        assert_eq!(simulated.serve(&request), Blocks(hits as u64), "request at {:?}", request.at);
    }
}

/// A batch that is put and one that is read lose their ends first: a suffix is useless without its prefix.
#[test]
fn of_a_batch_the_end_goes_before_the_start() {
    let fixture = memory(8, Policy::Lru);
    for block in (0..8).rev() {
        assert!(store(&fixture.memory, block, Pin::None));
    }
    put(&fixture.memory, &key(100), &[7; BLOCK]).unwrap();
    assert!((0..8).all(|block| is_held(&fixture.memory, block) == (block != 7)));
    let names: Vec<SlotName> = (0..7).filter_map(|block| slot_of(&fixture.memory, block)).collect();
    fixture.memory.touch(&names, &[]);
    for block in 101..103 {
        put(&fixture.memory, &key(block), &[7; BLOCK]).unwrap();
    }
    assert!(
        (0..7).all(|block| is_held(&fixture.memory, block) == (block != 6)),
        "100 and the end of what was read are gone"
    );
}
