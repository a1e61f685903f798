//! Emptying a node: what moves costs no other block, and nothing new comes.

use crate::cluster::{BOTH, Cluster, Over, content, name, prefer};
use std::time::Duration;
use tidepool_client::{Client, NodeError, PutError, PutOptions};

const LONG: Duration = Duration::from_secs(60);

fn holders(client: &Client, key: &str) -> Vec<String> {
    client.holders(key).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn a_draining_node_takes_nothing_from_anybody_until_it_is_told_to() {
    let cluster = Cluster::new(2);
    for over in BOTH {
        let client = cluster.client(over);
        let key = |what: &str| format!("{over:?}/{what}");
        assert_eq!(client.drain(&name("n0"), LONG).unwrap(), 0);
        client.put(key("put"), b"bytes", &prefer("n0")).unwrap();
        client.upsert(key("upsert"), b"bytes", &prefer("n0")).unwrap();
        assert_eq!([holders(&client, &key("put")), holders(&client, &key("upsert"))], [["n1"], ["n1"]]);
        assert!(matches!(client.copy_to(key("put"), &name("n0")), Err(NodeError::NoSpace(_))));
        client.drain(&name("n0"), Duration::ZERO).unwrap();
        client.copy_to(key("put"), &name("n0")).unwrap();
        client.put(key("again"), b"bytes", &prefer("n0")).unwrap();
        assert_eq!(holders(&client, &key("again")), ["n0"]);
    }
}

#[test]
fn a_draining_node_evicts_nothing_and_serves_what_it_has() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let kept: Vec<String> = (0..10).map(|n| format!("{n}")).collect();
    kept.iter().for_each(|key| assert!(client.put(key, key.as_bytes(), &PutOptions::default()).is_ok()));
    client.drain(&name("n0"), LONG).unwrap();
    for n in 0..200 {
        let refused = client.put(format!("new/{n}"), &content(n, 1 << 20), &PutOptions::default());
        assert!(matches!(refused, Err(PutError::NoSpace)), "{refused:?}");
    }
    assert!(kept.iter().all(|key| client.get(key).unwrap().as_deref() == Some(key.as_bytes())));
}

#[test]
fn a_node_that_has_just_joined_takes_what_a_draining_one_does_not() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.drain(&name("n0"), LONG).unwrap();
    cluster.add_node("late", |_| {});
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    assert_eq!(holders(&client, "key"), ["late"]);
}

#[test]
fn a_move_evicts_nothing_and_leaves_the_block_where_there_is_no_room() {
    let mut cluster = Cluster::new(1);
    cluster.add_node("small", |config| config.capacity = tidepool_types::ByteSize(4 << 20));
    let client = cluster.client(Over::Shm);
    for n in 0..10 {
        client.put(format!("{n}"), &content(n, 1 << 20), &prefer("n0")).unwrap();
    }
    let moved = |n: &u64| match client.move_to(format!("{n}"), Some(&name("n0")), &name("small")) {
        Ok(()) => true,
        Err(NodeError::NoSpace(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let moved = (0..10).filter(moved).count();
    assert!((1..=4).contains(&moved), "{moved} moved");
    assert_eq!(cluster.metric(1, "tidepool_node_evictions_total"), 0);
    for n in 0..10 {
        assert!(client.get(format!("{n}")).unwrap() == Some(content(n, 1 << 20)), "block {n} is lost");
    }
}

#[test]
fn replicas_go_to_the_nodes_that_are_preferred_in_their_order() {
    let cluster = Cluster::new(4);
    let options = |replicas, prefer: &[&str]| PutOptions {
        replicas,
        prefer: prefer.iter().map(|node| name(node)).collect(),
        ..PutOptions::default()
    };
    for over in BOTH {
        let client = cluster.client(over);
        for n in 0..20 {
            let (two, one) = (format!("{over:?}/two/{n}"), format!("{over:?}/one/{n}"));
            client.put(&two, b"bytes", &options(2, &["n3", "n1"])).unwrap();
            let mut both = holders(&client, &two);
            both.sort();
            assert_eq!(both, ["n1", "n3"]);
            client.put(&one, b"bytes", &options(1, &["nobody", "n2", "n0"])).unwrap();
            assert_eq!(holders(&client, &one), ["n2"]);
        }
    }
}
