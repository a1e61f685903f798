//! A node that is told to stop leaves nothing behind, whatever its threads are busy with.

mod common;

use common::{content, soon, start};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use tidepool_node::{Node, NodeConfig, StartError};
use tidepool_store::OpenError;
use tidepool_types::Epoch;
use tidepool_wire::message::{Pull, Request};

fn files(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.collect()
}

#[test]
fn a_pull_from_a_source_that_hangs_does_not_keep_a_node_from_stopping() {
    // The thread of a pull waited for its source for as long as the client had said. The node gave up on it after 5 s, and
    // ended without a goodbye and with its files left behind. Now a pull ends when the node stops.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = start("busy");
    let (dir, mut client) = (node.dir.clone(), node.tcp(1));
    let source = hanging.local_addr().unwrap().to_string();
    let pull =
        Pull { wait_millis: 3_600_000, source, epoch: Epoch(1), remove_source: false, keys: vec![b"k".to_vec()] };
    client.connection.send(&Request::Pull(pull), &[], soon()).unwrap();
    let _source = hanging.accept().unwrap();
    drop(node);
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn a_node_that_stops_during_a_pull_lets_go_of_its_source() {
    let source = start("source");
    source.unix(1).put(b"k", &content(b"k", 3 << 20));
    let node = start("puller");
    let (dir, mut client) = (node.dir.clone(), node.tcp(1));
    let pull = Pull {
        wait_millis: 3_600_000,
        source: source.node.data_address().to_string(),
        epoch: source.node.epoch(),
        remove_source: false,
        keys: vec![b"k".to_vec()],
    };
    client.connection.send(&Request::Pull(pull), &[], soon()).unwrap();
    drop(node);
    assert_eq!(files(dir.path()), [""; 0]);
    tidepool_testing::eventually("the source has nobody left", || source.metric("tidepool_node_holds") == 0);
}

#[test]
fn a_node_told_to_stop_while_it_looks_for_its_catalogs_leaves_nothing() {
    // A node resolved its catalogs' names for 5 s and then waited a second for their first answer, and heard no signal
    // meanwhile. Now it gives up within moments, and its socket goes too.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = NodeConfig {
        dir: dir.path().to_owned(),
        catalogs: vec![hanging.local_addr().unwrap().to_string()],
        ..NodeConfig::small("starting")
    };
    let stop = AtomicBool::new(false);
    let (started, _line) = std::thread::scope(|scope| {
        let line = scope.spawn(|| {
            let line = hanging.accept().unwrap();
            stop.store(true, Ordering::Relaxed);
            line
        });
        (Node::start_while(config, &|| !stop.load(Ordering::Relaxed)), line.join().unwrap())
    });
    assert!(matches!(started, Err(StartError::Memory(OpenError::Stopped))), "it did not give up");
    assert_eq!(files(dir.path()), [""; 0]);
}
