//! A replay against a real pool finds what the simulator says, notices every wrong byte, and survives the end of the pool.

use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_node::{Node, NodeConfig};
use tidepool_replay::{Partial, Progress, Replay, Settings, run};
use tidepool_sim::Blocks;
use tidepool_sim::cluster::{self, Cluster, OpenLoop, Routing};
use tidepool_trace::{BlockHash, Millis, Request};
use tidepool_types::ByteSize;
use tidepool_workload::Agents;

const BLOCK: u64 = 4096;

struct TestPool {
    _catalog: Server,
    node: Option<Node>,
    dir: TempDir,
    catalogs: Vec<String>,
}

impl TestPool {
    fn new(capacity: u64) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let catalog = Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }).unwrap();
        let catalogs = vec![catalog.address().to_string()];
        let config = NodeConfig {
            dir: dir.path().to_owned(),
            catalogs: catalogs.clone(),
            capacity: ByteSize(capacity),
            ..NodeConfig::small("n")
        };
        let node = Some(Node::start(config).unwrap());
        Self { _catalog: catalog, node, dir, catalogs }
    }

    fn client(&self) -> ClientConfig {
        let (dir, catalogs) = (self.dir.path().to_owned(), self.catalogs.clone());
        ClientConfig { dir, catalogs, deadline: Duration::from_secs(1), ..ClientConfig::default() }
    }
}

/// Two engines whose own caches are too small for the sessions.
fn settings(pool: Option<ClientConfig>) -> Settings {
    let node_blocks = if pool.is_some() { Blocks::UNLIMITED } else { Blocks(0) };
    let (local_blocks, routing) = (Blocks(1), Routing::RoundRobin);
    let cluster =
        Cluster { engines: 2, batch: 8, local_blocks, routing, block_bytes: BLOCK, node_blocks, ..Cluster::default() };
    Settings { cluster, pool, pace: 2000.0, name: "test".to_owned() }
}

fn agents() -> Agents {
    Agents { sessions: Some(8), arrivals: tidepool_workload::Arrivals::Live(4.0), ..Agents::codex() }
}

/// Sessions wait for their answers: on a busy machine they are only later, and find the same.
fn replay(settings: &Settings, progress: &Progress) -> Replay {
    run(settings, agents().sessions().unwrap(), progress).unwrap()
}

#[test]
fn a_shared_pool_gives_the_hits_that_the_simulator_says() {
    let pool = TestPool::new(256 << 20);
    for pool in [None, Some(pool.client())] {
        let (settings, progress) = (settings(pool), Progress::default());
        let played = replay(&settings, &progress);
        let simulated = cluster::run(&settings.cluster, &mut agents().sessions().unwrap());
        let (real, virtual_) = (played.report.tally.hit_rate(), simulated.tally.hit_rate());
        assert!((real - virtual_).abs() < 0.02, "{real} against {virtual_}");
        assert_eq!(played.report.tally.requests, simulated.tally.requests);
        // The published shape: from under 5 % to over 90 %.
        let expected = if settings.pool.is_some() { 0.9..1.0 } else { 0.0..0.05 };
        assert!(expected.contains(&real) && expected.contains(&virtual_), "{real} and {virtual_}, not {expected:?}");
        assert_eq!(played.partial, None);
        assert_eq!(progress.wrong_blocks.load(Ordering::Relaxed), 0);
        assert_eq!(progress.failed_puts.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn one_wrong_byte_is_noticed() {
    let pool = TestPool::new(16 << 20);
    let client = Client::connect(pool.client()).unwrap();
    // Somebody has put other bytes under the name of the second block.
    client.put(format!("test/{:016x}", 2), &vec![7; BLOCK as usize], &PutOptions::default()).unwrap();
    let request = |at| Request {
        at: Millis(at),
        input_tokens: 1536,
        output_tokens: 1,
        blocks: [1, 2, 3].map(BlockHash).to_vec(),
        origin: None,
    };
    let mut settings = settings(Some(pool.client()));
    settings.cluster.local_blocks = Blocks(0);
    let progress = Progress::default();
    let played = run(&settings, OpenLoop::new([request(0), request(60_000)].into_iter()), &progress).unwrap();
    assert_eq!(progress.wrong_blocks.load(Ordering::Relaxed), 1);
    assert_eq!(played.report.tally.hit_blocks, 1, "what is wrong is no hit, nor what comes after it");
}

#[test]
fn a_pool_that_vanishes_leaves_a_partial_report() {
    let mut pool = TestPool::new(16 << 20);
    let mut settings = settings(Some(pool.client()));
    settings.pace = 50.0;
    let progress = Progress::default();
    let endless = Agents { sessions: None, ..agents() };
    let played = std::thread::scope(|scope| {
        let played = scope.spawn(|| run(&settings, OpenLoop::new(endless.requests().unwrap()), &progress));
        while progress.put_blocks.load(Ordering::Relaxed) < 50 {
            std::thread::sleep(Duration::from_millis(5));
        }
        pool.node.take();
        played.join().unwrap().unwrap()
    });
    assert_eq!(played.partial, Some(Partial::PoolGone));
    assert!(played.report.tally.requests > 0);
    assert!(progress.failed_puts.load(Ordering::Relaxed) > 0);
    assert_eq!(progress.wrong_blocks.load(Ordering::Relaxed), 0);
}
