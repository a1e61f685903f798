//! `Watch` over a connection. What holds whatever happens is tested in `src/subscribers/tests.rs`.

mod common;

use common::{Asker, HandNode, calm, id};
use std::collections::BTreeMap;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::watch_event::Event;
use tidepool_schema::{NodeState, REMOVED, WatchEvent, WatchRequest, unpack_ids};
use tidepool_testing::{eventually, number};
use tonic::{Code, Streaming};

fn watch(asker: &Asker) -> Streaming<WatchEvent> {
    asker.run(asker.client.clone().watch(WatchRequest {})).unwrap().into_inner()
}

fn next(asker: &Asker, events: &mut Streaming<WatchEvent>) -> Event {
    asker.run(events.message()).unwrap().unwrap().event.unwrap()
}

/// The next event that is no sign of life.
fn news(asker: &Asker, events: &mut Streaming<WatchEvent>) -> Event {
    loop {
        match next(asker, events) {
            Event::Current(_) => {}
            event => return event,
        }
    }
}

#[test]
fn a_subscriber_is_told_the_nodes_what_they_hold_and_then_each_change() {
    let server = Server::start(calm()).unwrap();
    let asker = Asker::new(&server);
    let mut node = HandNode::connect(&server, "a", 7).unwrap();
    node.snapshot(1, 0, 0..5000);
    let stream = asker.member("a").unwrap().stream;
    let mut events = watch(&asker);
    assert!(matches!(next(&asker, &mut events), Event::Start(start) if start.incarnation != 0));
    let Event::Node(told) = next(&asker, &mut events) else { panic!("the nodes come first") };
    let named = told.node.unwrap();
    assert_eq!((named.name.as_str(), named.epoch, told.stream, told.forgotten), ("a", 7, stream, false));
    let mut held = BTreeMap::new();
    loop {
        match next(&asker, &mut events) {
            Event::Changes(page) => {
                assert_eq!(page.stream, stream);
                held.extend(unpack_ids(&page.ids).zip(page.kinds));
            }
            Event::Current(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(held, (0..5000).map(|n| (id(n), 0)).collect());
    for (first, kind) in [(1, 1), (11, REMOVED)] {
        node.deltas(first, kind, 0..10);
        let Event::Changes(changes) = news(&asker, &mut events) else { panic!("a change is told") };
        assert_eq!(unpack_ids(&changes.ids).collect::<Vec<_>>(), (0..10).map(id).collect::<Vec<_>>());
        assert_eq!(changes.kinds[..], [kind; 10]);
    }
    node.goodbye();
    let Event::Node(told) = news(&asker, &mut events) else { panic!("its end is told") };
    assert_eq!(told.node.unwrap().state(), NodeState::Dead);
    server.shutdown();
    let ended = asker.run(async {
        loop {
            match events.message().await {
                Ok(event) => assert!(event.is_some(), "it ends as if nothing were to come"),
                Err(status) => return status,
            }
        }
    });
    assert_eq!(ended.code(), Code::Unavailable, "the end of the catalog is no end of the pool");
}

#[test]
fn a_subscriber_that_goes_away_frees_its_place() {
    let server = Server::start(CatalogConfig { max_subscribers: 1, ..calm() }).unwrap();
    let asker = Asker::new(&server);
    let subscribers = || number(&server.metrics(), "tidepool_catalog_subscribers");
    let events = watch(&asker);
    assert_eq!(subscribers(), 1);
    let refused = asker.run(asker.client.clone().watch(WatchRequest {})).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "1 subscribers listen already; at most 1 may");
    drop(events);
    eventually("the place is free", || subscribers() == 0);
    drop(watch(&asker));
}
