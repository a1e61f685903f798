//! Batches in many parts stop between two parts: when the pool takes no blocks, when the engine ends, when its memory
//! is gone. And one job does not wait for another job's host.

use crate::a_gpu_that_fails::Program;
use crate::gpu::{BLOCK, BLOCKS, Engine, Pool, Watched, all, done, job, key, start_node};
use crate::reports::{eventually, wait, wait_for};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tidepool_client::door::{DoorError, Moment};
use tidepool_client::{Client, ClientConfig, NodeName, Pin, PutOptions, View};
use tidepool_cuda::Driver as _;
use tidepool_engine::{Direction, Finished, Mover as _, Placed, TransferConfig, Transfers};

/// Blocks of 6 MiB: five of them are a part of what goes through memory of the worker.
const LARGE: [usize; 3] = [2 << 20; 3];

/// Fills the pool's node with blocks that cannot go.
fn fill(pool: &Pool, client: &Client) -> Vec<View> {
    let pin = PutOptions { pin: Pin::Hard, ..PutOptions::default() };
    let bytes = vec![7; 6 << 20];
    (100..110).for_each(|name| assert!(client.put(key(name), &bytes[..], &pin).is_ok()));
    let mut views = Vec::new();
    for name in 110..140 {
        let put = client.within(Duration::from_millis(300)).put(key(name), &bytes[..], &PutOptions::default());
        if put.is_err() {
            break;
        }
        views.extend(client.view(key(name)).expect("a pool"));
    }
    assert!(pool.node.as_ref().expect("a node").memory().stats().free_bytes < 6 << 20, "the pool has room");
    views
}

/// A moment that never comes. Says when a job waits for it, and when that is to end.
struct Never(SyncSender<()>);

impl Moment for Never {
    fn wait(self: Box<Self>, go_on: &dyn Fn() -> bool) -> Result<bool, DoorError> {
        let _ = self.0.send(());
        eventually("the job is to end", || !go_on());
        let _ = self.0.send(());
        Ok(false)
    }
}

/// Drops transfers, with jobs under way; when this returns, those of that direction have been told to end.
fn end(transfers: Transfers, direction: Direction) -> JoinHandle<()> {
    let (tell, told) = sync_channel(1);
    transfers.submit_after(direction, job(99, &[], &[]), Some(Box::new(Never(tell))));
    told.recv().expect("a job that waits");
    let ending = std::thread::spawn(move || drop(transfers));
    told.recv().expect("a job that ends");
    ending
}

/// Every part was tried, each for as long as the deadline: nearly a minute for a GiB, in which the engine's blocks were held.
#[test]
fn a_save_through_the_workers_memory_ends_with_the_first_part_that_the_pool_does_not_take() {
    let pool = Pool::new();
    let holder = pool.client();
    let views = fill(&pool, &holder);
    let engine = Engine::with(LARGE, |at| at as u8);
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let config = TransferConfig { save_deadline: Duration::from_millis(500), ..TransferConfig::default() };
    let transfers = engine.transfers_with(&client, config);
    let before = engine.driver.copied();
    let (names, blocks) = all();
    transfers.submit(Direction::Save, job(1, &names, &blocks));
    assert!(!wait(&transfers).failed.is_empty());
    let copied = engine.driver.copied() - before;
    assert!(copied <= 2 * (30 << 20), "{} MiB were copied for a pool that takes nothing", copied >> 20);
    drop(views);
}

#[test]
fn a_save_straight_from_the_gpu_ends_with_the_first_flight_that_the_pool_does_not_take() {
    let pool = Pool::without_node();
    let client = pool.client();
    let engine = Engine::new(|at| at as u8);
    let transfers = engine.transfers(&client);
    let (names, blocks) = all();
    transfers.submit(Direction::Save, job(1, &names, &blocks));
    assert_eq!(wait(&transfers).failed.len(), BLOCKS);
    // Two flights of two blocks are under way at a time.
    let refused = client.stats().puts_failed;
    assert!((2..=4).contains(&refused), "{refused} blocks were offered to a pool that takes none");
}

/// Every flight, and then every part, waited for room that there was not, for as long as its deadline, before its blocks went
/// to the other host.
#[test]
fn a_full_node_of_this_host_is_asked_to_make_room_by_the_first_flights_only() {
    let pool = Pool::new();
    let views = fill(&pool, pool.looker());
    let far = pool.far_node(&[]);
    let engine = Engine::with(LARGE, |at| at as u8);
    let client = pool.client();
    let config = TransferConfig { save_deadline: Duration::from_millis(400), ..TransferConfig::default() };
    let refused = || pool.node.as_ref().expect("a node").memory().stats().no_space_total;
    let before = refused();
    let (names, blocks) = all();
    assert_eq!(done(&engine.transfers_with(&client, config), Direction::Save, job(1, &names, &blocks)), []);
    assert_eq!(far.node.memory().stats().blocks, BLOCKS as u64);
    // What went through the host's memory after all was counted as failed before it was stored.
    assert_eq!(client.stats().puts_failed, 0);
    let asked = refused() - before;
    assert!((1..=4).contains(&asked), "room for {asked} blocks was asked of a node that has none");
    drop(views);
}

/// All of a load, gigabytes of it, was copied before it was found out that its first block was missing.
#[test]
fn a_load_ends_with_the_first_flight_of_which_a_block_is_missing() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    // Of each of the two flights that are under way at a time, one.
    let is_there = |block: &usize| ![0, 2].contains(block);
    (0..BLOCKS).filter(is_there).for_each(|block| pool.put(block as u64, &engine.block(block)));
    let before = engine.driver.copied();
    let (names, blocks) = all();
    assert_eq!(done(&engine.transfers(&pool.client()), Direction::Load, job(1, &names, &blocks)).len(), BLOCKS);
    let copied = engine.driver.copied() - before;
    assert!(copied <= 2 * BLOCK, "{copied} bytes were copied for a load that comes to nothing");
}

#[test]
fn flights_bring_every_block_to_its_own_place_whichever_host_has_it() {
    let mut pool = Pool::without_node();
    let written = Engine::new(|at| (at ^ (at >> 8)) as u8);
    let _far = pool.far_node(&[1, 2, 3].map(|block| written.block(block)));
    pool.node = Some(start_node("n0", &pool.config()));
    (4..BLOCKS).chain([0]).for_each(|block| pool.put(block as u64, &written.block(block)));
    let read = Engine::new(|_| 0);
    let (names, blocks) = all();
    let behind: Vec<u32> = blocks.iter().rev().copied().collect();
    let client = pool.client();
    assert_eq!(done(&read.transfers(&client), Direction::Load, job(1, &names, &behind)), []);
    assert_eq!((client.stats().hits_tcp, client.stats().hits_shm), (3, BLOCKS as u64 - 3));
    (0..BLOCKS).for_each(|block| assert!(read.block(BLOCKS - 1 - block) == written.block(block), "block {block}"));
    let others: Vec<u64> = names.iter().map(|name| name + 100).collect();
    assert_eq!(done(&read.transfers(&client), Direction::Save, job(2, &others, &behind)), []);
    (0..BLOCKS)
        .for_each(|block| assert!(pool.stored(100 + block as u64) == Some(written.block(block)), "block {block}"));
}

#[test]
fn a_job_ends_with_the_flights_under_way_when_the_engine_does() {
    for direction in [Direction::Load, Direction::Save] {
        let pool = Pool::new();
        let engine = Engine::new(|at| at as u8);
        let (mut names, blocks) = all();
        (0..BLOCKS).for_each(|block| pool.put(block as u64, &engine.block(block)));
        if direction == Direction::Save {
            names.iter_mut().for_each(|name| *name += 100);
        }
        let client = pool.client();
        let begun = Arc::new(AtomicU32::new(0));
        let noted = begun.clone();
        let noting = move || {
            noted.fetch_add(1, Ordering::Relaxed);
        };
        let transfers = engine.transfers_through(Watched::new(&engine, || {}, noting), &client);
        let before = engine.driver.copied();
        engine.driver.hold_after(0);
        transfers.submit(direction, job(1, &names, &blocks));
        eventually("two flights are under way", || begun.load(Ordering::Relaxed) == 2);
        let ending = end(transfers, direction);
        engine.driver.go_on();
        ending.join().expect("ended");
        assert_eq!(engine.driver.copied() - before, 4 * BLOCK, "a {direction:?} went on");
        assert_eq!(pool.node.as_ref().expect("a node").memory().stats().reserved, 0);
        drop(client);
        engine.end();
    }
}

/// Blocks of a part that was never copied were said to be there.
#[test]
fn a_load_through_the_workers_memory_ends_with_the_first_part_of_which_a_block_is_missing() {
    let pool = Pool::new();
    let written = Engine::with(LARGE, |at| (at ^ (at >> 8)) as u8);
    (0..BLOCKS).filter(|block| *block != 2).for_each(|block| pool.put(block as u64, &written.block(block)));
    let mut read = Engine::with(LARGE, |_| 0);
    read.flight *= BLOCKS;
    let far = Client::connect(pool.config_elsewhere()).expect("a client");
    let (names, blocks) = all();
    let failed = done(&read.transfers(&far), Direction::Load, job(1, &names, &blocks));
    assert_eq!(failed, (2..BLOCKS as u32).map(|block| (0, block)).collect::<Vec<_>>());
    (0..2).for_each(|block| assert!(read.block(block) == written.block(block), "block {block}"));
}

#[test]
fn a_half_of_the_workers_memory_is_not_filled_again_before_the_gpu_has_what_was_in_it() {
    let pool = Pool::new();
    let written = Engine::with(LARGE, |at| (at ^ (at >> 8) ^ (at >> 16)) as u8);
    (0..BLOCKS).for_each(|block| pool.put(block as u64, &written.block(block)));
    let mut read = Engine::with(LARGE, |_| 0);
    read.flight *= BLOCKS;
    // Nothing is copied when it is first asked after.
    read.driver.delay(50);
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let (names, blocks) = all();
    assert_eq!(done(&read.transfers(&client), Direction::Load, job(1, &names, &blocks)), []);
    (0..BLOCKS).for_each(|block| assert!(read.block(block) == written.block(block), "block {block}: other bytes"));
}

/// All of a batch, a GiB, was fetched before a worker could end.
#[test]
fn a_load_from_another_host_ends_with_the_part_under_way_when_the_engine_does() {
    let pool = Pool::new();
    let mut engine = Engine::with(LARGE, |at| at as u8);
    engine.flight *= BLOCKS;
    (0..BLOCKS).for_each(|block| pool.put(block as u64, &engine.block(block)));
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    let (names, blocks) = all();
    transfers.submit(Direction::Load, job(1, &names, &blocks));
    // Two parts: the second waits for the first one's copies.
    eventually("both halves are full", || client.stats().hits_tcp >= 10);
    let ending = end(transfers, Direction::Load);
    engine.driver.go_on();
    ending.join().expect("ended");
    assert_eq!(client.stats().hits_tcp, 10, "blocks were fetched for an engine that ends");
    drop(client);
    engine.end();
}

/// It was asked before a batch only, and then the pool made room for seconds.
#[test]
fn memory_that_was_freed_while_the_pool_made_room_is_not_copied() {
    let pool = Pool::new();
    let holder = pool.client();
    let views = fill(&pool, &holder);
    let mut engine = Engine::with([3 << 20, 3 << 20, 16 << 10], |at| at as u8);
    let client = pool.client();
    let config = TransferConfig { save_deadline: Duration::from_secs(5), ..TransferConfig::default() };
    let transfers = engine.transfers_with(&client, config);
    transfers.submit(Direction::Save, job(1, &[1], &[1]));
    let waiting = || pool.node.as_ref().expect("a node").memory().stats().waiting;
    eventually("it waits for room", || waiting() == 1);
    assert!(!engine.driver.is_busy(), "the pool had room");
    engine.driver.free(engine.layers.remove(2));
    drop(views);
    assert_eq!(wait(&transfers).failed, [(0, 1)]);
    assert!(!engine.driver.recover(), "the GPU was asked to copy memory that is not its own");
}

#[test]
fn nothing_is_begun_for_an_engine_that_ends() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    pool.put(1, &engine.block(1));
    let keys = [key(1), key(2)];
    let [held, new] = [0, 1].map(|at| Placed { key: &keys[at], group: 0, block: 5, depth: 0 });
    let mover = engine.mover();
    let before = engine.driver.copied();
    assert_eq!(mover.load(&pool.client(), &[held], &|| false), [false]);
    let far = Client::connect(pool.config_elsewhere()).expect("a client");
    assert_eq!(mover.load(&far, &[held], &|| false), [false]);
    // It ends once it is known that the block has to go through the worker's memory.
    let asked = AtomicU32::new(0);
    let once = || asked.fetch_add(1, Ordering::Relaxed) == 0;
    assert!(mover.save(&far, &[new], &PutOptions::default(), &once)[0].is_err());
    assert_eq!(engine.driver.copied(), before);
}

#[test]
fn a_job_that_names_a_block_which_the_engine_does_not_have_moves_nothing() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    [1, 2].into_iter().for_each(|name| pool.put(name, &engine.block(name as usize)));
    let mover = engine.mover();
    let before = engine.driver.copied();
    for client in [pool.client(), Client::connect(pool.config_elsewhere()).expect("a client")] {
        let keys = [1, 2, 11, 12].map(key);
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|at| {
            let block = [5, BLOCKS as u32][at % 2];
            Placed { key: &keys[at], group: 0, block, depth: 0 }
        });
        assert_eq!(mover.load(&client, &[first, second], &|| true), [false, false]);
        let saved = mover.save(&client, &[third, fourth], &PutOptions::default(), &|| true);
        assert!(saved.iter().all(Result::is_err), "{saved:?}");
    }
    assert_eq!(engine.driver.copied(), before);
}

#[test]
fn a_block_that_is_named_twice_is_not_filled_by_two_at_once() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    [1, 2].into_iter().for_each(|name| pool.put(name, &engine.block(name as usize)));
    let keys = [key(1), key(2)];
    let batch = [0, 1].map(|at| Placed { key: &keys[at], group: 0, block: 5, depth: 0 });
    let mover = engine.mover();
    let before = engine.driver.copied();
    assert_eq!(mover.load(&pool.client(), &batch, &|| true), [false, false]);
    assert_eq!(engine.driver.copied(), before);
}

#[test]
fn saves_that_wait_for_the_gpu_do_not_keep_loads_from_another_host_waiting() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    pool.put(1, &engine.block(1));
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    // As many as have memory of the worker at the same time.
    let transfers = engine.transfers_with(&client, TransferConfig { save_threads: 4, ..TransferConfig::default() });
    engine.driver.hold_after(0);
    (10..14).for_each(|name| transfers.submit(Direction::Save, job(name, &[name], &[name as u32])));
    eventually("all of them wait for the GPU", || engine.driver.events_asked_after() == 4);
    transfers.submit(Direction::Load, job(1, &[1], &[5]));
    eventually("the load has its block", || client.stats().hits_tcp == 1);
    engine.driver.go_on();
    let over = wait_for(5, &transfers);
    assert!(over.iter().all(|job| job.failed.is_empty()), "{over:?}");
}

/// The third was said to be there, and had never been copied.
#[test]
fn only_blocks_that_are_there_are_said_to_be() {
    let pool = Pool::new();
    let source = Engine::new(|at| at as u8);
    [1, 2].into_iter().for_each(|name| pool.put(name, &source.block(name as usize)));
    let engine = Engine::new(|_| 0);
    for config in [pool.config(), pool.config_elsewhere()] {
        let client = Client::connect(config).expect("a client");
        let mover = engine.mover();
        let keys = [key(1), key(99), key(2)];
        let batch: Vec<Placed<'_>> =
            keys.iter().zip(0..).map(|(key, block)| Placed { key, group: 0, block, depth: 0 }).collect();
        let there = mover.load(&client, &batch, &|| true);
        assert!(there[0] && !there[1], "{there:?}");
        for (block, name) in [(0, 1), (2, 2)] {
            assert!(!there[block] || engine.block(block) == source.block(name), "block {block} is not there");
        }
    }
}

/// Loads from all hosts took turns at one piece of memory.
#[test]
fn a_load_from_a_host_that_is_stopped_does_not_hold_up_one_from_another() {
    let pool = Pool::without_node();
    let stopped = Program::start("node", &pool);
    let engine = Engine::new(|at| at as u8);
    pool.put(1, &engine.block(1));
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
    let config = ClientConfig { dir: elsewhere.path().to_owned(), ..pool.config() };
    let _other = start_node("n9", &config);
    let writer = Client::connect(config).expect("a client");
    let there = PutOptions { prefer: vec![NodeName::new("n9").expect("a name")], ..PutOptions::default() };
    writer.put(key(2), &engine.block(2)[..], &there).expect("space");
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    eventually("the client has reached both hosts", || {
        [1, 2].into_iter().all(|name| client.get(key(name)).is_ok_and(|found| found.is_some()))
    });
    let transfers = engine.transfers(&client);
    stopped.signal(Signal::STOP);
    transfers.submit(Direction::Load, job(1, &[1], &[1]));
    eventually("it has both halves of its memory", || engine.driver.books().pinned == 2);
    transfers.submit(Direction::Load, job(2, &[2], &[2]));
    let first = wait(&transfers);
    stopped.signal(Signal::CONT);
    assert_eq!((first.id, first.failed), (2, vec![]));
    eventually("the other is over, too", || is_over(&transfers));
}

fn is_over(transfers: &Transfers) -> bool {
    transfers.poll().iter().any(|Finished { id, .. }| *id == 1)
}
