//! A pool, and engines whose GPU is pretended.

use crate::reports::{eventually, wait};
use std::cell::OnceCell;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::door::{DevicePiece, Door, DoorError, Flight, Moment, Pinned, Span, Way};
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_cuda::fake::{Books, Fake};
use tidepool_cuda::{Choice, Driver as _, Gpu};
use tidepool_engine::{DeviceMover, Direction, Hashes, Job, KeyPrefix, Layout, Part, Piece, TransferConfig, Transfers};
use tidepool_node::{Node, NodeConfig};
use tidepool_types::ByteSize;

pub(crate) const BLOCKS: usize = 16;
/// Not what the kernel takes, and what it does.
pub(crate) const PIECES: [usize; 3] = [4104, 16 << 10, 16 << 10];
pub(crate) const BLOCK: u64 = (4104 + (32 << 10)) as u64;

/// A catalog and a place for nodes, with one of them unless it is a process of its own.
pub(crate) struct Pool {
    /// What looks into the pool from outside.
    looker: OnceCell<Client>,
    pub(crate) node: Option<Node>,
    catalog: Server,
    dir: TempDir,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let mut pool = Self::without_node();
        pool.node = Some(start_node("n0", &pool.config()));
        pool
    }

    pub(crate) fn without_node() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
        let catalog =
            Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }).expect("a catalog");
        Self { looker: OnceCell::new(), node: None, catalog, dir }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let catalogs = vec![self.catalog.address().to_string()];
        ClientConfig { dir: self.dir.path().to_owned(), catalogs, ..ClientConfig::default() }
    }

    /// To a client that uses no shared memory every node is on another host.
    pub(crate) fn config_elsewhere(&self) -> ClientConfig {
        ClientConfig { local: false, ..self.config() }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.config()).expect("a client")
    }

    pub(crate) fn looker(&self) -> &Client {
        self.looker.get_or_init(|| self.client())
    }

    pub(crate) fn put(&self, name: u64, bytes: &[u8]) {
        self.looker().put(key(name), bytes, &PutOptions::default()).expect("space");
    }

    /// Changes a byte of a block in the node's memory, behind everybody's back.
    pub(crate) fn damage(&self, block: &[u8]) {
        let slab = self.dir.path().join("n0.slab");
        let bytes = std::fs::read(&slab).expect("its bytes");
        // Blocks begin at multiples of 64 bytes.
        let mut places = (0..bytes.len() - block.len()).step_by(64);
        let at = places.find(|at| bytes[*at..].starts_with(block)).expect("the block");
        let file = std::fs::File::options().write(true).open(&slab).expect("a file to write to");
        file.write_all_at(&[!bytes[at + 100]], at as u64 + 100).expect("written");
    }

    /// What the pool has under a name of [`job`].
    pub(crate) fn stored(&self, name: u64) -> Option<Vec<u8>> {
        self.looker().get(key(name)).expect("a pool")
    }
}

/// A node of another host.
pub(crate) struct Far {
    pub(crate) node: Node,
    _dir: TempDir,
}

impl Pool {
    /// A node that nobody takes for one of this host, with blocks under the names from 1 on.
    pub(crate) fn far_node(&self, blocks: &[Vec<u8>]) -> Far {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory");
        let there = ClientConfig { dir: dir.path().to_owned(), ..self.config() };
        let node = start_node("far", &there);
        let writer = Client::connect(there).expect("a client");
        for (name, bytes) in (1..).zip(blocks) {
            writer.put(key(name), &bytes[..], &PutOptions::default()).expect("space");
        }
        // That is what it would be found by.
        std::fs::remove_file(node.socket_path()).expect("its socket");
        Far { node, _dir: dir }
    }
}

/// A node for the clients of `config`.
pub(crate) fn start_node(name: &str, config: &ClientConfig) -> Node {
    let (dir, catalogs) = (config.dir.clone(), config.catalogs.clone());
    let config = NodeConfig { dir, catalogs, capacity: ByteSize(128 << 20), ..NodeConfig::small(name) };
    Node::start(config).expect("a small node")
}

/// An engine whose KV cache, three layers, lies in a GPU's memory.
pub(crate) struct Engine {
    pub(crate) driver: Arc<Fake>,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) layers: Vec<u64>,
    pub(crate) pieces: [usize; 3],
    /// Bytes of a flight.
    pub(crate) flight: usize,
}

impl Engine {
    pub(crate) fn new(fill: impl Fn(usize) -> u8) -> Self {
        Self::with(PIECES, fill)
    }

    pub(crate) fn with(pieces: [usize; 3], fill: impl Fn(usize) -> u8) -> Self {
        let driver = Arc::new(Fake::default());
        let gpu = Arc::new(Gpu::with_choice(driver.clone(), Choice::default()));
        let layers: Vec<u64> = pieces.map(|len| driver.allocate(BLOCKS * len).expect("memory")).to_vec();
        // Two blocks, so that most jobs are several flights.
        let flight = 2 * pieces.iter().sum::<usize>();
        let engine = Self { driver, gpu, layers, pieces, flight };
        for (layer, len) in pieces.into_iter().enumerate() {
            let mut bytes: Vec<u8> = (0..BLOCKS * len).map(|at| fill(layer * 131 + at / 7)).collect();
            engine.transfer(Way::In, engine.layers[layer], &mut bytes);
        }
        engine
    }

    /// Ends the engine, whose transfers and clients are gone: its driver has nothing back to get but the KV cache's layers.
    pub(crate) fn end(self) {
        let Self { driver, gpu, layers, .. } = self;
        drop(gpu);
        let layers_only = Books { memory: layers.len(), ..Books::default() };
        eventually("the driver has everything back", || driver.books() == layers_only);
    }

    fn transfer(&self, way: Way, device: u64, bytes: &mut [u8]) {
        // With lanes of its own, so that the engine's are as they were.
        let gpu = Gpu::with_choice(self.driver.clone(), Choice::default());
        // SAFETY: the bytes outlive the pin, and the flight lands before it goes.
        unsafe {
            let _pin = gpu.pin(bytes.as_mut_ptr(), bytes.len(), true).expect("pinned");
            let span = Span { host: bytes.as_mut_ptr(), device, len: bytes.len() };
            gpu.begin(way, &[span]).and_then(|flight| flight.land()).expect("copied");
        }
    }

    /// Overwrites the whole cache.
    pub(crate) fn clear(&self) {
        for (layer, len) in self.layers.iter().zip(self.pieces) {
            self.transfer(Way::In, *layer, &mut vec![0; BLOCKS * len]);
        }
    }

    pub(crate) fn block(&self, block: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for (layer, len) in self.layers.iter().zip(self.pieces) {
            let mut bytes = vec![0; len];
            self.transfer(Way::Out, layer + (block * len) as u64, &mut bytes);
            all.append(&mut bytes);
        }
        all
    }

    pub(crate) fn layout(&self) -> Layout {
        let piece = |(base, len): (&u64, usize)| Piece { base: *base as usize, stride: len, len };
        Layout::new(vec![self.layers.iter().zip(self.pieces).map(piece).collect()], BLOCKS as u32).expect("a layout")
    }

    /// Moves its blocks, which nobody looks at meanwhile.
    pub(crate) fn mover(&self) -> DeviceMover {
        self.mover_through(self.gpu.clone())
    }

    fn mover_through(&self, door: Arc<dyn Door>) -> DeviceMover {
        // SAFETY: the pretended GPU keeps its memory, and blocks are only looked at when they have been moved.
        let mover = unsafe { DeviceMover::new(self.layout(), door) }.expect("the GPU's memory");
        mover.with_flights_of(self.flight)
    }

    pub(crate) fn transfers(&self, client: &Client) -> Transfers {
        self.transfers_with(client, TransferConfig::default())
    }

    pub(crate) fn transfers_with(&self, client: &Client, config: TransferConfig) -> Transfers {
        Transfers::start(client, Box::new(self.mover()), config).expect("threads")
    }

    pub(crate) fn transfers_through(&self, door: Watched, client: &Client) -> Transfers {
        let mover = self.mover_through(Arc::new(door));
        Transfers::start(client, Box::new(mover), TransferConfig::default()).expect("threads")
    }
}

/// An engine's GPU, and what a test does before it pins or copies.
pub(crate) struct Watched {
    gpu: Arc<Gpu>,
    before_pin: Box<dyn Fn() + Send + Sync>,
    before_copy: Box<dyn Fn() + Send + Sync>,
}

impl Watched {
    pub(crate) fn new(
        engine: &Engine,
        before_pin: impl Fn() + Send + Sync + 'static,
        before_copy: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { gpu: engine.gpu.clone(), before_pin: Box::new(before_pin), before_copy: Box::new(before_copy) }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.gpu.fmt(f)
    }
}

impl Door for Watched {
    unsafe fn pin(&self, start: *mut u8, len: usize, writable: bool) -> Result<Box<dyn Pinned>, DoorError> {
        (self.before_pin)();
        // SAFETY: passed on from the caller.
        unsafe { self.gpu.pin(start, len, writable) }
    }

    unsafe fn begin(&self, way: Way, spans: &[Span]) -> Result<Box<dyn Flight>, DoorError> {
        (self.before_copy)();
        // SAFETY: passed on from the caller.
        unsafe { self.gpu.begin(way, spans) }
    }

    fn moment(&self, stream: u64) -> Result<Box<dyn Moment>, DoorError> {
        self.gpu.moment(stream)
    }

    fn has(&self, piece: DevicePiece) -> bool {
        self.gpu.has(piece)
    }
}

/// Names and blocks of a whole cache.
pub(crate) fn all() -> (Vec<u64>, Vec<u32>) {
    (0..BLOCKS).map(|block| (block as u64, block as u32)).unzip()
}

/// The key of a name.
pub(crate) fn key(name: u64) -> Vec<u8> {
    KeyPrefix::new("gpu/").key(&name.to_be_bytes())
}

pub(crate) fn job(id: u64, names: &[u64], blocks: &[u32]) -> Job {
    let bytes: Vec<u8> = names.iter().copied().flat_map(u64::to_be_bytes).collect();
    let hashes = Hashes::new(bytes, 8).expect("whole hashes");
    let prefix = KeyPrefix::new("gpu/");
    let part = Part { group: 0, prefix, hashes, blocks: blocks.to_vec(), depth: 0, step: 1 };
    Job { id, parts: vec![part], origin: None }
}

pub(crate) fn done(transfers: &Transfers, direction: Direction, job: Job) -> Vec<(usize, u32)> {
    transfers.submit(direction, job);
    wait(transfers).failed
}
