//! What a removal was answered for does not come back, unless the answer names the node that brings it back.
//!
//! A removal asked the holders that a catalog named, and named those that the client's own table held for dead. The table is a
//! second old: for that long a node that the catalog had just given up was neither asked nor named, and neither was one that
//! a restarted catalog had never heard of. 43 of 43 blocks so removed were read again when their node went on.

use crate::cluster::{Cluster, NodeProcess, Over, eventually, name, prefer};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::catalogs::NodeState;
use tidepool_client::{Client, ListCursor, NodeError, NodeName, Pattern, PutOptions, Removal};
use tidepool_node::{Node, NodeConfig};
use tidepool_transfer::conn::{Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline};
use tidepool_wire::message::{Hello, Pull, PullOutcome, Reply, Request};

/// Blocks that are removed one by one while their node is stopped.
const BLOCKS: usize = 1500;

/// A catalog that gives nodes up soon.
fn hasty() -> CatalogConfig {
    CatalogConfig {
        settle: Duration::ZERO,
        suspect_after: Duration::from_millis(200),
        dead_after: Duration::from_millis(500),
        ..CatalogConfig::default()
    }
}

fn key(number: usize) -> String {
    format!("key {number}")
}

/// Puts blocks on the node `far`, which is in a process of its own.
fn fill(client: &Client, blocks: usize) {
    for number in 0..blocks {
        let stored = client.put(key(number), b"bytes", &prefer("far")).unwrap();
        assert!(stored.moved);
    }
}

fn number(catalog: &Server, metric: &str) -> u64 {
    tidepool_testing::number(&catalog.metrics(), metric)
}

/// Whether the catalog has given `far` up, and says that it knows all there is.
fn is_dead(catalog: &Server) -> bool {
    number(catalog, "tidepool_catalog_nodes_dead") == 1 && catalog.is_complete()
}

/// Whether the catalog knows all that `far` holds.
fn is_back(catalog: &Server) -> bool {
    number(catalog, "tidepool_catalog_nodes_alive") == 1 && catalog.is_complete()
}

/// Lets `far` go on, and checks that every block that is read again was in an answer that named it.
fn check_what_comes_back(cluster: &Cluster, far: &NodeProcess, answers: &BTreeMap<usize, Vec<NodeName>>) {
    far.signal(Signal::CONT);
    eventually("far is back", || cluster.catalogs.iter().all(is_back));
    let client = cluster.client_and(Over::Tcp, 1);
    let came_back: Vec<usize> =
        answers.keys().copied().filter(|&number| client.get(key(number)).unwrap().is_some()).collect();
    assert!(!came_back.is_empty(), "the test has to see blocks that come back");
    let untold: Vec<usize> =
        came_back.iter().copied().filter(|number| !answers[number].contains(&name("far"))).collect();
    assert!(untold.is_empty(), "{} of {} came back untold: {untold:?}", untold.len(), came_back.len());
}

#[test]
fn a_node_that_stops_is_named_from_then_on_by_every_removal() {
    let cluster = Cluster::with_catalogs(1, &hasty());
    let far = cluster.spawn_node("far");
    let client = cluster.client_and(Over::Tcp, 1);
    fill(&client, BLOCKS);
    far.signal(Signal::STOP);
    let (mut answers, mut since_death) = (BTreeMap::new(), 0);
    for number in 0..BLOCKS {
        answers.insert(number, client.remove(key(number)).unwrap().unanswered);
        since_death += usize::from(is_dead(&cluster.catalogs[0]));
        if since_death == 200 {
            break;
        }
    }
    assert_eq!(since_death, 200, "the catalog did not give the node up in {BLOCKS} removals");
    check_what_comes_back(&cluster, &far, &answers);
}

/// Two catalogs; the one at `restarted` starts anew while the node is stopped, and knows nothing of it.
fn one_catalog_restarts(restarted: usize) {
    let mut cluster = Cluster::with_catalogs(2, &hasty());
    let far = cluster.spawn_node("far");
    let old = cluster.client_and(Over::Tcp, 1);
    fill(&old, 40);
    far.signal(Signal::STOP);
    eventually("the catalogs give the node up", || cluster.catalogs.iter().all(is_dead));
    cluster.restart_catalog(restarted, &hasty());
    let fresh = cluster.client_with(0, |config| config.local = false).within(Duration::from_secs(20));
    let mut answers = BTreeMap::new();
    for (number, client) in (0..20).map(|number| (number, &old)).chain((20..30).map(|number| (number, &fresh))) {
        answers.insert(number, client.remove(key(number)).unwrap().unanswered);
    }
    let matching = fresh.remove_matching("^key 3[0-9]$").unwrap();
    answers.extend((30..40).map(|number| (number, matching.unanswered.clone())));
    check_what_comes_back(&cluster, &far, &answers);
}

#[test]
fn the_first_of_two_catalogs_may_restart_while_a_node_is_stopped() {
    one_catalog_restarts(0);
}

#[test]
fn the_second_of_two_catalogs_may_restart_while_a_node_is_stopped() {
    one_catalog_restarts(1);
}

#[test]
fn a_node_that_lists_hide_is_named_and_one_that_catalogs_forgot_is_named_by_who_saw_it() {
    let hides = CatalogConfig { hide_after: Duration::ZERO, ..hasty() };
    let forgets = CatalogConfig { forget_after: Duration::ZERO, ..hides.clone() };
    for (config, is_remembered) in [(hides, true), (forgets, false)] {
        let cluster = Cluster::with_catalogs(1, &config);
        let far = cluster.spawn_node("far");
        let old = cluster.client_and(Over::Tcp, 1);
        fill(&old, 2);
        #[expect(clippy::disallowed_methods, reason = "compared with what an answer says in the same clock")]
        let stopped = SystemTime::now();
        far.signal(Signal::STOP);
        eventually("lists no longer show the node", || old.members().is_empty() && cluster.catalogs[0].is_complete());
        let fresh = cluster.client_with(0, |config| config.local = false);
        let told = fresh.remove(key(0)).unwrap();
        match is_remembered {
            true => assert_eq!(told.unanswered, [name("far")]),
            false => assert!(told.known_since.unwrap() > stopped, "the answer says that it may miss such a node"),
        }
        assert_eq!(old.remove(key(1)).unwrap().unanswered, [name("far")]);
    }
}

#[test]
fn a_node_that_an_operator_had_forgotten_is_not_named_and_does_not_come_back() {
    let cluster = Cluster::with_catalogs(2, &hasty());
    let far = cluster.spawn_node("far");
    let client = cluster.client_and(Over::Tcp, 1);
    fill(&client, 1);
    let state = client.forget(&name("far")).unwrap_err();
    assert_eq!(state, NodeError::NotDead { node: name("far"), state: "alive" });
    assert_eq!(client.forget(&name("nobody")).unwrap_err(), NodeError::UnknownNode(name("nobody")));
    far.signal(Signal::STOP);
    eventually("the catalogs give the node up", || cluster.catalogs.iter().all(is_dead));
    assert_eq!(client.remove(key(0)).unwrap().unanswered, [name("far")]);
    let forgotten = client.forget(&name("far")).unwrap();
    assert_eq!((forgotten.by, forgotten.unanswered), (2, Vec::new()));
    assert_eq!(client.remove(key(0)).unwrap().unanswered, []);
    let refused = |catalog: &Server| number(catalog, "tidepool_catalog_streams_refused_total") > 0;
    far.signal(Signal::CONT);
    eventually("both catalogs refuse the node", || cluster.catalogs.iter().all(refused));
    assert!(client.members().is_empty());
    assert_eq!(client.get(key(0)).unwrap(), None);
}

#[test]
fn a_node_whose_process_has_ended_is_not_named() {
    let cluster = Cluster::with_catalogs(1, &hasty());
    let far = cluster.spawn_node("far");
    let client = cluster.client_and(Over::Tcp, 1);
    fill(&client, 3);
    drop(far);
    eventually("the catalog has noticed", || number(&cluster.catalogs[0], "tidepool_catalog_nodes_alive") == 0);
    assert_eq!(client.remove(key(0)).unwrap().unanswered, [], "a moment after it was killed");
    eventually("the catalog gives the node up", || is_dead(&cluster.catalogs[0]));
    assert_eq!(client.remove(key(1)).unwrap().unanswered, [], "while it is held for dead");
    assert_eq!(client.remove_matching("key").unwrap().unanswered, []);
    // Under the same name, and empty.
    let _again = cluster.spawn_node("far");
    eventually("the new life is known", || client.members().iter().any(|node| node.state == Some(NodeState::Alive)));
    assert_eq!(client.remove(key(2)).unwrap().unanswered, []);
}

/// A copy on a node that neither the client nor a catalog knows: the copy's source tells of that node, and nobody can ask it.
#[test]
fn a_copier_that_the_client_does_not_know_is_named() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Tcp);
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let stranger = Node::start(NodeConfig { dir: dir.path().to_owned(), ..NodeConfig::small("stranger") }).unwrap();
    let until = Deadline::after(Duration::from_secs(20));
    let hello = Hello { client: ClientId(7), wants_memory: false };
    let (mut connection, _) =
        Connection::connect_tcp(stranger.data_address(), &TcpOptions::default(), hello, until).unwrap();
    let source = &cluster.nodes[0];
    let pull = Pull {
        wait_millis: 10_000,
        source: source.data_address().to_string(),
        epoch: source.memory().epoch(),
        remove_source: false,
        keys: vec![b"key".to_vec()],
    };
    let pulled = connection.call(&Request::Pull(pull), &[], until).unwrap();
    assert_eq!(pulled, Reply::Pulled(vec![PullOutcome::Copied]));
    let Removal { removed, unanswered, .. } = client.remove("key").unwrap();
    assert_eq!((removed, unanswered), (true, vec![name("stranger")]));
}

#[test]
fn an_upsert_names_the_nodes_that_may_keep_the_old_version() {
    let cluster = Cluster::with_catalogs(1, &hasty());
    let far = cluster.spawn_node("far");
    let client = cluster.client_and(Over::Tcp, 1);
    fill(&client, 1);
    let _near = cluster.spawn_node("near");
    eventually("both nodes are known", || client.members().len() == 2);
    assert_eq!(client.upsert(key(0), b"second", &prefer("near")).unwrap().unanswered, []);
    far.signal(Signal::STOP);
    eventually("the catalog gives the node up", || is_dead(&cluster.catalogs[0]));
    let upserted = client.upsert(key(0), b"third", &prefer("near")).unwrap();
    assert_eq!((upserted.moved, upserted.unanswered), (true, vec![name("far")]));
    far.signal(Signal::CONT);
}

/// One of two catalogs restarted after a node was forgotten, and lost the bar: it admitted the node, and a client that asked
/// the other catalog first neither asked that living node nor named it.
#[test]
fn a_forgotten_node_that_a_restarted_catalog_admits_is_asked() {
    let mut cluster = Cluster::with_catalogs(2, &hasty());
    let far = cluster.spawn_node("far");
    let client = cluster.client_and(Over::Tcp, 1);
    fill(&client, 1);
    far.signal(Signal::STOP);
    eventually("the catalogs give the node up", || cluster.catalogs.iter().all(is_dead));
    assert_eq!(client.forget(&name("far")).unwrap().by, 2);
    cluster.restart_catalog(1, &hasty());
    far.signal(Signal::CONT);
    eventually("the restarted catalog admits the node", || is_back(&cluster.catalogs[1]));
    let fresh = cluster.client_with(0, |config| config.local = false);
    assert!(fresh.remove(key(0)).unwrap().removed);
}

/// A node whose advertised address refused connections counted as ended, though a catalog had just heard from it: its block
/// stayed, and the answer said that nobody could have it.
#[test]
fn a_living_node_whose_address_refuses_connections_is_named() {
    let mut cluster = Cluster::new(0);
    let refuses = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    cluster.add_node("far", |config| config.data_advertise = Some(refuses.to_string()));
    cluster.client(Over::Shm).put("key", b"bytes", &PutOptions::default()).unwrap();
    let client = cluster.client(Over::Tcp);
    assert_eq!(client.remove("key").unwrap().unanswered, [name("far")]);
    assert_eq!(client.remove_matching("key").unwrap().unanswered, [name("far")]);
    assert_eq!(client.list(&Pattern::All, &ListCursor::default(), 10).unwrap().unanswered, [name("far")]);
}

/// A stopped node of this host that its restarted catalog does not know was asked by nobody, and not named.
#[test]
fn a_stopped_node_of_this_host_is_named_though_no_catalog_knows_it() {
    let mut cluster = Cluster::with_catalogs(1, &hasty());
    cluster.add_node("near", |_| {});
    let far = cluster.spawn_node("far");
    fill(&cluster.client_and(Over::Shm, 1), 1);
    far.signal(Signal::STOP);
    cluster.restart_catalog(0, &hasty());
    eventually("the catalog knows the other node", || is_back(&cluster.catalogs[0]));
    let client = cluster.client(Over::Shm);
    assert_eq!(client.remove(key(0)).unwrap().unanswered, [name("far")]);
    assert_eq!(client.remove_all().unwrap().unanswered, [name("far")]);
    far.signal(Signal::CONT);
}

/// A copier was asked to remove the whole batch, with the blocks that a lease keeps.
#[test]
fn a_copier_keeps_the_blocks_of_the_batch_that_are_leased() {
    let cluster = Cluster::with_leases(2, Duration::from_secs(600));
    let client = cluster.client_with(2, |config| (config.local, config.leases) = (false, true));
    for block in ["leased", "free"] {
        client.put(block, b"bytes", &prefer("n0")).unwrap();
        client.copy_to(block, &name("n1")).unwrap();
    }
    assert!(client.get("leased").unwrap().is_some());
    let removals = client.remove_unleased(&["leased", "free"]).unwrap();
    assert!(removals[0].leased && !removals[0].removed && removals[1].removed);
    let mut holders = client.holders("leased").unwrap();
    holders.sort();
    assert_eq!(holders, [name("n0"), name("n1")]);
    assert_eq!(client.holders("free").unwrap(), []);
}
