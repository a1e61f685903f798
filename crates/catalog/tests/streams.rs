//! What becomes of a stream's blocks: found while it lives, gone with it, never back.

mod common;

use common::{Asker, HandNode, quick};
use std::time::Duration;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::inventory_up::Message;
use tidepool_schema::{Heartbeat, NodeState, REMOVED, inventory_down};
use tidepool_testing::eventually;
use tonic::Code;

fn metric(server: &Server, name: &str) -> u64 {
    tidepool_testing::number(&server.metrics(), name)
}

#[test]
fn an_acknowledged_change_is_found() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 10, 0..100);
    assert!(asker.holders(0..100).iter().all(|holders| holders == &["a"]));
    let ack = node.deltas(11, 1, 100..110);
    assert_eq!(ack.applied, 20);
    assert!(asker.holders(100..110).iter().all(|holders| holders == &["a"]));
    node.deltas(21, REMOVED, 0..50);
    assert!(asker.holders(0..50).iter().all(Vec::is_empty));
    assert_eq!(metric(&server, "tidepool_catalog_blocks"), 60);
    assert_eq!(metric(&server, "tidepool_catalog_lookup_keys_total"), 160);
    assert_eq!(metric(&server, "tidepool_catalog_lookup_seconds"), 3);
}

#[test]
fn a_catalog_is_complete_when_every_node_has_caught_up_and_was_heard_lately() {
    // However long this test takes on a busy host, the node is not dead.
    let config = CatalogConfig { dead_after: Duration::from_secs(60), ..quick() };
    let server = Server::start(config).unwrap();
    assert!(server.is_complete(), "a catalog without nodes knows all there is");
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    assert!(!server.is_complete());
    let ack = node.snapshot(1, 0, 0..10);
    assert!(!server.is_complete(), "a page proves nothing about when it was written");
    // On a busy host a heartbeat may be too old before the catalog is looked at; one of them is not.
    let complete_after_heartbeats = |node: &mut HandNode, mut probe: u64| {
        eventually("a fresh probe makes it complete", || {
            probe = node.heartbeat(0, probe).unwrap().probe;
            server.is_complete()
        });
        probe
    };
    let probe = complete_after_heartbeats(&mut node, ack.probe);
    eventually("silence makes it incomplete", || !server.is_complete());
    // That the last answered probe is too old says nothing yet of the one that came with its answer. Later ones do: they count
    // the catalog's microseconds.
    eventually("the probe is older than the bound", || {
        let later = node.heartbeat(0, 0).unwrap().probe;
        later - probe > quick().ack_bound.as_micros() as u64
    });
    node.heartbeat(0, probe).unwrap();
    assert!(!server.is_complete(), "an old probe proves nothing");
    complete_after_heartbeats(&mut node, 0);
}

#[test]
fn a_catalog_that_has_just_started_is_not_complete() {
    let server = Server::start(CatalogConfig::default()).unwrap();
    assert!(!server.is_complete());
    eventually("it settles", || server.is_complete());
}

#[test]
fn a_gap_asks_for_a_snapshot_and_drops_what_the_stream_said() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 0..10);
    let before = asker.member("a").unwrap().stream;
    let answer = node.say(Message::Heartbeat(Heartbeat { latest: 1, ..Heartbeat::default() })).unwrap();
    assert!(matches!(answer, inventory_down::Message::Resync(_)));
    assert!(asker.holders(0..10).iter().all(Vec::is_empty));
    node.snapshot(2, 1, 5..15);
    let found: Vec<_> = asker.holders(0..15).iter().map(|holders| !holders.is_empty()).collect();
    assert_eq!(found, (0..15).map(|n| n >= 5).collect::<Vec<_>>());
    assert!(asker.member("a").unwrap().stream > before);
    assert_eq!(metric(&server, "tidepool_catalog_resyncs_total"), 1);
}

#[test]
fn a_stream_that_breaks_is_suspect_then_dead_and_its_blocks_are_no_longer_found() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 0..10);
    assert_eq!(asker.state("a"), Some(NodeState::Alive));
    drop(node);
    eventually("it is suspect", || asker.state("a") == Some(NodeState::Suspect));
    assert!(asker.holders(0..10).iter().all(|holders| holders == &["a"]), "suspect is still named");
    eventually("it is dead", || asker.state("a") == Some(NodeState::Dead));
    assert!(asker.holders(0..10).iter().all(Vec::is_empty));
    eventually("its entries are swept", || metric(&server, "tidepool_catalog_blocks") == 0);
}

#[test]
fn a_silent_node_is_dead_though_its_connection_is_open_and_must_begin_again() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 0..10);
    eventually("it is dead", || asker.state("a") == Some(NodeState::Dead));
    assert_eq!(node.heartbeat(0, 0).unwrap_err().code(), Code::Aborted);
    assert!(asker.holders(0..10).iter().all(Vec::is_empty));
    let mut again = HandNode::connect(&server, "a", 1).unwrap();
    again.snapshot(1, 0, 5..10);
    let found = asker.holders(0..10).iter().filter(|holders| !holders.is_empty()).count();
    assert_eq!(found, 5);
}

#[test]
fn a_suspect_holder_is_named_after_all_others() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut silent = HandNode::connect(&server, "a", 1).unwrap();
    silent.snapshot(1, 0, 0..1);
    let mut alive = HandNode::connect(&server, "b", 1).unwrap();
    alive.snapshot(1, 0, 0..1);
    assert_eq!(asker.holders(0..1), [["a", "b"]]);
    drop(silent);
    eventually("a is suspect", || {
        alive.heartbeat(0, 0).unwrap();
        asker.state("a") == Some(NodeState::Suspect)
    });
    assert_eq!(asker.holders(0..1), [["b", "a"]]);
}

#[test]
fn stale_stream_numbers_never_come_back_to_life() {
    let config = CatalogConfig { max_streams: 3, ..quick() };
    let server = Server::start(config).unwrap();
    let asker = Asker::new(&server);
    for round in 0..40u64 {
        // Other blocks each time, under another name: a slot that is used again must not bring old entries back.
        let name = format!("n{}", round % 3);
        let blocks = round * 100..round * 100 + 100;
        let mut node = None;
        eventually("a slot is free", || {
            node = HandNode::connect(&server, &name, round).ok();
            node.is_some()
        });
        let mut node = node.expect("connected");
        node.snapshot(1, 0, blocks.clone());
        let holders = asker.holders(0..(round + 1) * 100);
        for (n, holders) in holders.iter().enumerate() {
            let expected: &[String] = if blocks.contains(&(n as u64)) { std::slice::from_ref(&name) } else { &[] };
            assert_eq!(holders, expected, "block {n} in round {round}");
        }
        node.goodbye();
        eventually("it left", || asker.state(&name) == Some(NodeState::Dead));
    }
    assert!(metric(&server, "tidepool_catalog_sweeps_total") >= 37);
}

#[test]
fn two_nodes_cannot_have_one_name() {
    let server = Server::start(quick()).unwrap();
    let _first = HandNode::connect(&server, "a", 1).unwrap();
    let refused = HandNode::connect(&server, "a", 2).err().unwrap();
    assert_eq!(refused.code(), Code::AlreadyExists);
}
