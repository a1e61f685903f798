//! Clusters that are small enough to know what must come out.

use std::collections::BTreeMap;
use tidepool_sim::cluster::{Cluster, Kind, OpenLoop, Report, Routing, Source, Speed, run};
use tidepool_sim::{Blocks, Prefill};
use tidepool_trace::{BlockHash, Millis, Origin, Request, SessionId};

const TOKENS: u32 = 512;

/// Agents in a closed loop: a shared start, a first prompt, then a few blocks more with every turn.
struct Agents {
    due: BTreeMap<(Millis, SessionId), u32>,
    turns: u32,
    pause: u64,
    shared: u64,
}

impl Agents {
    fn new(sessions: u64, turns: u32) -> Self {
        let due = (0..sessions).map(|session| ((Millis(session * 37 % 5000), SessionId(session)), 0)).collect();
        Self { due, turns, pause: 2000, shared: 10 }
    }

    fn request(&self, at: Millis, session: SessionId, turn: u32) -> Request {
        let own = 20 + 4 * u64::from(turn);
        let hash = |n: u64| BlockHash(if n < self.shared { n } else { (session.0 + 1) << 20 | n });
        let blocks: Vec<_> = (0..self.shared + own).map(hash).collect();
        let last = turn + 1 == self.turns;
        let origin = Origin { session, parent: None, turn, pause: Millis(self.pause), calls: None, last };
        let input_tokens = blocks.len() as u32 * TOKENS;
        Request { at, input_tokens, output_tokens: 50, blocks, origin: Some(origin) }
    }
}

impl Source for Agents {
    fn due(&mut self) -> Option<Millis> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    fn next(&mut self) -> Option<Request> {
        let ((at, session), turn) = self.due.pop_first()?;
        let request = self.request(at, session, turn);
        if turn + 1 < self.turns {
            // Not due before it is answered.
            self.due.insert((Millis(u64::MAX), session), turn + 1);
        }
        Some(request)
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        if let Some(turn) = self.due.remove(&(Millis(u64::MAX), session)) {
            self.due.insert((Millis(at.0 + self.pause), session), turn);
        }
    }
}

/// Requests that wait for an answer are due at the end of time.
struct Closed(Agents);

impl Source for Closed {
    fn due(&mut self) -> Option<Millis> {
        self.0.due().filter(|at| *at < Millis(u64::MAX))
    }

    fn next(&mut self) -> Option<Request> {
        self.0.next()
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        self.0.answered(session, at);
    }
}

fn simulate(cluster: &Cluster, sessions: u64, turns: u32) -> Report {
    run(cluster, &mut Closed(Agents::new(sessions, turns)))
}

fn two_engines() -> Cluster {
    Cluster { engines: 2, local_blocks: Blocks(60), node_blocks: Blocks(50_000), ..Cluster::default() }
}

#[test]
fn one_request_takes_as_long_as_its_parts() {
    let speed = Speed {
        prefill: Prefill { token: 1e-3, pair: 0.0 },
        decode: 0.5,
        decode_each: 0.0,
        nic: 1e9,
        pcie: 4e9,
        look_up: 0.25,
        catalog: 1e12,
        ..Speed::default()
    };
    let cluster = Cluster {
        engines: 2,
        local_blocks: Blocks(0),
        node_blocks: Blocks(1000),
        block_bytes: 1_000_000_000,
        speed,
        ..Cluster::default()
    };
    let request = |at: u64| {
        let blocks = (0..4).map(BlockHash).collect();
        Request { at: Millis(at), input_tokens: 2000, output_tokens: 3, blocks, origin: None }
    };
    let mut source = OpenLoop::new([request(0), request(100_000)].into_iter());
    let report = run(&cluster, &mut source);
    // The first is computed in 2 s after a look-up; the second comes to the other engine, which gets four blocks over the network in
    // 4 s, while they go to its GPU, and computes one token.
    assert_eq!(report.tally.hit_blocks, 4);
    assert_eq!((report.loaded_bytes, report.network_bytes), (4_000_000_000, 4_000_000_000));
    let second = [0.5, 1.0].map(|part| report.first_token.at(part));
    assert!(second[0].abs_diff(2_250_000) < 30_000, "{second:?}");
    assert!(second[1].abs_diff(4_001_000) < 50_000, "{second:?}");
    assert!((report.seconds - 105.001).abs() < 0.01, "{}", report.seconds);
    assert!(report.loads.iter().all(|load| load.waited == 0.0), "{:?}", report.loads);
}

#[test]
fn a_request_that_loads_from_several_hosts_does_not_wait_for_itself() {
    let cluster = Cluster { engines: 3, local_blocks: Blocks(0), node_blocks: Blocks(100), ..Cluster::default() };
    let request = |at: u64, count: u64| {
        let blocks = (0..count).map(BlockHash).collect();
        Request { at: Millis(at), input_tokens: count as u32 * TOKENS, output_tokens: 1, blocks, origin: None }
    };
    let report =
        run(&cluster, &mut OpenLoop::new([request(0, 4), request(60_000, 8), request(120_000, 8)].into_iter()));
    assert_eq!((report.tally.hit_blocks, report.network_bytes), (12, 12 * cluster.block_bytes));
    assert!(report.most_waited().is_none(), "{:?}", report.most_waited());
    // Two that come at once do wait: for the host that has it all, and for each other.
    let together = [request(0, 8), request(60_000, 8), request(60_000, 8)];
    let waited = run(&cluster, &mut OpenLoop::new(together.into_iter())).most_waited().map(|load| load.kind);
    assert_eq!(waited, Some(Kind::NicOut));
}

/// Hits were decided when a request came: of a prompt that came again while it was computed, nothing was found. A real engine looks
/// it up when it gets to it.
#[test]
fn a_request_hits_what_was_computed_while_it_waited_for_its_engine() {
    let speed = Speed { prefill: Prefill { token: 1e-3, pair: 0.0 }, ..Speed::default() };
    let request = |at: u64| {
        let blocks = (0..4).map(BlockHash).collect();
        Request { at: Millis(at), input_tokens: 2048, output_tokens: 3, blocks, origin: None }
    };
    let hits = |engines: u32, local: u64, pool: u64| {
        let (local_blocks, node_blocks) = (Blocks(local), Blocks(pool));
        let cluster = Cluster { engines, local_blocks, node_blocks, speed, ..Cluster::default() };
        run(&cluster, &mut OpenLoop::new([request(0), request(10), request(20)].into_iter())).tally.hit_blocks
    };
    assert_eq!(hits(1, 100, 0), 8, "its own");
    assert_eq!(hits(1, 0, 100), 8, "the pool's");
    assert_eq!(hits(1, 100, 100), 8, "both");
    assert_eq!(hits(3, 100, 100), 0, "three engines begin at once");
    // The third waits for the first; the second was on the other engine.
    assert_eq!(hits(2, 100, 0), 4);
}

#[test]
fn a_request_misses_what_was_evicted_while_it_waited_for_its_engine() {
    let request = |at: u64, first: u64, count: u64| {
        let blocks = (first..first + count).map(BlockHash).collect();
        Request { at: Millis(at), input_tokens: count as u32 * TOKENS, output_tokens: 1, blocks, origin: None }
    };
    let speed = Speed { prefill: Prefill { token: 1e-3, pair: 0.0 }, ..Speed::default() };
    let (local_blocks, node_blocks) = (Blocks(0), Blocks(4));
    let cluster = Cluster { engines: 2, engines_per_host: 2, local_blocks, node_blocks, speed, ..Cluster::default() };
    // The third waits for the first, and pushes its prompt out of the pool. The fourth waits longer, for the second on the other
    // engine: what it asks for was there when it came.
    let trace = [request(0, 0, 4), request(0, 100, 16), request(10, 20, 4), request(2500, 0, 4)];
    let report = run(&cluster, &mut OpenLoop::new(trace.into_iter()));
    assert_eq!((report.tally.requests, report.tally.hit_blocks), (4, 0));
}

#[test]
fn a_pool_turns_round_robin_misses_into_hits() {
    let with = simulate(&two_engines(), 20, 30);
    let without = simulate(&Cluster { node_blocks: Blocks(0), ..two_engines() }, 20, 30);
    assert_eq!(with.tally.requests, 600);
    assert!(with.tally.hit_rate() > 0.9, "{}", with.tally.hit_rate());
    // Engines' own caches hold little more than what all sessions share.
    assert!(without.tally.hit_rate() < 0.3, "{}", without.tally.hit_rate());
    assert!(with.first_token.at(0.5) * 3 < without.first_token.at(0.5));
    assert!(with.throughput().requests > without.throughput().requests);
    assert!(with.computed_seconds * 5.0 < with.prefill_seconds);
}

#[test]
fn the_same_seed_gives_the_same_report() {
    for routing in Routing::ALL {
        let cluster = Cluster { routing, ..two_engines() };
        let [first, second] = [0, 0].map(|_| format!("{:?}", simulate(&cluster, 10, 10)));
        assert_eq!(first, second);
    }
}

#[test]
fn sessions_that_stay_with_an_engine_need_less_of_the_pool() {
    let roomy = Cluster { local_blocks: Blocks(10_000), ..two_engines() };
    let loaded = |routing| simulate(&Cluster { routing, ..roomy }, 21, 20).network_bytes;
    let [turns, sticky, prefix] = [Routing::RoundRobin, Routing::Sticky, Routing::LongestPrefix].map(loaded);
    assert!(sticky * 4 < turns, "{sticky} {turns}");
    assert!(prefix * 4 < turns, "{prefix} {turns}");
}

#[test]
fn throughput_grows_with_engines_until_the_network_is_full() {
    let rate = |engines: u32, nic: f64| {
        let speed = Speed { nic, ..Speed::default() };
        let cluster = Cluster { engines, speed, ..two_engines() };
        simulate(&cluster, u64::from(engines) * 12, 30)
    };
    let (few, many) = (rate(4, 25e9), rate(16, 25e9));
    let gain = many.throughput().requests / few.throughput().requests;
    assert!((3.6..4.4).contains(&gain), "{gain}");
    assert!(many.saturated().iter().all(|load| load.kind != Kind::NicIn), "{:?}", many.loads);
    let slow = rate(16, 25e8);
    assert!(slow.throughput().requests < 0.8 * many.throughput().requests);
    assert!(
        slow.saturated().first().is_some_and(|load| matches!(load.kind, Kind::NicIn | Kind::NicOut)),
        "{:?}",
        slow.loads
    );
}

#[test]
fn disk_holds_what_memory_cannot() {
    let small = Cluster { node_blocks: Blocks(60), ..two_engines() };
    let alone = simulate(&small, 20, 30);
    let behind = simulate(&Cluster { disk_blocks: Blocks(50_000), ..small }, 20, 30);
    assert!(behind.tally.hit_rate() > 0.9, "{}", behind.tally.hit_rate());
    assert!(alone.tally.hit_rate() < 0.5, "{}", alone.tally.hit_rate());
    assert!(behind.disk_hit_blocks > 0 && behind.evicted_blocks == 0);
}

#[test]
fn a_cluster_without_requests_reports_nothing() {
    let report = run(&Cluster::default(), &mut OpenLoop::new(std::iter::empty()));
    assert_eq!((report.tally.requests, report.seconds, report.throughput().requests), (0, 0.0, 0.0));
}

/// Agents that give up after so many steps of the run.
struct Impatient(Agents, usize);

impl Source for Impatient {
    fn due(&mut self) -> Option<Millis> {
        self.0.due()
    }

    fn next(&mut self) -> Option<Request> {
        self.0.next()
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        self.0.answered(session, at);
    }

    fn gives_up(&mut self) -> bool {
        self.1 = self.1.saturating_sub(1);
        self.1 == 0
    }
}

#[test]
fn a_source_that_gives_up_ends_the_run_and_what_was_answered_counts() {
    let requests = |steps| run(&Cluster::default(), &mut Impatient(Agents::new(20, 1), steps)).tally.requests;
    assert_eq!((requests(1), requests(1000)), (0, 20));
    // Loaded, computed and answered: three steps more for each.
    let some = requests(60);
    assert!((1..20).contains(&some), "{some}");
}
