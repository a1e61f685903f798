//! `Wait`: answered as soon as a node holds one of the blocks, and bounded in every way.

mod common;

use common::{Asker, HandNode, calm, id};
use std::time::{Duration, Instant};
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::{LONGEST_WAIT, REMOVED, WaitReply, WaitRequest, pack_ids};
use tidepool_testing::{eventually, number};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

/// Far longer than any test takes.
const LONG: Duration = Duration::from_secs(50);

fn request(ids: impl Iterator<Item = u64>, wait: Duration) -> WaitRequest {
    let ids: Vec<_> = ids.map(id).collect();
    WaitRequest { ids: pack_ids(ids.iter()), wait_millis: wait.as_millis() as u32 }
}

/// A call that waits meanwhile.
type Waiting = JoinHandle<Result<WaitReply, Status>>;

fn begin(asker: &Asker, request: WaitRequest) -> Waiting {
    let mut client = asker.client.clone();
    asker.spawn(async move { Ok(client.wait(request).await?.into_inner()) })
}

fn end(asker: &Asker, waiting: Waiting) -> Result<WaitReply, Status> {
    asker.run(waiting).unwrap()
}

fn wait(asker: &Asker, ids: impl Iterator<Item = u64>, wait: Duration) -> Result<WaitReply, Status> {
    end(asker, begin(asker, request(ids, wait)))
}

fn waits(server: &Server) -> u64 {
    number(&server.metrics(), "tidepool_catalog_waits")
}

fn eventually_waits(server: &Server, count: u64) {
    eventually(&format!("{count} calls wait"), || waits(server) == count);
}

#[test]
fn a_wait_ends_when_any_node_seals_one_of_the_blocks_also_ones_that_nobody_had_reserved() {
    let server = Server::start(calm()).unwrap();
    let asker = Asker::new(&server);
    let (mut first, mut second) =
        (HandNode::connect(&server, "a", 1).unwrap(), HandNode::connect(&server, "b", 1).unwrap());
    first.snapshot(1, 0, 0..10);
    second.snapshot(1, 0, 0..10);
    for (change, sealed) in [(1, 100), (2, 101)] {
        let waiting = begin(&asker, request(100 + change - 1..110, LONG));
        eventually_waits(&server, 1);
        let node = if change == 1 { &mut first } else { &mut second };
        node.deltas(1, 1, 500..600);
        node.deltas(101, 0, sealed..sealed + 1);
        let reply = end(&asker, waiting).unwrap();
        let held: Vec<u64> =
            (100 + change - 1..110).zip(&reply.held).filter(|(_, held)| **held == 1).map(|(n, _)| n).collect();
        assert_eq!(held, [sealed]);
        eventually_waits(&server, 0);
    }
    assert_eq!(number(&server.metrics(), "tidepool_catalog_waits_held_total"), 2);
    assert_eq!(number(&server.metrics(), "tidepool_catalog_waited_ids"), 0);
}

#[test]
fn a_wait_ends_when_a_node_joins_that_holds_one_of_the_blocks() {
    let server = Server::start(calm()).unwrap();
    let asker = Asker::new(&server);
    let waiting = begin(&asker, request(0..5, LONG));
    eventually_waits(&server, 1);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 3..10);
    assert_eq!(end(&asker, waiting).unwrap().held[..], [0, 0, 0, 1, 1]);
}

#[test]
fn a_wait_for_what_is_held_is_answered_at_once() {
    // No place for anybody who waits.
    let server = Server::start(CatalogConfig { max_waited_ids: 1, ..calm() }).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 5..10);
    assert_eq!(wait(&asker, 3..7, LONG).unwrap().held[..], [0, 0, 1, 1]);
    assert!(wait(&asker, 0..0, LONG).unwrap().held.is_empty());
    assert_eq!(wait(&asker, 0..3, Duration::ZERO).unwrap().held[..], [0, 0, 0], "no time is a look-up");
}

#[test]
fn a_wait_ends_with_nothing_when_its_time_is_up() {
    let server = Server::start(calm()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 1).unwrap();
    node.snapshot(1, 0, 5..10);
    let (started, time) = (Instant::now(), Duration::from_millis(50));
    let waiting = begin(&asker, request(0..3, time));
    eventually("it waits, or has waited", || waits(&server) == 1 || waiting.is_finished());
    // Neither a removal nor a block that is gone again ends it.
    node.deltas(1, REMOVED, 5..6);
    assert_eq!(end(&asker, waiting).unwrap().held[..], [0, 0, 0]);
    assert!(started.elapsed() >= time);
    assert_eq!(number(&server.metrics(), "tidepool_catalog_waits_over_total"), 1);
    assert_eq!(LONGEST_WAIT, Duration::from_secs(60), "as the schema says");
}

#[test]
fn a_waiter_that_goes_away_frees_its_place() {
    let server = Server::start(CatalogConfig { max_waits: 1, ..calm() }).unwrap();
    let asker = Asker::new(&server);
    for _ in 0..3 {
        let waiting = begin(&asker, request(0..1000, LONG));
        eventually_waits(&server, 1);
        // The call is given up; its connection stays.
        waiting.abort();
        eventually_waits(&server, 0);
    }
    let other = Asker::new(&server);
    let _waiting = begin(&other, request(0..1000, LONG));
    eventually_waits(&server, 1);
    // The connection goes.
    drop(other);
    eventually_waits(&server, 0);
    assert_eq!(number(&server.metrics(), "tidepool_catalog_waited_ids"), 0);
}

#[test]
fn past_a_bound_a_wait_is_refused_with_the_bound_and_look_ups_go_on() {
    let server = Server::start(CatalogConfig { max_waits: 2, max_waited_ids: 100, ..calm() }).unwrap();
    let asker = Asker::new(&server);
    let _first = begin(&asker, request(0..60, LONG));
    eventually_waits(&server, 1);
    let many = wait(&asker, 0..41, LONG).unwrap_err();
    assert_eq!(many.code(), Code::ResourceExhausted);
    assert_eq!(many.message(), "41 more make 101 ids; at most 100 ids may be waited for by all calls together");
    let _second = begin(&asker, request(0..40, LONG));
    eventually_waits(&server, 2);
    let more = wait(&asker, 0..1, LONG).unwrap_err();
    assert_eq!(more.message(), "2 calls wait already; at most 2 may");
    assert_eq!(asker.holders(0..10).len(), 10);
    let ragged = WaitRequest { ids: vec![0; 33].into(), wait_millis: 1 };
    let ragged = end(&asker, begin(&asker, ragged)).unwrap_err();
    assert_eq!(ragged.code(), Code::InvalidArgument);
    assert!(ragged.message().contains("16 bytes each"), "{ragged}");
}

#[test]
fn a_catalog_that_stops_ends_its_waits_at_once() {
    let server = Server::start(calm()).unwrap();
    let asker = Asker::new(&server);
    let waiting = begin(&asker, request(0..10, LONG));
    eventually_waits(&server, 1);
    server.shutdown();
    assert!(end(&asker, waiting).is_err());
}
