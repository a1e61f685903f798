//! One thing is killed or stopped; what it costs, and how it heals.

use super::cluster::{Cluster, client, content, eventually};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tidepool_client::{Client, NodeName, PutOptions};

fn put(client: &Client, key: &str) {
    put_with(client, key, &PutOptions::default());
}

fn put_with(client: &Client, key: &str, options: &PutOptions) {
    client.put(key, &content(key.as_bytes()), options).unwrap();
}

fn prefer(node: &str) -> PutOptions {
    PutOptions { prefer: Some(NodeName::new(node).unwrap()), ..PutOptions::default() }
}

/// A hit with the right bytes; a miss is false.
fn hit(client: &Client, key: &str) -> bool {
    client.get(key).unwrap().is_some_and(|bytes| {
        assert!(bytes == content(key.as_bytes()), "wrong bytes");
        true
    })
}

#[test]
fn an_answered_put_is_found_through_each_healthy_catalog() {
    let cluster = Cluster::start(2, "16MiB");
    let writer = cluster.client(Some(0));
    let readers: Vec<Client> = cluster.addresses.iter().map(|one| client(std::slice::from_ref(one), None)).collect();
    for n in 0..200 {
        let key = format!("announced-{n}");
        put(&writer, &key);
        for reader in &readers {
            assert_eq!(reader.exists(&[&key]).unwrap(), [true], "{key}");
            assert!(hit(reader, &key));
        }
    }
}

#[test]
fn a_put_that_finds_its_block_held_is_announced_too() {
    // Two engines write the same prefix. The second was answered "held" as soon as the first had sealed, before any
    // catalog knew: a look-up after an answered put said no. Now such an answer waits for the catalogs as well.
    let cluster = Cluster::start(1, "16MiB");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let writer = cluster.client(Some(0));
                let readers = cluster.addresses.iter().map(|one| client(std::slice::from_ref(one), None));
                let readers: Vec<Client> = readers.collect();
                for n in 0..150 {
                    let key = format!("raced-{n}");
                    put(&writer, &key);
                    readers.iter().for_each(|reader| assert_eq!(reader.exists(&[&key]).unwrap(), [true], "{key}"));
                }
            });
        }
    });
}

#[test]
fn killing_a_catalog_is_a_non_event_and_restarted_it_is_exact() {
    let mut cluster = Cluster::start(2, "16MiB");
    let (writer, reader) = (cluster.client(Some(0)), cluster.client(None));
    let keys: Vec<String> = (0..100).map(|n| format!("before-{n}")).collect();
    keys.iter().for_each(|key| put(&writer, key));
    cluster.catalogs[0].take().unwrap().kill();
    let later: Vec<String> = (0..100).map(|n| format!("after-{n}")).collect();
    later.iter().for_each(|key| put(&writer, key));
    assert!(keys.iter().chain(&later).all(|key| hit(&reader, key)), "hits go on through the other catalog");
    cluster.restart_catalog(0);
    cluster.wait_until_known(2);
    let alone = client(&cluster.addresses[..1], None);
    let all: Vec<&String> = keys.iter().chain(&later).collect();
    assert!(alone.exists(&all).unwrap().iter().all(|found| *found), "it knows every block");
    assert_eq!(alone.exists(&["never put"]).unwrap(), [false]);
}

#[test]
fn a_stopped_catalog_costs_one_bounded_wait() {
    let cluster = Cluster::start(1, "16MiB");
    let writer = cluster.client(Some(0));
    put(&writer, "warm");
    let stopped = cluster.catalogs[1].as_ref().unwrap();
    stopped.signal(Signal::STOP);
    let started = Instant::now();
    put(&writer, "first");
    let first = started.elapsed();
    let started = Instant::now();
    (0..50).for_each(|n| put(&writer, &format!("later-{n}")));
    let later = started.elapsed();
    assert!(first < Duration::from_secs(2), "the first put after the stop took {first:?}");
    assert!(later < Duration::from_secs(2), "fifty later puts took {later:?}");
    stopped.signal(Signal::CONT);
    cluster.wait_until_known(1);
    let alone = client(&cluster.addresses[1..], None);
    assert_eq!(alone.exists(&["first", "later-49"]).unwrap(), [true, true], "it caught up by itself");
}

#[test]
fn a_killed_node_is_no_longer_chosen_within_two_seconds_and_replicas_serve() {
    let mut cluster = Cluster::start(3, "16MiB");
    let writer = cluster.client(None);
    let options = PutOptions { replicas: 2, ..PutOptions::default() };
    let keys: Vec<String> = (0..60).map(|n| format!("twice-{n}")).collect();
    for key in &keys {
        assert_eq!(writer.put(key, &content(key.as_bytes()), &options).unwrap().replicas, 2, "{key}");
    }
    cluster.nodes[1].take().unwrap().kill();
    assert!(keys.iter().all(|key| hit(&writer, key)), "every block has a replica that lives");
    std::thread::sleep(Duration::from_secs(2));
    for n in 0..60 {
        let started = Instant::now();
        put(&writer, &format!("survivor-{n}"));
        let took = started.elapsed();
        assert!(took < Duration::from_secs(1), "put {n} took {took:?}: the dead node was chosen");
    }
    // Restarted, it is a new incarnation with nothing in it, and serves again.
    cluster.nodes[1] = Some(cluster.start_node(1));
    cluster.wait_until_known(3);
    let options =
        PutOptions { prefer: Some(tidepool_types::NodeName::new("node-1").unwrap()), ..PutOptions::default() };
    eventually("the node takes blocks again", || {
        let key = format!("again-{}", cluster.metric(1, "tidepool_node_sealed_total"));
        let _ = writer.put(&key, &content(key.as_bytes()), &options);
        cluster.metric(1, "tidepool_node_sealed_total") > 0
    });
}

#[test]
fn a_stopped_node_costs_one_time_out_and_comes_back() {
    let cluster = Cluster::start(2, "16MiB");
    let writer = cluster.client(Some(1));
    let keys: Vec<String> = (0..40).map(|n| format!("stopped-{n}")).collect();
    keys.iter().for_each(|key| put_with(&writer, key, &prefer("node-1")));
    let reader = cluster.client(None);
    assert!(keys.iter().all(|key| hit(&reader, key)));
    cluster.nodes[1].as_ref().unwrap().signal(Signal::STOP);
    let started = Instant::now();
    let hits = keys.iter().filter(|key| hit(&reader, key)).count();
    let took = started.elapsed();
    assert_eq!(hits, 0);
    assert!(took < Duration::from_secs(8), "forty gets of a stopped node took {took:?}");
    // Stopped for longer than every limit, then continued.
    std::thread::sleep(Duration::from_secs(6));
    cluster.nodes[1].as_ref().unwrap().signal(Signal::CONT);
    cluster.wait_until_known(2);
    eventually("its blocks are found again", || keys.iter().all(|key| hit(&reader, key)));
}

#[test]
fn same_host_gets_and_puts_go_on_without_any_catalog() {
    let mut cluster = Cluster::start(1, "16MiB");
    let local = cluster.client(Some(0));
    put(&local, "with");
    cluster.catalogs.iter_mut().for_each(|catalog| catalog.take().unwrap().kill());
    put(&local, "without");
    assert!(hit(&local, "with") && hit(&local, "without"));
}
