//! Saves and loads of a GPU's blocks, with a real node and a pretended driver.

use crate::gpu::{BLOCK, BLOCKS, Engine, PIECES, Pool, all, done, job, key, start_node};
use crate::reports::{eventually, wait};
use std::time::{Duration, Instant};
use tidepool_client::door::{DevicePiece, Door as _, Span, Way};
use tidepool_client::{Client, ClientConfig, DeviceParts, NodeName, Parts, PutItem, PutOptions, Verify};
use tidepool_cuda::Driver as _;
use tidepool_engine::{Direction, TransferConfig};

/// Of blocks with three such pieces, 32 MiB of staging memory take ten.
const LARGE: usize = 1 << 20;

#[test]
fn what_one_gpu_saves_another_loads_bit_for_bit_and_straight_from_shared_memory() {
    let pool = Pool::new();
    let (written, read) = (Engine::new(|at| at as u8), Engine::new(|_| 0));
    // Copies are done late: whoever looked at them early would see nothing.
    written.driver.delay(5);
    read.driver.delay(5);
    let (saver, loader) = (written.transfers(&pool.client()), read.transfers(&pool.client()));
    let before = (written.driver.copied(), read.driver.copied());
    assert_eq!(done(&saver, Direction::Save, job(1, &[10, 11, 12], &[3, 1, 15])), []);
    assert_eq!(done(&loader, Direction::Load, job(7, &[10, 11, 12], &[0, 5, 9])), []);
    for (engine, before) in [(&written, before.0), (&read, before.1)] {
        // The table of the kernel apart, each byte was copied once.
        let copied = engine.driver.copied() - before;
        assert!((3 * BLOCK..3 * BLOCK + 1024).contains(&copied), "{copied} bytes copied for {} of blocks", 3 * BLOCK);
    }
    for (from, to) in [(3, 0), (1, 5), (15, 9)] {
        assert_eq!(written.block(from), read.block(to));
    }
    assert!(read.block(1).iter().all(|byte| *byte == 0), "a block that no job named was written to");
    assert_eq!(done(&saver, Direction::Save, job(2, &[10, 11], &[3, 1])), []);
    assert_eq!((saver.stats().blocks_saved, saver.stats().blocks_held), (3, 2));
    // Checksums were made from the slab: a reader that verifies agrees with them.
    let verifying = Client::connect(ClientConfig { verify: Verify::Always, ..pool.config() }).expect("a client");
    assert_eq!(verifying.get(key(10)).expect("no error"), Some(written.block(3)));
}

#[test]
fn the_time_that_checksums_take_is_counted() {
    let pool = Pool::new();
    let engine = Engine::with([LARGE; 3], |at| at as u8);
    let saver = engine.transfers(&pool.client());
    let (names, blocks) = all();
    assert_eq!(done(&saver, Direction::Save, job(1, &names, &blocks)), []);
    let stats = saver.stats();
    // Two flights make them at the same time.
    assert!((1..=2 * stats.save_micros).contains(&stats.checksum_micros), "{stats:?}");
}

#[test]
fn blocks_of_another_host_are_staged_in_runs_both_ways() {
    let pool = Pool::new();
    let config = pool.config_elsewhere();
    let pieces = [LARGE, LARGE + 8, LARGE];
    let (written, read) = (Engine::with(pieces, |at| (at * 3) as u8), Engine::with(pieces, |_| 0));
    let client = || Client::connect(config.clone()).expect("a client");
    let (saver, loader) = (written.transfers(&client()), read.transfers(&client()));
    let (names, blocks) = all();
    assert_eq!(done(&saver, Direction::Save, job(1, &names, &blocks)), []);
    assert_eq!(done(&loader, Direction::Load, job(2, &names, &blocks)), []);
    assert_eq!(done(&loader, Direction::Load, job(3, &[1, 99, 2], &[0, 1, 2])), [(0, 1), (0, 2)]);
    (0..BLOCKS).filter(|block| *block > 0).for_each(|block| assert_eq!(written.block(block), read.block(block)));
    drop((saver, loader));
    written.end();
    read.end();
}

#[test]
fn a_remote_load_fetches_what_comes_next_while_the_gpu_has_the_rest() {
    let pool = Pool::new();
    let (names, blocks) = all();
    names.iter().for_each(|name| pool.put(*name, &vec![*name as u8; 3 * LARGE]));
    let mut engine = Engine::with([LARGE; 3], |_| 0);
    engine.flight *= BLOCKS;
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let loader = engine.transfers(&client);
    engine.driver.hold_after(0);
    let copied = engine.driver.copied();
    loader.submit(Direction::Load, job(1, &names, &blocks));
    // More than fits into one half of the staging memory is here, and the GPU has done nothing yet.
    let both_halves = BLOCKS as u64;
    eventually("the second half is filled", || client.stats().hits_tcp == both_halves);
    assert!(engine.driver.is_busy() && engine.driver.copied() == copied);
    engine.driver.go_on();
    assert_eq!(wait(&loader).failed, []);
    drop((loader, client));
    blocks.iter().for_each(|block| assert!(engine.block(*block as usize).iter().all(|byte| *byte == *block as u8)));
}

#[test]
fn a_remote_save_sends_what_has_come_while_the_gpu_has_the_rest() {
    let pool = Pool::new();
    let mut engine = Engine::with([LARGE; 3], |at| at as u8);
    engine.flight *= BLOCKS;
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let saver = engine.transfers(&client);
    // What goes into the first half is copied, and no more.
    engine.driver.hold_after(1);
    let (names, blocks) = all();
    saver.submit(Direction::Save, job(1, &names, &blocks));
    eventually("the first half is stored", || pool.stored(9).is_some());
    assert!(engine.driver.is_busy() && pool.stored(BLOCKS as u64 - 1).is_none());
    engine.driver.go_on();
    assert_eq!(wait(&saver).failed, []);
    assert_eq!(pool.stored(15).expect("stored"), engine.block(15));
}

#[test]
fn what_came_from_another_host_is_copied_to_this_one_on_demand() {
    let mut pool = Pool::without_node();
    let engine = Engine::new(|at| at as u8);
    let stored = [engine.block(1), engine.block(2)];
    let _far = pool.far_node(&stored);
    pool.node = Some(start_node("here", &pool.config()));
    let load = |config| {
        let client = pool.client();
        let loader = engine.transfers_with(&client, config);
        assert_eq!(done(&loader, Direction::Load, job(1, &[1, 2], &[4, 5])), []);
        assert_eq!([engine.block(4), engine.block(5)], stored);
        (client, loader)
    };
    let (client, loader) = load(TransferConfig::default());
    assert_eq!((client.stats().hits_tcp, loader.stats().blocks_replicated), (2, 0));
    let (client, loader) = load(TransferConfig { replica_rate: 1 << 20, ..TransferConfig::default() });
    assert_eq!(client.stats().hits_tcp, 2, "unasked, blocks were copied here");
    eventually("the node here has both", || loader.stats().blocks_replicated == 2);
    let (client, _loader) = load(TransferConfig { replica_rate: 1 << 20, ..TransferConfig::default() });
    assert_eq!((client.stats().hits_tcp, client.stats().hits_shm), (0, 2));
}

#[test]
fn a_reader_that_verifies_everything_gets_its_blocks_through_memory_that_it_can_look_at() {
    let pool = Pool::new();
    let (written, read) = (Engine::new(|at| at as u8), Engine::new(|_| 0));
    assert_eq!(done(&written.transfers(&pool.client()), Direction::Save, job(1, &[1], &[1])), []);
    let verifying = Client::connect(ClientConfig { verify: Verify::Always, ..pool.config() }).expect("a client");
    let (verifying, trusting) = (read.transfers(&verifying), read.transfers(&pool.client()));
    assert_eq!(done(&verifying, Direction::Load, job(2, &[1], &[2])), []);
    assert_eq!(written.block(1), read.block(2));
    pool.damage(&written.block(1));
    // As the architecture has it, bytes of this host's memory are trusted unless somebody wants them looked at.
    assert_eq!(done(&trusting, Direction::Load, job(3, &[1], &[3])), []);
    assert_ne!(written.block(1), read.block(3), "nothing was damaged, so nothing is proved");
    assert_eq!(done(&verifying, Direction::Load, job(4, &[1], &[4])), [(0, 4)]);
}

#[test]
fn copies_of_what_came_from_another_host_take_no_more_than_their_rate() {
    let mut pool = Pool::without_node();
    let engine = Engine::new(|at| at as u8);
    let _far = pool.far_node(&[1, 2, 3, 4].map(|block| engine.block(block)));
    pool.node = Some(start_node("here", &pool.config()));
    let client = pool.client();
    // Two blocks a second.
    let config = TransferConfig { replica_rate: 2 * BLOCK, ..TransferConfig::default() };
    let loader = engine.transfers_with(&client, config);
    let began = Instant::now();
    assert_eq!(done(&loader, Direction::Load, job(1, &[1, 2, 3, 4], &[4, 5, 6, 7])), []);
    eventually("the node here has all", || loader.stats().blocks_replicated == 4);
    let least = Duration::from_millis(1500);
    assert!(began.elapsed() >= least, "four blocks, two a second, took {:?}", began.elapsed());
}

#[test]
fn a_job_waits_for_the_moment_it_was_given() {
    let pool = Pool::new();
    let engine = Engine::new(|_| 1);
    // The engine's own stream is to overwrite a block: what is saved is what it wrote.
    let stream = engine.driver.stream().expect("a stream");
    let mut newer = vec![9u8; PIECES[0]];
    // SAFETY: the bytes outlive the copy, which the moment waits for.
    let _pin = unsafe { engine.gpu.pin(newer.as_mut_ptr(), newer.len(), true) }.expect("pinned");
    let span = Span { host: newer.as_mut_ptr(), device: engine.layers[0], len: newer.len() };
    engine.driver.copy(Way::In, &[span], stream).expect("begun");
    engine.driver.delay(50);
    let moment = engine.gpu.moment(stream).expect("recorded");
    let transfers = engine.transfers(&pool.client());
    transfers.submit_after(Direction::Save, job(1, &[1], &[0]), Some(moment));
    assert_eq!(wait(&transfers).failed, []);
    let stored = pool.stored(1).expect("stored");
    assert!(stored[..PIECES[0]].iter().all(|byte| *byte == 9) && stored[PIECES[0]..].iter().all(|byte| *byte == 1));
}

#[test]
fn blocks_are_not_touched_when_the_moment_before_them_has_failed() {
    for (direction, name) in [(Direction::Load, 1), (Direction::Save, 7)] {
        let pool = Pool::new();
        let engine = Engine::new(|at| at as u8);
        pool.put(1, &engine.block(1));
        let before = engine.block(2);
        let transfers = engine.transfers(&pool.client());
        let stream = engine.driver.stream().expect("a stream");
        let moment = engine.gpu.moment(stream).expect("recorded");
        engine.driver.fail_once_after(0);
        transfers.submit_after(direction, job(1, &[name], &[2]), Some(moment));
        assert_eq!(wait(&transfers).failed, [(0, 2)], "{direction:?}");
        assert_eq!((engine.block(2) == before, pool.stored(7)), (true, None), "{direction:?}");
    }
}

#[test]
fn a_job_that_cannot_begin_is_reported_and_touches_nothing() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let transfers = engine.transfers(&pool.client());
    transfers.give_up(Direction::Save, job(1, &[1, 2], &[1, 2]), "for the test");
    assert_eq!(wait(&transfers).failed, [(0, 1), (0, 2)]);
    assert_eq!((pool.stored(1), transfers.stats().blocks_not_saved), (None, 2));
}

#[test]
fn a_block_of_another_length_is_not_loaded() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let whole = engine.block(1);
    pool.put(1, &whole[..whole.len() - 64]);
    pool.put(2, &[&whole[..], &[1; 64]].concat());
    for config in [pool.config(), pool.config_elsewhere()] {
        let transfers = engine.transfers(&Client::connect(config).expect("a client"));
        for name in [1, 2] {
            assert_eq!(done(&transfers, Direction::Load, job(name, &[name], &[2])), [(0, 2)]);
        }
    }
}

#[test]
fn no_gpu_is_asked_to_copy_anothers_memory() {
    let pool = Pool::new();
    let (one, other) = (Engine::new(|at| at as u8), Engine::new(|at| at as u8));
    let client = pool.client();
    let keys = [key(1), key(2)];
    let items = [&one, &other].into_iter().zip(&keys).map(|(engine, key)| {
        let piece = DevicePiece { address: engine.layers[1], len: PIECES[1] };
        // SAFETY: the pretended GPU keeps its memory, and nobody writes to it.
        let parts = unsafe { DeviceParts::new(&*engine.gpu, vec![piece]) };
        PutItem::new(key, Parts::Device(parts))
    });
    let stored = client.put_batch(&items.collect::<Vec<_>>(), &PutOptions::default());
    assert!(stored.iter().all(Result::is_err), "{stored:?}");
    assert!(!one.driver.recover() && !other.driver.recover(), "a GPU was given addresses that are not its own");
    drop(client);
    one.end();
    other.end();
}

#[test]
fn a_block_whose_space_is_reused_under_the_copy_is_not_loaded() {
    let pool = Pool::new();
    let engine = Engine::new(|_| 1);
    pool.put(1, &engine.block(1));
    let client = pool.client();
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    transfers.submit(Direction::Load, job(1, &[1], &[2]));
    eventually("the copy is under way", || engine.driver.is_busy());
    // Another block takes its place before the GPU gets to it.
    let other = vec![7; BLOCK as usize];
    pool.looker().remove_all().expect("removed");
    pool.put(2, &other);
    engine.driver.go_on();
    assert_eq!(wait(&transfers).failed, [(0, 2)], "another block's bytes were taken for this one's");
    assert_eq!(engine.block(2), other, "nothing was reused, so nothing is proved");
}

#[test]
fn what_a_node_of_this_host_has_no_room_for_goes_to_another_host() {
    // A node that drains said that it had no room, and that was that: nobody sent the blocks elsewhere, as they are from the
    // host's memory. Each engine beside a node that is being emptied saved nothing.
    let mut pool = Pool::without_node();
    let far = pool.far_node(&[]);
    pool.node = Some(start_node("here", &pool.config()));
    let here = NodeName::new("here").expect("a name");
    pool.looker().drain(&here, Duration::from_secs(60)).expect("told");
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let saver = engine.transfers(&client);
    assert_eq!(done(&saver, Direction::Save, job(1, &[1, 2], &[1, 2])), []);
    assert_eq!(far.node.memory().stats().blocks, 2);
    assert_eq!(pool.stored(2), Some(engine.block(2)));
    drop((saver, client));
    engine.end();
}
