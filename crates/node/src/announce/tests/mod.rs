mod journal;
mod proxy;

use super::*;
use journal::MemoryInventory;
use proxy::Proxy;
use std::sync::atomic::AtomicBool;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::{LookupRequest, Want, pack_ids};
use tidepool_testing::eventually;
use tidepool_types::BlockId;

fn id(n: u64) -> BlockId {
    BlockId::from_words([n, !n])
}

fn info(name: &str) -> NodeInfo {
    NodeInfo {
        name: NodeName::new(name).unwrap(),
        epoch: Epoch(1),
        data_address: "127.0.0.1:1".to_owned(),
        socket: None,
        capacity_bytes: 1 << 30,
        host_hint: String::new(),
    }
}

fn catalog() -> Server {
    Server::start(CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }).unwrap()
}

fn announce(inventory: &Arc<MemoryInventory>, catalogs: Vec<String>) -> Announcer {
    let config = AnnounceConfig { silence: Duration::from_millis(500), ..AnnounceConfig::default() };
    Announcer::start(inventory.clone(), info("n"), catalogs, config).unwrap()
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn all_healthy(announcer: &Announcer) -> bool {
    announcer.status().iter().all(|status| status.healthy)
}

/// Asks one catalog.
struct Asker {
    runtime: tokio::runtime::Runtime,
    client: wire::catalog_client::CatalogClient<tonic::transport::Channel>,
}

impl Asker {
    fn new(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let endpoint = wire::endpoint(&server.address().to_string(), Duration::from_secs(5)).unwrap();
        let client = wire::client(runtime.block_on(endpoint.connect()).unwrap());
        Self { runtime, client }
    }

    fn found(&self, ids: &[BlockId]) -> Vec<bool> {
        self.answer(ids).0
    }

    /// What is found, and whether the catalog says that this is all.
    fn answer(&self, ids: &[BlockId]) -> (Vec<bool>, bool) {
        let request =
            LookupRequest { ids: pack_ids(ids.iter()), want: Want::Exists.into(), lease: false, vouch: false };
        let reply = self.runtime.block_on(self.client.clone().lookup(request)).unwrap().into_inner();
        (reply.counts.iter().map(|count| *count > 0).collect(), reply.complete)
    }

    /// Whether the catalog knows exactly what is held of the first `ids` ids.
    fn agrees(&self, inventory: &MemoryInventory, ids: u64) -> bool {
        let held = inventory.held();
        let ids: Vec<_> = (0..ids).map(id).collect();
        let expected: Vec<_> = ids.iter().map(|id| held.binary_search(id).is_ok()).collect();
        self.found(&ids) == expected
    }
}

#[test]
fn an_answered_put_is_found_through_each_healthy_catalog() {
    let catalogs = [catalog(), catalog()];
    let askers: Vec<_> = catalogs.iter().map(Asker::new).collect();
    let inventory = Arc::new(MemoryInventory::new(1 << 16));
    inventory.add_all((0..1000).map(id));
    let announcer = announce(&inventory, catalogs.iter().map(|c| c.address().to_string()).collect());
    eventually("both are healthy", || all_healthy(&announcer));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (announcer, inventory, askers) = (&announcer, &inventory, &askers);
            scope.spawn(move || {
                for n in 0..100 {
                    let block = id(10_000 + writer * 1000 + n);
                    assert!(announcer.wait_announced(inventory.add(block), soon()));
                    let before = announcer.status();
                    let found: Vec<_> = askers.iter().map(|asker| asker.found(&[block])[0]).collect();
                    let after = announcer.status();
                    for ((found, before), after) in found.iter().zip(before).zip(after) {
                        // A busy machine may cost a catalog its health; then nothing is promised until its next snapshot.
                        let stayed_healthy = before.healthy && after.healthy && before.snapshots == after.snapshots;
                        assert!(*found || !stayed_healthy);
                    }
                }
            });
        }
    });
    eventually("a catalog that fell behind is exact again", || {
        all_healthy(&announcer) && askers.iter().all(|asker| asker.agrees(&inventory, 15_000))
    });
}

#[test]
fn with_no_catalogs_there_is_nothing_to_wait_for() {
    let inventory = Arc::new(MemoryInventory::new(10));
    let announcer = announce(&inventory, Vec::new());
    assert!(announcer.wait_announced(inventory.add(id(1)), Deadline::after(Duration::ZERO)));
}

#[test]
fn a_catalog_that_cannot_be_reached_costs_puts_nothing() {
    let inventory = Arc::new(MemoryInventory::new(10));
    let announcer = announce(&inventory, vec!["127.0.0.1:1".to_owned()]);
    for n in 0..100 {
        assert!(announcer.wait_announced(inventory.add(id(n)), Deadline::after(Duration::ZERO)));
    }
    assert_eq!(announcer.status()[0].gave_up, 0);
}

#[test]
fn a_stopped_catalog_costs_one_put_the_bound_and_later_ones_nothing_and_is_exact_again_when_it_goes_on() {
    let server = catalog();
    let proxy = Proxy::new(server.address());
    let inventory = Arc::new(MemoryInventory::new(1 << 16));
    let announcer = announce(&inventory, vec![proxy.address.to_string()]);
    eventually("it is healthy", || all_healthy(&announcer));
    assert!(announcer.wait_announced(inventory.add(id(0)), soon()));
    proxy.hold(true);
    assert!(announcer.wait_announced(inventory.add(id(1)), soon()));
    assert!(!announcer.status()[0].healthy);
    for n in 2..1000 {
        assert!(announcer.wait_announced(inventory.add(id(n)), Deadline::after(Duration::ZERO)), "waits no more");
    }
    assert_eq!(announcer.status()[0].gave_up, 1);
    proxy.hold(false);
    eventually("it is healthy again", || all_healthy(&announcer));
    assert!(announcer.wait_announced(inventory.add(id(1000)), soon()));
    let asker = Asker::new(&server);
    eventually("it knows all", || asker.agrees(&inventory, 1100));
}

#[test]
fn a_deadline_before_the_bound_is_reported_and_does_not_cost_a_catalog_its_health() {
    let server = catalog();
    let proxy = Proxy::new(server.address());
    let inventory = Arc::new(MemoryInventory::new(1 << 16));
    let announcer = announce(&inventory, vec![proxy.address.to_string()]);
    eventually("it is healthy", || all_healthy(&announcer));
    proxy.hold(true);
    assert!(!announcer.wait_announced(inventory.add(id(0)), Deadline::after(Duration::ZERO)));
    assert_eq!(announcer.status()[0].gave_up, 0);
}

#[test]
fn under_full_churn_and_with_lines_cut_the_catalog_ends_equal_to_the_inventory() {
    let server = catalog();
    let proxy = Proxy::new(server.address());
    // A short journal: catching up after a cut overruns it now and then.
    let inventory = Arc::new(MemoryInventory::new(200));
    let retry_within = Duration::from_millis(10);
    let config = AnnounceConfig { silence: Duration::from_millis(500), retry_within, ..AnnounceConfig::default() };
    let announcer = Announcer::start(inventory.clone(), info("n"), vec![proxy.address.to_string()], config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u64;
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = id((n >> 33) % 3000);
                if n >> 63 == 0 {
                    inventory.add_all([block])
                } else {
                    inventory.remove(block)
                }
                // Whoever sends the changes gets at them, too.
                if n.is_multiple_of(256) {
                    std::thread::yield_now();
                }
            }
        });
        for cut in 0..20 {
            // Each cut hits a stream that is at work, however long it took to come back.
            eventually("a further snapshot has begun", || announcer.status()[0].snapshots > cut);
            proxy.pass(1 + cut * 3000);
            proxy.cut();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let asker = Asker::new(&server);
    eventually("the catalog equals the inventory", || all_healthy(&announcer) && asker.agrees(&inventory, 3000));
    assert!(announcer.status()[0].snapshots > 10);
}

#[test]
fn a_catalog_whose_stream_breaks_never_says_a_complete_no_to_an_answered_put() {
    let server = catalog();
    let proxy = Proxy::new(server.address());
    let asker = Asker::new(&server);
    let inventory = Arc::new(MemoryInventory::new(1 << 16));
    let announcer = announce(&inventory, vec![proxy.address.to_string()]);
    let (mut next, mut incomplete) = (0, 0);
    for round in 0..18 {
        eventually("the catalog is complete", || all_healthy(&announcer) && server.is_complete());
        match round % 3 {
            // Both ends know, the node alone knows, nobody knows.
            0 => proxy.cut(),
            1 => proxy.cut_unnoticed(),
            _ => proxy.hold(true),
        }
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            let block = id(next);
            next += 1;
            assert!(announcer.wait_announced(inventory.add(block), soon()));
            let (found, complete) = asker.answer(&[block]);
            assert!(found[0] || !complete, "block {block} in round {round}: a complete no");
            incomplete += u64::from(!complete);
            // What was held up arrives late and out of step with what happened meanwhile.
            if round % 3 == 2 && incomplete.is_multiple_of(7) {
                proxy.hold(false);
            }
        }
        proxy.hold(false);
    }
    assert!(incomplete > 0, "the cuts have shown");
    eventually("it knows all", || all_healthy(&announcer) && asker.agrees(&inventory, next));
}

#[test]
fn a_restarted_catalog_is_exact_again_from_the_nodes_alone() {
    let server = catalog();
    let address = server.address();
    let inventory = Arc::new(MemoryInventory::new(100));
    inventory.add_all((0..5000).map(id));
    let announcer = announce(&inventory, vec![address.to_string()]);
    eventually("it is healthy", || all_healthy(&announcer));
    server.shutdown();
    (0..500).for_each(|n| inventory.remove(id(n * 2)));
    let server = Server::start(CatalogConfig { listen: address, ..CatalogConfig::default() }).unwrap();
    assert!(!server.is_complete());
    eventually("it is complete", || server.is_complete());
    assert!(Asker::new(&server).agrees(&inventory, 6000));
    assert!(announcer.wait_announced(inventory.add(id(9999)), soon()));
}

#[test]
fn a_node_that_stops_says_goodbye_and_leaves_no_thread() {
    let server = catalog();
    let asker = Asker::new(&server);
    let inventory = Arc::new(MemoryInventory::new(100));
    inventory.add(id(1));
    let announcer = announce(&inventory, vec![server.address().to_string()]);
    eventually("it is healthy", || all_healthy(&announcer));
    announcer.set_used_bytes(77);
    announcer.stop();
    assert!(announcer.threads.lock().is_empty());
    eventually("its block is gone at once", || asker.found(&[id(1)]) == [false]);
    assert_eq!(Arc::strong_count(&inventory), 2, "the announcer itself and this test: no thread holds it");
}

#[test]
fn a_catalog_with_two_addresses_gets_one_stream_and_keeps_it_when_one_address_fails() {
    // A node that was told two addresses of one catalog (its host's and 127.0.0.1, or a name that resolved only later) opened
    // a stream for each. The catalog has one stream per node, so each replaced the other: 30 snapshots a second for ever,
    // and a catalog that was never complete. Now the catalog's incarnation tells, and the second address only stands by.
    let server = catalog();
    let lines = [Proxy::new(server.address()), Proxy::new(server.address())];
    let inventory = Arc::new(MemoryInventory::new(1 << 16));
    let announcer = announce(&inventory, lines.iter().map(|line| line.address.to_string()).collect());
    let link_up = |n: usize| announcer.targets[n].link.is_healthy();
    let is_double = |n: usize| announcer.targets[n].link.problem().is_some_and(|problem| problem.same_as.is_some());
    let settled = || (0..2).any(|n| link_up(n) && is_double(1 - n));
    eventually("one has a stream, the other one knows", settled);
    let snapshots = || announcer.targets.iter().map(|target| target.link.numbers().1).sum::<u64>();
    assert_eq!(snapshots(), 1);
    assert!(all_healthy(&announcer), "the catalog is well, whatever address one asks for");
    for n in 0..200 {
        assert!(announcer.wait_announced(inventory.add(id(n)), soon()));
    }
    assert_eq!(snapshots(), 1, "no stream has put out the other");
    let first = usize::from(!link_up(0));
    lines[first].hold(true);
    eventually("the other address takes over", || link_up(1 - first));
    lines[first].hold(false);
    eventually("the first one stands by", || is_double(first));
    assert!(link_up(1 - first));
    let asker = Asker::new(&server);
    eventually("the catalog knows all", || all_healthy(&announcer) && asker.agrees(&inventory, 300));
}

#[test]
fn a_put_that_waits_for_a_catalog_is_let_go_when_the_node_stops() {
    // With a long bound and a catalog that hangs, a put kept its connection's thread busy long after the node was told to
    // stop: it gave up waiting for the thread, said no goodbye and left its files. Now nobody waits any more.
    let server = catalog();
    let proxy = Proxy::new(server.address());
    let inventory = Arc::new(MemoryInventory::new(10));
    let config = AnnounceConfig { ack_bound: Duration::from_secs(600), ..AnnounceConfig::default() };
    let announcer = Announcer::start(inventory.clone(), info("n"), vec![proxy.address.to_string()], config).unwrap();
    eventually("it is healthy", || all_healthy(&announcer));
    proxy.hold(true);
    let number = inventory.add(id(1));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| announcer.wait_announced(number, Deadline::after(Duration::from_secs(600))));
        announcer.release();
        assert!(!waiting.join().unwrap(), "it was not announced");
    });
}
