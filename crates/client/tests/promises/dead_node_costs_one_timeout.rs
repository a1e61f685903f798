//! A node that is stopped costs a client one time-out, not one per call; when it goes on, it is used again.

use crate::cluster::{Cluster, Over, content, eventually, prefer};
use rustix::process::Signal;
use std::time::Duration;
use tidepool_client::PutOptions;

#[test]
fn a_stopped_owner_is_passed_by_until_it_answers_again() {
    let cluster = Cluster::new(1);
    let stopped = cluster.spawn_node("stopped");
    let client = cluster.client_and(Over::Tcp, 1).within(Duration::from_millis(600));
    let keys: Vec<String> = (0..200).map(|n| format!("key {n}")).collect();
    keys.iter().for_each(|key| assert!(client.put(key, &content(1, 10_000), &prefer("stopped")).is_ok()));
    assert!(client.get(&keys[0]).unwrap().is_some());

    stopped.signal(Signal::STOP);
    let before = client.stats().misses_timed_out;
    for key in &keys {
        assert!(client.get(key).unwrap().is_none(), "{key}: {:?}", client.stats());
    }
    let timed_out = client.stats().misses_timed_out - before;
    // 200 gets of 600 ms each would take two minutes; only the first may wait, and a probe under way may let one more.
    assert!(timed_out <= 2, "{timed_out} gets waited for the stopped node");
    assert!(client.put("other", b"bytes", &PutOptions::default()).is_ok());

    stopped.signal(Signal::CONT);
    eventually("the node is used again", || client.get(&keys[0]).unwrap().is_some());
}

#[test]
fn a_stopped_node_of_this_host_is_still_read_from() {
    let cluster = Cluster::new(0);
    let stopped = cluster.spawn_node("stopped");
    let client = cluster.client_and(Over::Shm, 1);
    let bytes = content(2, 10_000);
    client.put("key", &bytes, &PutOptions::default()).unwrap();
    stopped.signal(Signal::STOP);
    assert!(client.get("key").unwrap() == Some(bytes));
    stopped.signal(Signal::CONT);
}

#[test]
fn a_put_given_up_while_its_node_was_stopped_leaves_no_space_behind() {
    let cluster = Cluster::new(0);
    let stopped = cluster.spawn_node("stopped");
    let client = cluster.client_and(Over::Shm, 1).within(Duration::from_millis(500));
    client.put("before", b"bytes", &PutOptions::default()).unwrap();
    stopped.signal(Signal::STOP);
    assert!(client.put("given up", &content(1, 1 << 20), &PutOptions::default()).is_err());
    stopped.signal(Signal::CONT);
    eventually("the node takes blocks again", || client.put("after", b"bytes", &PutOptions::default()).is_ok());
    let open = ["tidepool_node_reserved", "tidepool_node_quarantined_bytes"];
    eventually("nothing is reserved or quarantined", || {
        let stat = client.node_stat(&crate::cluster::name("stopped")).unwrap_or_default();
        !stat.is_empty() && stat.iter().filter(|(name, _)| open.contains(&name.as_str())).all(|(_, value)| *value == 0)
    });
}

#[test]
fn a_killed_node_of_this_host_is_no_longer_read_from() {
    let cluster = Cluster::without_catalog(0);
    let killed = cluster.spawn_node("killed");
    let client = cluster.client_and(Over::Shm, 1);
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    let view = client.view("key").unwrap().unwrap();
    killed.signal(Signal::KILL);
    eventually("its blocks are gone", || client.get("key").unwrap().is_none());
    assert_eq!(&*view, b"bytes", "a view outlives its node");
    let error = client.put("key", b"bytes", &PutOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "no node could be reached to take the block");
}

#[test]
fn no_catalog_at_all_costs_only_what_is_not_on_this_host() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.put("here", b"bytes", &PutOptions::default()).unwrap();
    cluster.catalogs.clear();
    assert_eq!(client.get("here").unwrap().as_deref(), Some(&b"bytes"[..]));
    assert_eq!(client.get("absent").unwrap(), None);
    assert_eq!(client.stats().misses_no_catalog, 1);
    assert!(client.put("there", b"bytes", &PutOptions::default()).unwrap().moved);
}

/// Transports were opened one after the other, a second each, before any node was read from: with five of six nodes stopped,
/// a batch's time was over before the sixth was asked, and its block was a miss too. Now all are opened at once, and who is
/// connected is read from.
#[test]
fn stopped_nodes_cost_one_batch_one_timeout_together() {
    let cluster = Cluster::new(1);
    let stopped: Vec<_> = (0..5).map(|n| cluster.spawn_node(&format!("stopped-{n}"))).collect();
    let (writer, reader) = (cluster.client_and(Over::Tcp, 5), cluster.client_and(Over::Tcp, 5));
    let names = (0..5).map(|n| format!("stopped-{n}")).chain(["n0".to_owned()]);
    let keys: Vec<String> = names.map(|node| format!("on {node}")).collect();
    for key in &keys {
        writer.put(key, key.as_bytes(), &prefer(&key[3..])).unwrap();
    }
    stopped.iter().for_each(|node| node.signal(Signal::STOP));
    // Five seconds one after the other, one together.
    let answers = reader.within(Duration::from_secs(3)).get_batch(&keys);
    let hits: Vec<bool> = answers.into_iter().map(|answer| answer.unwrap().is_some()).collect();
    assert_eq!(hits, [false, false, false, false, false, true], "{:?}", reader.stats());
    assert!(reader.get(&keys[5]).unwrap().is_some(), "and the sixth is not passed by: {:?}", reader.stats());
}
