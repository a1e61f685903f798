//! A failure around a GPU costs blocks: the engine goes on, and nothing stays pinned, reserved or half-written.

use crate::gpu::{BLOCKS, Engine, PIECES, Pool, Watched, all, done, job, start_node};
use crate::reports::{eventually, wait};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use tidepool_client::door::Door as _;
use tidepool_client::{Client, ClientConfig};
use tidepool_cuda::Driver as _;
use tidepool_cuda::fake::Fake;
use tidepool_engine::{DeviceMover, Direction, Layout, LayoutError, Piece};

/// How a driver fails, and after how many calls.
type Fail = fn(&Fake, u32);
const WAYS: [(&str, Fail); 3] =
    [("once", Fake::fail_once_after), ("once, losing copies", Fake::spoil_once_after), ("for good", Fake::fail_after)];

#[test]
fn a_driver_that_fails_at_any_call_costs_blocks_and_nothing_else() {
    let pool = Pool::new();
    for way in [Direction::Save, Direction::Load] {
        // Five blocks are three flights. Eleven blocks of 3 MiB, of one flight, go through the worker's memory in two parts, one
        // on its way while the other is got.
        for (config, pieces, blocks, longer) in [
            (pool.config(), PIECES, 5, 1),
            (pool.config_elsewhere(), PIECES, 2, 1),
            (pool.config_elsewhere(), [1 << 20; 3], 11, BLOCKS),
        ] {
            for failing in WAYS {
                let engine = || {
                    let engine = Engine::with(pieces, |at| (at * 5) as u8);
                    Engine { flight: longer * engine.flight, ..engine }
                };
                // Each call in turn, until there are no more of them.
                let fails = |calls: &u32| fails_at(&pool, &config, (engine(), blocks), way, failing, *calls);
                let tries = (0..).take_while(fails).count();
                // At the least memory is pinned, a lane made, a copy begun, recorded and asked after.
                assert!(tries > 6, "{tries} calls to {way:?} blocks");
            }
        }
    }
}

/// Moves an engine's first blocks with a driver that fails after so many calls; whether it came to that.
fn fails_at(
    pool: &Pool,
    config: &ClientConfig,
    (engine, count): (Engine, usize),
    direction: Direction,
    (how, fail): (&str, Fail),
    calls: u32,
) -> bool {
    let node = pool.node.as_ref().expect("a node").memory();
    pool.looker().remove_all().expect("removed");
    let (names, blocks): (Vec<u64>, Vec<u32>) = (0..count).map(|block| (block as u64, block as u32)).unzip();
    let expected: Vec<Vec<u8>> = (0..count).map(|block| engine.block(block)).collect();
    if direction == Direction::Load {
        expected.iter().zip(0..).for_each(|(bytes, name)| pool.put(name, bytes));
        // What is loaded was not there before.
        engine.clear();
    }
    let client = Client::connect(config.clone()).expect("a client");
    let transfers = engine.transfers(&client);
    fail(&engine.driver, calls);
    let shown = format!("{count} blocks, {direction:?}, local: {}, {how} after {calls} calls", config.local);
    let failed = done(&transfers, direction, job(1, &names, &blocks));
    let came_to_it = engine.driver.recover();
    assert!(failed.is_empty() || came_to_it, "{shown}");
    // Nobody finds anything but whole blocks, and what was not reported is there.
    for (block, bytes) in expected.iter().enumerate() {
        let stored = pool.stored(block as u64);
        assert!(stored.is_none() || stored.as_ref() == Some(bytes), "{shown}");
        if !failed.contains(&(0, block as u32)) {
            assert!(stored.is_some() && engine.block(block) == *bytes, "{shown}: block {block} is not there");
        }
    }
    // Saves pause after a failure; what loads has its next try at once.
    if direction == Direction::Load {
        assert_eq!(done(&transfers, direction, job(2, &[1, 0], &[14, 15])), [], "{shown}");
        assert!([engine.block(15), engine.block(14)] == expected[..2], "{shown}");
    }
    drop((transfers, client));
    engine.end();
    assert_eq!(node.stats().reserved, 0, "{shown}");
    came_to_it
}

#[test]
fn memory_that_is_not_the_gpus_is_refused() {
    let (engine, other) = (Engine::new(|_| 0), Engine::new(|_| 0));
    let refused = |base: usize, blocks: usize| {
        let piece = Piece { base, stride: PIECES[0], len: PIECES[0] };
        let layout = Layout::new(vec![vec![piece]], blocks as u32).expect("a layout");
        // SAFETY: nothing is moved.
        let mover = unsafe { DeviceMover::new(layout, engine.gpu.clone()) };
        matches!(mover, Err(LayoutError::NotThere { group: 0, .. }))
    };
    let own = engine.layers[0] as usize;
    assert!(!refused(own, BLOCKS));
    assert!(refused(own, BLOCKS + 1), "the last block is not there");
    assert!(refused(other.layers[0] as usize, BLOCKS), "another GPU's memory");
    let hosts = vec![0u8; BLOCKS * PIECES[0]];
    assert!(refused(hosts.as_ptr() as usize, BLOCKS), "the host's memory");
}

#[test]
fn a_kv_cache_that_was_freed_costs_its_jobs_and_not_the_gpu() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    assert_eq!(done(&transfers, Direction::Save, job(1, &[1], &[1])), []);
    engine.driver.free(engine.layers[1]);
    assert_eq!(done(&transfers, Direction::Load, job(2, &[1], &[2])), [(0, 2)]);
    assert_eq!(done(&transfers, Direction::Save, job(3, &[3], &[3])), [(0, 3)]);
    assert!(!engine.driver.recover(), "the GPU was given addresses that are not its own");
    assert_eq!(pool.stored(3), None);
}

#[test]
fn a_kv_cache_that_is_freed_under_a_copy_costs_its_job() {
    for (direction, name) in [(Direction::Load, 1), (Direction::Save, 2)] {
        let pool = Pool::new();
        let mut engine = Engine::new(|at| at as u8);
        pool.put(1, &engine.block(1));
        let client = pool.client();
        let transfers = engine.transfers(&client);
        engine.driver.hold_after(0);
        transfers.submit(direction, job(1, &[name], &[2]));
        eventually("the copy is under way", || engine.driver.is_busy());
        engine.driver.free(engine.layers.remove(1));
        engine.driver.go_on();
        assert_eq!(wait(&transfers).failed, [(0, 2)], "{direction:?}");
        assert_eq!(pool.stored(2), None);
        drop((transfers, client));
        engine.end();
    }
}

#[test]
fn a_slab_that_cannot_be_pinned_is_read_and_written_through_memory_that_can() {
    let pool = Pool::new();
    let (written, read) = (Engine::new(|at| at as u8), Engine::new(|_| 0));
    // The slab has 128 MiB; a half of the staging memory 32.
    [&written, &read].into_iter().for_each(|engine| engine.driver.refuse_pins_over(64 << 20));
    assert_eq!(done(&written.transfers(&pool.client()), Direction::Save, job(1, &[1], &[1])), []);
    assert_eq!(done(&read.transfers(&pool.client()), Direction::Load, job(2, &[1], &[2])), []);
    assert_eq!(written.block(1), read.block(2));
    written.end();
    read.end();
}

#[test]
fn without_pinned_memory_blocks_are_not_moved_and_the_engine_goes_on() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    engine.driver.refuse_pins_over(0);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    assert_eq!(done(&transfers, Direction::Save, job(1, &[1], &[1])), [(0, 1)]);
    assert_eq!(done(&transfers, Direction::Load, job(2, &[1], &[1])), [(0, 1)]);
    drop((transfers, client));
    engine.end();
}

#[test]
fn jobs_that_wait_for_a_gpu_that_hangs_keep_nobody_from_ending() {
    // Their threads waited for the engine's stream without a bound, though nothing of theirs had begun: an engine whose stream
    // hangs, as it does when another rank has died, could not be shut down.
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    let stream = engine.driver.stream().expect("a stream");
    for (id, direction) in [(1, Direction::Load), (2, Direction::Save)] {
        let moment = engine.gpu.moment(stream).expect("recorded");
        transfers.submit_after(direction, job(id, &[1], &[1]), Some(moment));
    }
    eventually("both are waited for", || engine.driver.events_asked_after() == 2);
    let ending = std::thread::spawn(move || drop(transfers));
    eventually("the threads have ended", || ending.is_finished());
    assert_eq!(pool.stored(1), None);
    engine.driver.end_stream(stream);
    drop(client);
    engine.end();
}

#[test]
fn a_node_killed_during_a_restore_costs_what_had_not_come() {
    let pool = Pool::without_node();
    let mut node = Program::start("node", &pool);
    let engine = Engine::new(|at| at as u8);
    let expected = engine.block(1);
    pool.put(1, &expected);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    transfers.submit(Direction::Load, job(1, &[1], &[2]));
    eventually("the copy is under way", || engine.driver.is_busy());
    node.kill();
    engine.driver.go_on();
    // Its memory is this process's too: what was copied is whole, or does not count.
    let failed = wait(&transfers).failed;
    assert!(failed == [(0, 2)] || engine.block(2) == expected);
    // Until the client has seen that it is gone, what it holds can be read.
    eventually("nothing is loaded", || done(&transfers, Direction::Load, job(2, &[1], &[3])) == [(0, 3)]);
    assert_eq!(done(&transfers, Direction::Save, job(3, &[4], &[4])), [(0, 4)]);
    drop(transfers);
    // What is left is the lanes': a table of pieces each.
    let only_lanes = || engine.driver.books().pinned == engine.driver.books().streams;
    eventually("the memory of the dead node is let go", only_lanes);
    drop(client);
    engine.end();
}

#[test]
fn a_node_killed_during_a_save_costs_its_blocks() {
    let pool = Pool::without_node();
    let mut node = Program::start("node", &pool);
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    transfers.submit(Direction::Save, job(1, &[1], &[2]));
    eventually("the copy is under way", || engine.driver.is_busy());
    node.kill();
    engine.driver.go_on();
    assert_eq!(wait(&transfers).failed, [(0, 2)]);
    // The next node takes it, from whoever has not just been told that nobody does.
    let _node = Program::start("node", &pool);
    let another = pool.client();
    assert_eq!(done(&engine.transfers(&another), Direction::Save, job(2, &[1], &[2])), []);
    assert_eq!(pool.stored(1), Some(engine.block(2)));
    drop((transfers, client, another));
    engine.end();
}

/// Space that a panic had left reserved stayed so for as long as the process lived.
#[test]
fn a_panic_in_the_middle_of_a_job_costs_the_job_and_leaves_nothing_reserved() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let left = AtomicI32::new(2);
    let panics = move || assert!(left.fetch_sub(1, Ordering::Relaxed) != 0, "on purpose");
    let transfers = engine.transfers_through(Watched::new(&engine, || {}, panics), &client);
    let (names, blocks): (Vec<u64>, Vec<u32>) = (0..BLOCKS).map(|block| (block as u64, block as u32)).unzip();
    assert_eq!(done(&transfers, Direction::Save, job(1, &names, &blocks)).len(), BLOCKS);
    let reserved = || pool.node.as_ref().expect("a node").memory().stats().reserved;
    eventually("its space is given back", || reserved() == 0);
    assert_eq!(done(&transfers, Direction::Save, job(2, &names, &blocks)), []);
    assert_eq!(pool.stored(7), Some(engine.block(7)));
}

#[test]
fn a_remote_node_killed_during_a_restore_costs_what_had_not_come() {
    let pool = Pool::without_node();
    let mut node = Program::start("node", &pool);
    // Six megabytes a block: five of them are one part of four.
    let engine = Engine::with([2 << 20; 3], |at| at as u8);
    let expected: Vec<Vec<u8>> = (0..BLOCKS).map(|block| engine.block(block)).collect();
    expected.iter().zip(0..).for_each(|(bytes, name)| pool.put(name, bytes));
    let mut read = Engine::with([2 << 20; 3], |_| 0);
    read.flight *= BLOCKS;
    let client = Client::connect(pool.config_elsewhere()).expect("a client");
    let transfers = read.transfers(&client);
    read.driver.hold_after(0);
    let (names, blocks) = all();
    transfers.submit(Direction::Load, job(1, &names, &blocks));
    // The first part is on its way to the GPU, the second is here.
    eventually("two parts have come", || client.stats().hits_tcp >= 10);
    node.kill();
    read.driver.go_on();
    let failed = wait(&transfers).failed;
    assert_eq!(failed, (10..BLOCKS as u32).map(|block| (0, block)).collect::<Vec<_>>());
    (0..10).for_each(|block| assert_eq!(read.block(block), expected[block]));
    drop((transfers, client));
    read.end();
}

#[test]
fn an_engine_killed_during_a_save_leaves_nothing_reserved_and_nothing_half_written() {
    let pool = Pool::new();
    let node = pool.node.as_ref().expect("a node").memory();
    let free = node.stats().free_bytes;
    let mut engine = Program::start("engine", &pool);
    assert_eq!(node.stats().reserved, 2);
    engine.kill();
    eventually("its reservations are gone", || node.stats().reserved == 0);
    eventually("its space is free", || node.stats().free_bytes == free);
    assert_eq!((pool.stored(1), pool.stored(2)), (None, None));
    // Another one has the same blocks, and the pool takes them.
    let other = Engine::new(|at| at as u8);
    assert_eq!(done(&other.transfers(&pool.client()), Direction::Save, job(1, &[1, 2], &[1, 2])), []);
    assert_eq!(pool.stored(2), Some(other.block(2)));
}

/// What this program is told to be, as a process of its own: a role, the pool's directory and its catalog.
const ROLE: &str = "TIDEPOOL_TEST_ROLE";
const READY: &str = "as it should be";

/// A process of this program in another role.
pub(crate) struct Program(Child);

impl Program {
    /// Starts it; when this returns, a node serves, and an engine is in the middle of a save.
    pub(crate) fn start(role: &str, pool: &Pool) -> Self {
        let config = pool.config();
        let told = [role, config.dir.to_str().expect("a plain path"), &config.catalogs[0]].join(" ");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_gpu_that_fails::another_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, told)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut program = Self(child);
        let mut lines = BufReader::new(program.0.stdout.take().expect("its output")).lines();
        assert!(lines.any(|line| line.expect("a line").ends_with(READY)), "the {role} has ended");
        program
    }

    /// Sends it a signal. When this returns after a STOP, it has stopped: its threads run on for a moment.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
        if signal == Signal::STOP {
            waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child stops");
        }
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what [`Program`] runs.
#[test]
fn another_process() {
    let Ok(told) = std::env::var(ROLE) else { return };
    let [role, dir, catalog] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("told {told:?}") };
    let config = ClientConfig { dir: dir.into(), catalogs: vec![catalog.to_owned()], ..ClientConfig::default() };
    // Ends with whoever started it, if not before.
    let until_alone = || std::io::stdin().lines().count();
    if role == "node" {
        let _node = start_node("n0", &config);
        println!("{READY}");
        until_alone();
        return;
    }
    let engine = Engine::new(|at| at as u8);
    let client = Client::connect(config).expect("a client");
    let transfers = engine.transfers(&client);
    engine.driver.hold_after(0);
    transfers.submit(Direction::Save, job(1, &[1, 2], &[1, 2]));
    eventually("the copy is under way", || engine.driver.is_busy());
    println!("{READY}");
    until_alone();
    std::process::exit(1);
}
