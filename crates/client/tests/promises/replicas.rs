//! Replicas on distinct nodes, as many as can be had; a get tries them in turn before it is a miss.

use crate::cluster::{BOTH, Cluster, Over, content, eventually, name, prefer};
use rustix::process::Signal;
use tidepool_client::{PutOptions, Stored};

fn replicas(count: u32) -> PutOptions {
    PutOptions { replicas: count, ..PutOptions::default() }
}

#[test]
fn a_put_says_how_many_replicas_it_made() {
    let cluster = Cluster::new(3);
    for over in BOTH {
        let client = cluster.client(over);
        for (wanted, had) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
            let (key, bytes) = (format!("{over:?}/{wanted}"), content(wanted.into(), 200_000));
            let stored = client.put(&key, &bytes, &replicas(wanted)).unwrap();
            assert_eq!(stored, Stored { replicas: had, moved: true });
            let copies = client.describe(&key).unwrap();
            let mut nodes: Vec<_> = copies.iter().map(|copy| copy.node.clone()).collect();
            nodes.sort();
            nodes.dedup();
            assert_eq!(nodes.len(), had as usize);
            assert!(copies.iter().all(|copy| copy.len == 200_000 && copy.writer == client.id()));
        }
    }
}

#[test]
fn a_put_goes_to_the_node_it_prefers() {
    let cluster = Cluster::new(3);
    for over in BOTH {
        let client = cluster.client(over);
        for node in ["n0", "n1", "n2"] {
            let key = format!("{over:?}/{node}");
            client.put(&key, b"bytes", &prefer(node)).unwrap();
            assert_eq!(client.describe(&key).unwrap()[0].node, name(node));
        }
    }
}

#[test]
fn a_get_goes_on_to_the_replica_when_a_node_is_gone() {
    let mut cluster = Cluster::new(3);
    let clients = BOTH.map(|over| (over, cluster.client(over)));
    for n in 0..40 {
        clients[0].1.put(format!("{n}"), &content(n, 50_000), &replicas(2)).unwrap();
    }
    drop(cluster.nodes.remove(0));
    for (over, client) in &clients {
        for n in 0..40 {
            let got = client.get(format!("{n}")).unwrap();
            assert!(got == Some(content(n, 50_000)), "block {n} over {over:?}: {:?}", client.stats());
        }
    }
}

#[test]
fn a_put_goes_elsewhere_when_its_node_has_been_killed() {
    let cluster = Cluster::new(1);
    let doomed = cluster.spawn_node("doomed");
    let clients = BOTH.map(|over| cluster.client_and(over, 1));
    doomed.signal(Signal::KILL);
    for (n, client) in clients.iter().enumerate() {
        let stored = client.put(format!("{n}"), b"bytes", &prefer("doomed")).unwrap();
        assert_eq!(stored.replicas, 1);
        assert_eq!(client.get(format!("{n}")).unwrap().as_deref(), Some(&b"bytes"[..]));
    }
    eventually("the killed node is no longer a member", || {
        let is_alive =
            |node: &tidepool_client::PoolNode| node.state == Some(tidepool_client::catalogs::NodeState::Alive);
        clients.iter().all(|client| client.members().iter().filter(|node| is_alive(node)).count() == 1)
    });
}

#[test]
fn a_block_can_be_copied_and_moved_to_a_node() {
    let cluster = Cluster::new(2);
    let client = cluster.client(Over::Shm);
    let bytes = content(5, 300_000);
    client.put("block", &bytes, &prefer("n0")).unwrap();
    let nodes = || client.describe("block").unwrap().into_iter().map(|copy| copy.node).collect::<Vec<_>>();
    client.copy_to("block", &name("n1")).unwrap();
    assert_eq!(nodes().len(), 2);
    client.move_to("block", None, &name("n1")).unwrap();
    assert_eq!(nodes(), [name("n1")]);
    assert!(client.get("block").unwrap() == Some(bytes));
    assert_eq!(client.copy_to("absent", &name("n1")).unwrap_err().to_string(), "no node holds the block");
    assert_eq!(client.copy_to("block", &name("n9")).unwrap_err().to_string(), "no node named n9 is known");
}

#[test]
fn blocks_of_other_hosts_are_copied_here_once() {
    let mut cluster = Cluster::new(1);
    let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
    cluster.add_node("far", |config| config.dir = elsewhere.path().to_owned());
    // Nobody without its socket takes a node for one of this host.
    std::fs::remove_file(cluster.nodes[1].socket_path()).unwrap();
    let client = cluster.client(Over::Shm);
    for key in ["a", "b"] {
        client.put(key, &content(5, 300_000), &prefer("far")).unwrap();
    }
    client.put("here", b"bytes", &prefer("n0")).unwrap();
    assert_eq!(client.copy_here(&["a", "here", "absent", "b", ""]), 2);
    assert_eq!(client.copy_here(&["a", "here", "absent", "b", ""]), 0);
    assert_eq!(client.describe("a").unwrap().len(), 2);
    let before = client.stats().hits_shm;
    assert!(client.get("b").unwrap() == Some(content(5, 300_000)));
    assert_eq!(client.stats().hits_shm, before + 1);
    // Without a node here there is nowhere to copy to.
    assert_eq!(cluster.client(Over::Tcp).copy_here(&["a"]), 0);
}

/// A client learnt of new nodes once a second, so a put that asked for two replicas right after a second node had joined got
/// one. A put that finds too few nodes now looks again.
#[test]
fn a_node_that_has_just_joined_takes_replicas() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    cluster.add_node("joined", |_| {});
    let options = PutOptions { replicas: 2, ..PutOptions::default() };
    assert_eq!(client.put("two", &content(1, 1000), &options).unwrap().replicas, 2);
}

/// Every reader asked the holder that catalogs name first: the other replicas of a hot block served nobody. Now a reader
/// starts with one of its own choice for each block.
#[test]
fn replicas_share_the_reads() {
    let cluster = Cluster::new(3);
    let client = cluster.client(Over::Tcp);
    let keys: Vec<String> = (0..60).map(|n| format!("key {n}")).collect();
    for key in &keys {
        assert_eq!(client.put(key, key.as_bytes(), &replicas(3)).unwrap().replicas, 3);
    }
    let hits = |metric: tidepool_types::Metric| match metric.value {
        tidepool_types::Value::Counter(hits) if metric.name == "tidepool_node_hits_total" => hits,
        _ => 0,
    };
    // On a busy host a node may answer so late that others are asked for a while.
    eventually("every node has served reads", || {
        assert!(client.get_batch(&keys).into_iter().all(|answer| answer.unwrap().is_some()));
        cluster.nodes.iter().all(|node| node.metrics().into_iter().map(hits).sum::<u64>() > 0)
    });
}
