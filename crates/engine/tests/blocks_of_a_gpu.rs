//! Saves and loads of a GPU's blocks, with a real node and a pretended driver.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::door::{Door, Span, Way};
use tidepool_client::{Client, ClientConfig, Verify};
use tidepool_cuda::fake::Fake;
use tidepool_cuda::{Choice, Driver as _, Gpu};
use tidepool_engine::{
    DeviceMover, Direction, Finished, Hashes, Job, KeyPrefix, Layout, LayoutError, Part, Piece, TransferConfig,
    Transfers,
};
use tidepool_node::{Node, NodeConfig};
use tidepool_types::ByteSize;

const BLOCKS: usize = 16;
/// Not what the kernel takes, and what it does.
const PIECES: [usize; 3] = [4104, 16 << 10, 16 << 10];
const BLOCK: u64 = (4104 + (32 << 10)) as u64;
/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Pool {
    node: Node,
    catalog: Server,
    dir: TempDir,
}

impl Pool {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
        let catalog =
            Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }).expect("a catalog");
        let catalogs = vec![catalog.address().to_string()];
        let config = NodeConfig {
            dir: dir.path().to_owned(),
            catalogs,
            capacity: ByteSize(96 << 20),
            ..NodeConfig::small("n0")
        };
        Self { node: Node::start(config).expect("a small node"), catalog, dir }
    }

    fn config(&self) -> ClientConfig {
        let catalogs = vec![self.catalog.address().to_string()];
        ClientConfig { dir: self.dir.path().to_owned(), catalogs, ..ClientConfig::default() }
    }

    fn client(&self) -> Client {
        Client::connect(self.config()).expect("a client")
    }
}

/// An engine whose KV cache, three layers, lies in a GPU's memory.
struct Engine {
    driver: Arc<Fake>,
    gpu: Arc<Gpu>,
    layers: Vec<u64>,
    pieces: [usize; 3],
}

impl Engine {
    fn new(fill: impl Fn(usize) -> u8) -> Self {
        Self::with(PIECES, fill)
    }

    fn with(pieces: [usize; 3], fill: impl Fn(usize) -> u8) -> Self {
        let driver = Arc::new(Fake::default());
        let gpu = Arc::new(Gpu::with_choice(driver.clone(), Choice::default()));
        let layers: Vec<u64> = pieces.map(|len| driver.allocate(BLOCKS * len).expect("memory")).to_vec();
        let engine = Self { driver, gpu, layers, pieces };
        for (layer, len) in pieces.into_iter().enumerate() {
            let mut bytes: Vec<u8> = (0..BLOCKS * len).map(|at| fill(layer * 131 + at / 7)).collect();
            engine.transfer(Way::In, layer, &mut bytes);
        }
        engine
    }

    fn transfer(&self, way: Way, layer: usize, bytes: &mut [u8]) {
        // SAFETY: the bytes outlive the pin, and the flight lands before it goes.
        unsafe {
            let _pin = self.gpu.pin(bytes.as_mut_ptr(), bytes.len(), true).expect("pinned");
            let span = Span { host: bytes.as_mut_ptr(), device: self.layers[layer], len: bytes.len() };
            self.gpu.begin(way, &[span]).and_then(|flight| flight.land()).expect("copied");
        }
    }

    fn block(&self, block: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for (layer, len) in self.pieces.into_iter().enumerate() {
            let mut bytes = vec![0; BLOCKS * len];
            self.transfer(Way::Out, layer, &mut bytes);
            all.extend_from_slice(&bytes[block * len..(block + 1) * len]);
        }
        all
    }

    fn layout(&self) -> Layout {
        let piece = |(base, len): (&u64, usize)| Piece { base: *base as usize, stride: len, len };
        Layout::new(vec![self.layers.iter().zip(self.pieces).map(piece).collect()], BLOCKS as u32).expect("a layout")
    }

    fn transfers(&self, client: &Client) -> Transfers {
        // SAFETY: the pretended GPU keeps its memory, and blocks are only looked at when their jobs are over.
        let mover = unsafe { DeviceMover::new(self.layout(), self.gpu.clone()) }.expect("the GPU's memory");
        Transfers::start(client, Box::new(mover), TransferConfig::default()).expect("threads")
    }
}

fn job(id: u64, names: &[u64], blocks: &[u32]) -> Job {
    let bytes: Vec<u8> = names.iter().copied().flat_map(u64::to_be_bytes).collect();
    let hashes = Hashes::new(bytes, 8).expect("whole hashes");
    Job { id, parts: vec![Part { group: 0, prefix: KeyPrefix::new("gpu/"), hashes, blocks: blocks.to_vec() }] }
}

fn wait(transfers: &Transfers) -> Finished {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(finished) = transfers.poll().pop() {
            return finished;
        }
        assert!(Instant::now() < until, "the job was not reported");
        std::thread::yield_now();
    }
}

fn done(transfers: &Transfers, direction: Direction, job: Job) -> Vec<(usize, u32)> {
    transfers.submit(direction, job);
    wait(transfers).failed
}

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
    let key = KeyPrefix::new("gpu/").key(&10u64.to_be_bytes());
    assert_eq!(verifying.get(key).expect("no error"), Some(written.block(3)));
}

#[test]
fn blocks_of_another_host_are_staged_in_runs_both_ways() {
    let pool = Pool::new();
    // To a client that uses no shared memory every node is on another host.
    let config = ClientConfig { local: false, ..pool.config() };
    // Three megabytes a block: more in all than goes through at once.
    let pieces = [1 << 20, (1 << 20) + 8, 1 << 20];
    let (written, read) = (Engine::with(pieces, |at| (at * 3) as u8), Engine::with(pieces, |_| 0));
    let client = || Client::connect(config.clone()).expect("a client");
    let (saver, loader) = (written.transfers(&client()), read.transfers(&client()));
    let (names, blocks): (Vec<u64>, Vec<u32>) = ((0..BLOCKS as u64).collect(), (0..BLOCKS as u32).collect());
    assert_eq!(done(&saver, Direction::Save, job(1, &names, &blocks)), []);
    assert_eq!(done(&loader, Direction::Load, job(2, &names, &blocks)), []);
    assert_eq!(done(&loader, Direction::Load, job(3, &[1, 99, 2], &[0, 1, 2])), [(0, 1), (0, 2)]);
    (0..BLOCKS).filter(|block| *block > 0).for_each(|block| assert_eq!(written.block(block), read.block(block)));
    drop((saver, loader));
    // A lane that is kept has a table for the kernel.
    assert_eq!((written.driver.pinned(), read.driver.pinned()), (1, 1), "staging memory stayed pinned");
}

#[test]
fn a_reader_that_verifies_everything_gets_its_blocks_through_memory_that_it_can_look_at() {
    let pool = Pool::new();
    let (written, read) = (Engine::new(|at| at as u8), Engine::new(|_| 0));
    assert_eq!(done(&written.transfers(&pool.client()), Direction::Save, job(1, &[1], &[1])), []);
    let verifying = Client::connect(ClientConfig { verify: Verify::Always, ..pool.config() }).expect("a client");
    assert_eq!(done(&read.transfers(&verifying), Direction::Load, job(2, &[1], &[2])), []);
    assert_eq!(written.block(1), read.block(2));
}

#[test]
fn a_driver_that_fails_in_the_middle_costs_its_blocks_and_no_more() {
    let pool = Pool::new();
    let (written, read) = (Engine::new(|at| at as u8), Engine::new(|_| 0));
    for calls in 0..4 {
        // One that has failed pauses for a while; each has a try of its own.
        let saver = written.transfers(&pool.client());
        written.driver.fail_after(calls);
        let failed = done(&saver, Direction::Save, job(calls.into(), &[1, 2], &[1, 2]));
        written.driver.recover();
        if failed.is_empty() {
            break;
        }
        let found = pool.client().get(KeyPrefix::new("gpu/").key(&1u64.to_be_bytes())).expect("no error");
        assert_eq!(found, None, "something half-written is there after {calls} calls");
    }
    let (saver, loader) = (written.transfers(&pool.client()), read.transfers(&pool.client()));
    assert_eq!(done(&saver, Direction::Save, job(20, &[1, 2], &[1, 2])), []);
    read.driver.fail_after(0);
    assert_eq!(done(&loader, Direction::Load, job(21, &[1, 2], &[4, 5])), [(0, 4), (0, 5)]);
    read.driver.recover();
    assert_eq!(done(&loader, Direction::Load, job(22, &[1, 2], &[4, 5])), []);
    assert_eq!((written.block(1), written.block(2)), (read.block(4), read.block(5)));
}

#[test]
fn without_pinned_memory_blocks_are_not_moved_and_the_engine_goes_on() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    engine.driver.refuse_pins();
    let transfers = engine.transfers(&pool.client());
    assert_eq!(done(&transfers, Direction::Save, job(1, &[1], &[1])), [(0, 1)]);
    assert_eq!(done(&transfers, Direction::Load, job(2, &[1], &[1])), [(0, 1)]);
}

#[test]
fn a_node_that_is_gone_leaves_nothing_pinned() {
    let pool = Pool::new();
    let engine = Engine::new(|at| at as u8);
    let client = pool.client();
    let transfers = engine.transfers(&client);
    assert_eq!(done(&transfers, Direction::Save, job(1, &[1], &[1])), []);
    assert!(engine.driver.pinned() > 0);
    let Pool { node, dir: _dir, catalog: _catalog } = pool;
    drop(node);
    assert_eq!(done(&transfers, Direction::Load, job(2, &[1], &[2])), [(0, 2)]);
    let pinned_tables = 1; // the lane that is kept has a table for the kernel
    let until = Instant::now() + PATIENCE;
    while engine.driver.pinned() > pinned_tables + 2 {
        assert!(Instant::now() < until, "the memory of a node that is gone is still pinned");
        std::thread::yield_now();
    }
    drop((transfers, client));
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
    let stored = pool.client().get(KeyPrefix::new("gpu/").key(&1u64.to_be_bytes())).expect("no error").expect("stored");
    assert!(stored[..PIECES[0]].iter().all(|byte| *byte == 9) && stored[PIECES[0]..].iter().all(|byte| *byte == 1));
}

#[test]
fn memory_that_is_not_the_gpus_is_refused() {
    let engine = Engine::new(|_| 0);
    let elsewhere = vec![0u8; BLOCKS * 64];
    let piece = Piece { base: elsewhere.as_ptr() as usize, stride: 64, len: 64 };
    let layout = Layout::new(vec![vec![piece]], BLOCKS as u32).expect("a layout");
    // SAFETY: refused before anything is moved.
    let refused = unsafe { DeviceMover::new(layout, engine.gpu.clone()) };
    assert!(matches!(refused, Err(LayoutError::NotThere { group: 0, .. })));
    // The first block is there, the last one is not.
    let piece = Piece { base: engine.layers[0] as usize, stride: PIECES[0], len: PIECES[0] };
    let layout = Layout::new(vec![vec![piece]], BLOCKS as u32 + 1).expect("a layout");
    // SAFETY: as above.
    assert!(unsafe { DeviceMover::new(layout, engine.gpu) }.is_err());
}
