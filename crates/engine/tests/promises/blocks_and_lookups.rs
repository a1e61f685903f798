//! Look-ups and transfers against a real node.

use crate::reports::{PATIENCE, eventually, wait};
use std::time::Duration;
use tempfile::TempDir;
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_engine::plan::Need;
use tidepool_engine::{
    Chain, Direction, Finished, Hashes, HostMover, Job, KeyPrefix, Layout, Lookup, LookupConfig, Part, Piece,
    TransferConfig, Transfers,
};
use tidepool_node::{Node, NodeConfig};
use tidepool_types::Tier;

const BLOCKS: usize = 16;
const PIECE: usize = 4096;

struct Pool {
    node: Option<Node>,
    dir: TempDir,
}

impl Pool {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
        let config = NodeConfig { dir: dir.path().to_owned(), ..NodeConfig::small("n0") };
        Self { node: Some(Node::start(config).expect("a small node")), dir }
    }

    fn client(&self) -> Client {
        let config = ClientConfig { dir: self.dir.path().to_owned(), ..ClientConfig::default() };
        Client::connect(config).expect("a client")
    }
}

/// An engine's KV memory: two layers, in one allocation each.
struct Memory(Vec<Vec<u8>>);

impl Memory {
    fn new(fill: impl Fn(usize) -> u8) -> Self {
        Self((0..2).map(|layer| (0..BLOCKS * PIECE).map(|at| fill(layer * 131 + at / 7)).collect()).collect())
    }

    fn transfers(&mut self, client: &Client) -> Transfers {
        let piece = |layer: &mut Vec<u8>| Piece { base: layer.as_mut_ptr() as usize, stride: PIECE, len: PIECE };
        // The first group has both layers, the second none of this engine's memory.
        let groups = vec![self.0.iter_mut().map(piece).collect(), Vec::new()];
        let layout = Layout::new(groups, BLOCKS as u32).expect("a layout");
        // SAFETY: the memory outlives the transfers in every test, and is only looked at after they are over.
        let mover = unsafe { HostMover::new(layout) };
        Transfers::start(client, Box::new(mover), TransferConfig::default()).expect("threads")
    }

    fn block(&self, block: usize) -> Vec<u8> {
        self.0.iter().flat_map(|layer| &layer[block * PIECE..(block + 1) * PIECE]).copied().collect()
    }
}

fn hashes(numbers: impl IntoIterator<Item = u64>) -> Hashes {
    let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_be_bytes).collect();
    Hashes::new(bytes, 8).expect("whole hashes")
}

fn job(id: u64, names: &[u64], blocks: &[u32]) -> Job {
    let (prefix, hashes) = (KeyPrefix::new("test/g0/"), hashes(names.iter().copied()));
    let part = Part { group: 0, prefix, hashes, blocks: blocks.to_vec(), depth: 0, step: 1 };
    Job { id, parts: vec![part], origin: None }
}

fn chain(prefix: &str, step: usize, need: Need) -> Chain {
    Chain { prefix: KeyPrefix::new(prefix), step, need }
}

fn put(client: &Client, prefix: &str, names: impl IntoIterator<Item = u64>) {
    for name in names {
        let key = KeyPrefix::new(prefix).key(&name.to_be_bytes());
        client.put(key, &[7; 64], &PutOptions::default()).expect("space");
    }
}

#[test]
fn what_one_engine_saves_another_loads_into_other_blocks() {
    let pool = Pool::new();
    let mut written = Memory::new(|at| at as u8);
    let mut read = Memory::new(|_| 0);
    let saver = written.transfers(&pool.client());
    saver.submit(Direction::Save, job(1, &[10, 11, 12], &[3, 1, 15]));
    assert_eq!(wait(&saver), Finished { id: 1, direction: Direction::Save, failed: Vec::new() });
    assert_eq!((saver.stats().blocks_saved, saver.stats().bytes_saved), (3, 3 * 2 * PIECE as u64));
    saver.submit(Direction::Save, job(2, &[10, 11], &[3, 1]));
    wait(&saver);
    assert_eq!((saver.stats().blocks_saved, saver.stats().blocks_held), (3, 2));

    let loader = read.transfers(&pool.client());
    loader.submit(Direction::Load, job(7, &[10, 11, 12], &[0, 5, 9]));
    assert_eq!(wait(&loader), Finished { id: 7, direction: Direction::Load, failed: Vec::new() });
    drop((saver, loader));
    for (from, to) in [(3, 0), (1, 5), (15, 9)] {
        assert_eq!(written.block(from), read.block(to));
    }
    assert!(read.block(1).iter().all(|byte| *byte == 0), "a block that no job named was written to");
}

#[test]
fn a_load_reports_the_first_missing_block_and_all_after_it() {
    let pool = Pool::new();
    let mut memory = Memory::new(|at| at as u8);
    let transfers = memory.transfers(&pool.client());
    transfers.submit(Direction::Save, job(1, &[1, 2, 4], &[1, 2, 4]));
    wait(&transfers);
    transfers.submit(Direction::Load, job(2, &[1, 2, 3, 4], &[5, 6, 7, 8]));
    assert_eq!(wait(&transfers).failed, [(0, 7), (0, 8)]);
    assert_eq!((transfers.stats().blocks_loaded, transfers.stats().blocks_not_loaded), (2, 2));
}

#[test]
fn blocks_of_another_size_are_not_loaded() {
    let pool = Pool::new();
    put(&pool.client(), "test/g0/", [1]);
    let mut memory = Memory::new(|_| 0);
    let transfers = memory.transfers(&pool.client());
    transfers.submit(Direction::Load, job(1, &[1], &[0]));
    assert_eq!(wait(&transfers).failed, [(0, 0)]);
}

#[test]
fn a_job_without_blocks_and_one_that_cannot_be_are_reported_too() {
    let pool = Pool::new();
    let mut memory = Memory::new(|_| 0);
    let transfers = memory.transfers(&pool.client());
    transfers.submit(Direction::Load, Job { id: 1, parts: Vec::new(), origin: None });
    assert_eq!(wait(&transfers), Finished { id: 1, direction: Direction::Load, failed: Vec::new() });
    // Twice the same block, a block that is not there, a group that this engine has no part of.
    transfers.submit(Direction::Load, job(2, &[1, 2], &[4, 4]));
    assert_eq!(wait(&transfers).failed.len(), 2);
    transfers.submit(Direction::Save, job(3, &[1], &[BLOCKS as u32]));
    assert_eq!(wait(&transfers).failed.len(), 1);
}

#[test]
fn saves_and_loads_without_a_pool_are_reported_as_failed() {
    let mut pool = Pool::new();
    let client = pool.client();
    pool.node = None;
    let mut memory = Memory::new(|_| 0);
    let transfers = memory.transfers(&client);
    transfers.submit(Direction::Save, job(1, &[1], &[0]));
    assert_eq!(wait(&transfers).failed, [(0, 0)]);
    transfers.submit(Direction::Load, job(2, &[1], &[0]));
    assert_eq!(wait(&transfers).failed, [(0, 0)]);
}

#[test]
fn dropped_transfers_leave_the_memory_alone() {
    let pool = Pool::new();
    let mut memory = Memory::new(|at| at as u8);
    let transfers = memory.transfers(&pool.client());
    (0..200).for_each(|id| transfers.submit(Direction::Save, job(id, &[id], &[0])));
    drop(transfers);
    // Nothing reads or writes it any more: this would be a race otherwise, which a sanitizer sees.
    memory.0[0].fill(1);
}

#[test]
fn a_question_is_answered_later_and_then_remembered() {
    let pool = Pool::new();
    let client = pool.client();
    put(&client, "a/", 0..5);
    let lookup = Lookup::start(&client, vec![chain("a/", 1, Need::All)], LookupConfig::default()).expect("threads");
    let mut answer = None;
    eventually("an answer", || {
        answer = lookup.ask(hashes(0..8), 0, Duration::ZERO);
        answer.is_some()
    });
    assert_eq!(answer, Some(5));
    assert_eq!(lookup.ask(hashes(0..8), 0, Duration::ZERO), Some(5));
    let stats = lookup.stats();
    assert_eq!((stats.lookups, stats.blocks_asked, stats.blocks_found), (1, 8, 5));
    assert!(stats.remembered >= 1);
}

#[test]
fn a_look_up_names_node_and_tier_of_each_block() {
    let pool = Pool::new();
    let client = pool.client();
    put(&client, "a/", 0..5);
    let lookup = Lookup::start(&client, vec![chain("a/", 1, Need::All)], LookupConfig::default()).expect("threads");
    let found = lookup.find(hashes(0..8), 0, PATIENCE).expect("an answer");
    let places: Vec<(String, Tier)> = found.places(0).map(|(node, tier)| (node.to_string(), tier)).collect();
    assert_eq!(places, vec![("n0".to_owned(), Tier::Dram); 5]);
}

/// That nothing was there was remembered for a second, also by the engine that had stored it meanwhile.
#[test]
fn what_was_not_there_is_asked_for_again_once_the_engine_has_stored_something() {
    let pool = Pool::new();
    let client = pool.client();
    let lookup = Lookup::start(&client, vec![chain("a/", 1, Need::All)], LookupConfig::default()).expect("threads");
    assert_eq!(lookup.ask(hashes(0..4), 0, PATIENCE), Some(0));
    put(&client, "a/", 0..4);
    assert_eq!(lookup.ask(hashes(0..4), 0, PATIENCE), Some(0), "remembered");
    lookup.have_stored();
    assert_eq!(lookup.ask(hashes(0..4), 0, PATIENCE), Some(4));
    // What was there is remembered all the same.
    lookup.have_stored();
    assert_eq!(lookup.ask(hashes(0..4), 0, PATIENCE), Some(4));
    assert_eq!(lookup.stats().lookups, 2);
}

#[test]
fn only_blocks_after_those_that_the_engine_has_are_looked_for() {
    let pool = Pool::new();
    let client = pool.client();
    put(&client, "a/", 3..6);
    let lookup = Lookup::start(&client, vec![chain("a/", 1, Need::All)], LookupConfig::default()).expect("threads");
    assert_eq!(lookup.ask(hashes(0..8), 0, PATIENCE), Some(0));
    assert_eq!(lookup.ask(hashes(3..8), 3, PATIENCE), Some(3));
    assert_eq!(lookup.ask(hashes(8..8), 8, PATIENCE), Some(0));
}

#[test]
fn every_rank_and_every_group_must_have_what_it_needs() {
    let pool = Pool::new();
    let client = pool.client();
    let chains = vec![
        chain("g0.r0/", 1, Need::All),
        chain("g0.r1/", 1, Need::All),
        // Blocks of two hashed blocks each, of which the last two count.
        chain("g1.r0/", 2, Need::Last(2)),
    ];
    put(&client, "g0.r0/", 0..9);
    put(&client, "g0.r1/", 0..8);
    put(&client, "g1.r0/", [3, 5]);
    let lookup = Lookup::start(&client, chains, LookupConfig::default()).expect("threads");
    // Eight are there on all ranks, but the window before the eighth lacks its last block.
    assert_eq!(lookup.ask(hashes(0..10), 0, PATIENCE), Some(6));
    // A place inside a block of the second group cannot be asked about.
    assert_eq!(lookup.ask(hashes(1..10), 1, PATIENCE), Some(0));
}

#[test]
fn a_note_is_stored() {
    let pool = Pool::new();
    let client = pool.client();
    let lookup = Lookup::start(&client, Vec::new(), LookupConfig::default()).expect("threads");
    lookup.note(b"note".to_vec(), b"text".to_vec());
    eventually("the note is stored", || client.get("note").expect("a key") == Some(b"text".to_vec()));
}
