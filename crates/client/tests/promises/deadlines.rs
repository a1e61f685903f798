//! Every call has a deadline, whatever it waits for.

use crate::cluster::{BOTH, Cluster, Over, content, eventually};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tidepool_client::{PutError, PutOptions};

/// A same-host copy did not look at its deadline at all.
#[test]
fn a_call_whose_deadline_has_passed_moves_nothing() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let key = format!("{over:?}");
        client.put(&key, &content(1, 100_000), &PutOptions::default()).unwrap();
        let late = client.within(Duration::ZERO);
        assert_eq!(late.get(&key), Ok(None), "a miss");
        let put = late.put("other", &content(2, 100_000), &PutOptions::default());
        assert!(matches!(put, Err(PutError::Timeout | PutError::NoSpace | PutError::NoNode)), "{put:?}");
        assert_eq!(client.get("other"), Ok(None));
        eventually("nothing stays reserved", || cluster.metric(0, "tidepool_node_reserved") == 0);
    }
}

/// Sockets of stopped nodes were tried one after the other under a lock, every second: with a few of them, a call that had
/// just heard of a node waited for all. Now a call waits for no socket but its own, and that one is left alone for a while.
#[test]
fn stopped_nodes_of_this_host_do_not_hold_up_the_others() {
    let cluster = Cluster::new(1);
    let stopped: Vec<_> = (0..8).map(|n| cluster.spawn_node(&format!("stopped-{n}"))).collect();
    stopped.iter().for_each(|node| node.signal(Signal::STOP));
    let started = Instant::now();
    let client = cluster.client_and(Over::Shm, 0).within(Duration::from_secs(5));
    for n in 0..100 {
        let key = format!("key {n}");
        client.put(&key, &content(n, 1000), &crate::cluster::prefer("n0")).unwrap();
        assert!(client.get(&key).unwrap().is_some());
    }
    // Not a measurement: eight sockets of a quarter of a second each, over and over, would take a hundred seconds.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    stopped.iter().for_each(|node| node.signal(Signal::CONT));
    eventually("the stopped nodes are found", || client.members().iter().filter(|node| node.mapped).count() == 9);
}
