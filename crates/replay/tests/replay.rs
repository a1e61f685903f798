//! A replay against a real pool finds what the simulator says, notices every wrong byte, and survives the end of the pool.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_node::{Node, NodeConfig};
use tidepool_replay::{Outage, Partial, Progress, Replay, Settings, run};
use tidepool_sim::Blocks;
use tidepool_sim::cluster::{self, Cluster, OpenLoop, Routing};
use tidepool_testing::eventually;
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

    fn start_again(&mut self) {
        let dir = self.dir.path().to_owned();
        let config = NodeConfig { dir, catalogs: self.catalogs.clone(), ..NodeConfig::small("n") };
        self.node = Some(Node::start(config).unwrap());
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

/// Look-ups and late threads held an engine's turn while the trace's time passed faster than ours, and requests behind them were said to
/// have waited 1.5 to 6 times as long as they would have. Nor did a run end with its last answer.
#[test]
fn times_are_those_of_the_simulator_however_fast_the_trace_passes() {
    // More than one engine can compute, and all alike: whoever overtakes whom, the same times come out.
    let requests: Vec<Request> = (0..60)
        .map(|nth| Request {
            at: Millis(100 * nth),
            input_tokens: 20 * 512,
            output_tokens: 1,
            blocks: (0..20).map(|block| BlockHash(100 * nth + block)).collect(),
            origin: None,
        })
        .collect();
    let pool = TestPool::new(64 << 20);
    for pool in [None, Some(pool.client())] {
        let of = settings(pool);
        let cluster = Cluster { engines: 1, ..of.cluster };
        let (settings, progress, started) = (Settings { cluster, ..of }, Progress::default(), Instant::now());
        let played = run(&settings, OpenLoop::new(requests.iter().cloned()), &progress).unwrap().report;
        // What the pool did counts with the time that it took, which all of it together did not exceed.
        let most = if settings.pool.is_some() { started.elapsed().as_secs_f64() } else { 1e-6 };
        let simulated = cluster::run(&settings.cluster, &mut OpenLoop::new(requests.iter().cloned()));
        let mean = |report: &cluster::Report| report.first_token.mean() / 1e6;
        for (real, virtual_) in [(mean(&played), mean(&simulated)), (played.seconds, simulated.seconds)] {
            // The simulator's pool takes a moment, too.
            assert!((0.99 * virtual_..=virtual_ + most).contains(&real), "{real} against {virtual_}");
        }
    }
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

/// Hits were decided when a request came, and not when its engine got to it: the same prompt, asked for while it was computed, was
/// computed again.
#[test]
fn a_request_hits_what_was_computed_while_it_waited_for_its_engine() {
    let pool = TestPool::new(16 << 20);
    for pool in [None, Some(pool.client())] {
        let mut settings = settings(pool);
        (settings.cluster.engines, settings.cluster.local_blocks) = (1, Blocks(10));
        // A prompt takes 75 ms of our time, and the requests come within 10.
        settings.cluster.speed.prefill.token = 0.1;
        let request = |at| {
            let blocks = [1, 2, 3].map(BlockHash).to_vec();
            Request { at: Millis(at), input_tokens: 1536, output_tokens: 1, blocks, origin: None }
        };
        let requests = [request(0), request(10_000), request(20_000)];
        let simulated = cluster::run(&settings.cluster, &mut OpenLoop::new(requests.clone().into_iter()));
        let played = run(&settings, OpenLoop::new(requests.into_iter()), &Progress::default()).unwrap();
        assert_eq!((played.report.tally.hit_blocks, simulated.tally.hit_blocks), (6, 6));
    }
}

/// Time before the first request is nobody's throughput.
#[test]
fn a_run_begins_with_its_first_request() {
    let (blocks, at) = (vec![BlockHash(1)], Millis(4_000_000));
    let request = Request { at, input_tokens: 512, output_tokens: 1, blocks, origin: None };
    let played = run(&settings(None), OpenLoop::new([request].into_iter()), &Progress::default()).unwrap();
    let (seconds, served) = (played.report.seconds, played.report.end_to_end.at(1.0) as f64 / 1e6);
    assert!(seconds > 0.0 && seconds < 4000.0 + served, "{seconds} s, {served} of them after it came");
}

/// The second request goes to the same engine, which serves one at a time: where it could come before the first had put its blocks, on a
/// busy machine it did, and nothing was read that could have been wrong.
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
    (settings.cluster.engines, settings.cluster.batch, settings.cluster.local_blocks) = (1, 1, Blocks(0));
    let progress = Progress::default();
    let played = run(&settings, OpenLoop::new([request(0), request(60_000)].into_iter()), &progress).unwrap();
    assert_eq!(progress.wrong_blocks.load(Ordering::Relaxed), 1);
    assert_eq!(played.report.tally.hit_blocks, 1, "what is wrong is no hit, nor what comes after it");
}

/// Ten seconds of misses, until it was believed that the pool is gone, counted as what the pool had done.
#[test]
fn a_pool_that_vanishes_leaves_a_report_of_the_time_while_there_was_one() {
    let mut pool = TestPool::new(16 << 20);
    let mut settings = settings(Some(pool.client()));
    (settings.cluster.engines, settings.cluster.batch, settings.cluster.local_blocks) = (1, 1, Blocks(0));
    let progress = Progress::default();
    // One after the other, the same prompt and one block of its own: all but the first find the former.
    let request = |n: u64| Request {
        at: Millis(n * 1000),
        input_tokens: 2048,
        output_tokens: 1,
        blocks: [1, 2, 3, n + 4].map(BlockHash).to_vec(),
        origin: None,
    };
    let started = Instant::now();
    let played = std::thread::scope(|scope| {
        let played = scope.spawn(|| run(&settings, OpenLoop::new((0..).map(request)), &progress));
        eventually("blocks of many requests", || progress.put_blocks.load(Ordering::Relaxed) >= 50);
        pool.node.take();
        played.join().unwrap().unwrap()
    });
    assert_eq!(played.partial, Some(Partial::PoolGone));
    let tally = played.report.tally;
    assert!(tally.requests >= 46, "{tally:?}");
    assert_eq!(tally.hit_blocks, 3 * (tally.requests - 1), "{tally:?}");
    // The ten seconds in which nobody answered are not in it.
    let real = played.report.seconds / settings.pace;
    assert!(real <= started.elapsed().as_secs_f64() - 10.0, "{real} s");
    assert!(progress.failed_puts.load(Ordering::Relaxed) > 0);
    assert_eq!(progress.wrong_blocks.load(Ordering::Relaxed), 0);
}

/// Two requests, of which the second comes when the pool has gone; `then` is called once it has refused a block.
fn without_a_pool_in_the_end(then: impl FnOnce(&mut TestPool) + Send) -> (Replay, u64) {
    let mut pool = TestPool::new(16 << 20);
    let mut settings = settings(Some(pool.client()));
    (settings.cluster.engines, settings.cluster.batch, settings.cluster.local_blocks) = (1, 1, Blocks(0));
    let progress = Progress::default();
    let requests = [0, 1].map(|n| {
        let (at, blocks) = (Millis(n), vec![BlockHash(n)]);
        Request { at, input_tokens: 512, output_tokens: 1, blocks, origin: None }
    });
    std::thread::scope(|scope| {
        let (gone, is_gone) = std::sync::mpsc::sync_channel(0);
        let source = requests.into_iter().inspect(move |request| {
            if request.at == Millis(1) {
                is_gone.recv().unwrap();
            }
        });
        let played = scope.spawn(|| run(&settings, OpenLoop::new(source), &progress));
        eventually("a block is put", || progress.put_blocks.load(Ordering::Relaxed) > 0);
        pool.node.take();
        gone.send(()).unwrap();
        eventually("a block is refused", || progress.failed_puts.load(Ordering::Relaxed) > 0);
        then(&mut pool);
        (played.join().unwrap().unwrap(), progress.failed_puts.load(Ordering::Relaxed))
    })
}

/// The misses of a pool that went just before the trace ended are not the pool's either.
#[test]
fn a_trace_that_ends_after_its_pool_is_reported_in_part() {
    let (played, failed) = without_a_pool_in_the_end(|_| {});
    assert_eq!((played.partial, played.report.tally.requests, failed), (Some(Partial::PoolGone), 1, 1));
}

#[test]
fn a_pool_that_only_hesitated_in_the_end_is_not_gone() {
    let (played, failed) = without_a_pool_in_the_end(TestPool::start_again);
    assert_eq!((played.partial, played.report.tally.requests, failed), (None, 2, 1));
}

/// It was as if nothing had happened, though nothing was stored for seconds.
#[test]
fn a_pool_that_comes_back_has_an_outage_with_all_that_failed_in_it() {
    let (played, failed) = without_a_pool_in_the_end(TestPool::start_again);
    let [Outage { began, ended, failed_puts, .. }] = played.outages[..] else { panic!("{:?}", played.outages) };
    assert!(began < ended, "{:?}", played.outages);
    // The replay asked again in the end, maybe more than once.
    assert!(failed_puts >= failed, "{:?}", played.outages);
}
