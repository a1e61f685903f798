//! Removing, listing, and asking nodes about themselves.

use crate::cluster::{BOTH, Cluster, Over, name};
use std::collections::BTreeSet;
use std::time::Duration;
use tidepool_client::{Client, ListCursor, NodeError, Pattern, PutItem, PutOptions, Removal};
use tidepool_node::NodeConfig;
use tidepool_transfer::conn::{Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline};
use tidepool_wire::message::Hello;

fn fill(client: &Client, replicas: u32) {
    let keys: Vec<String> = (0..50).flat_map(|n| [format!("even/{n}"), format!("odd/{n}")]).collect();
    let items: Vec<_> = keys.iter().map(|key| PutItem::new(key, key.as_bytes())).collect();
    let options = PutOptions { replicas, ..PutOptions::default() };
    assert!(client.put_batch(&items, &options).iter().all(Result::is_ok));
}

fn listed(client: &Client, pattern: &Pattern, page: u32) -> BTreeSet<Vec<u8>> {
    let (mut keys, mut cursor) = (BTreeSet::new(), ListCursor::default());
    loop {
        let page = client.list(pattern, &cursor, page).unwrap();
        assert!(page.unanswered.is_empty());
        assert!(page.entries.iter().all(|entry| entry.len == entry.key.len() as u64 && !entry.nodes.is_empty()));
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
        match page.next {
            Some(next) => cursor = next,
            None => return keys,
        }
    }
}

#[test]
fn every_key_is_listed_and_the_pattern_chooses() {
    let cluster = Cluster::new(3);
    for over in BOTH {
        let client = cluster.client(over);
        fill(&client, 2);
        for page in [1, 7, 1000] {
            assert_eq!(listed(&client, &Pattern::All, page).len(), 100);
            let odd = listed(&client, &Pattern::Regex("^odd/1".to_owned()), page);
            assert_eq!(odd.len(), 11);
        }
    }
}

/// Whether a block was removed, and nobody may have it any more.
fn is_gone(removal: &Removal) -> bool {
    removal.removed && !removal.leased && removal.unanswered.is_empty()
}

#[test]
fn a_block_is_removed_from_every_holder() {
    let cluster = Cluster::new(3);
    for over in BOTH {
        let client = cluster.client(over);
        client.put("key", b"bytes", &PutOptions { replicas: 3, ..PutOptions::default() }).unwrap();
        assert!(is_gone(&client.remove("key").unwrap()));
        assert_eq!(client.get("key").unwrap(), None);
        assert!(client.describe("key").unwrap().is_empty());
        for removal in client.remove_batch(&["key", "other"]).unwrap() {
            assert!(removal.known_since.is_some(), "the catalog says since when it knows all nodes");
            assert_eq!(removal, Removal { known_since: removal.known_since, ..Removal::default() });
        }
    }
}

/// A removal was announced in the background, and a look-up right after it went to a catalog that had not heard of it yet: the
/// block that was just removed was said to exist. An answered removal is known to every healthy catalog now, like a put.
#[test]
fn a_removed_block_is_not_found_by_the_next_look_up() {
    let mut cluster = Cluster::new(0);
    // A catalog is healthy for as long as a node waits for it, and on a busy host it may answer late.
    let patient = |config: &mut NodeConfig| config.announce_timeout = Duration::from_secs(20);
    ["n0", "n1"].into_iter().for_each(|name| cluster.add_node(name, patient));
    for over in BOTH {
        let client = cluster.client(over);
        for n in 0..200 {
            let key = format!("{over:?} {n}");
            client.put(&key, b"bytes", &PutOptions::default()).unwrap();
            match n % 2 {
                0 => assert!(client.remove(&key).unwrap().removed),
                _ => assert_eq!(client.remove_matching(&format!("^{key}$")).unwrap().copies, 1),
            }
            assert_eq!(client.exists(&[&key]).unwrap(), [false], "{key}");
        }
    }
}

#[test]
fn blocks_are_removed_by_expression_and_all_at_once() {
    let cluster = Cluster::new(2);
    let client = cluster.client(Over::Shm);
    fill(&client, 2);
    let removed = client.remove_matching("^odd/").unwrap();
    assert_eq!((removed.copies, removed.unanswered.len()), (100, 0));
    assert_eq!(listed(&client, &Pattern::All, 1000).len(), 50);
    assert_eq!(client.remove_all().unwrap().copies, 100);
    assert!(listed(&client, &Pattern::All, 1000).is_empty());
}

#[test]
fn nodes_tell_about_themselves() {
    let cluster = Cluster::new(2);
    for (over, mapped) in [(Over::Shm, true), (Over::Tcp, false)] {
        let client = cluster.client(over);
        assert!(client.members().iter().all(|node| node.mapped == mapped && node.capacity_bytes > 0));
        let build = Some(env!("CARGO_PKG_VERSION"));
        assert!(client.members().iter().all(|node| node.build.as_deref() == build), "every node names its build");
        let stat = client.node_stat(&name("n1")).unwrap();
        assert!(stat.iter().any(|(name, _)| name == "tidepool_node_blocks"));
        assert_eq!(client.node_stat(&name("n7")).unwrap_err().to_string(), "no node named n7 is known");
    }
}

/// A catalog's answer has room for eight holders. A block with more was removed from eight of them, which was reported as a
/// success, and the pool went on serving it. Now every node is asked about a block whose holders may not all be named.
#[test]
fn a_block_with_more_holders_than_an_answer_lists_is_removed_from_all() {
    let cluster = Cluster::new(10);
    for over in BOTH {
        let client = cluster.client(over);
        client.put("other", b"bytes", &PutOptions::default()).unwrap();
        let stored = client.put("key", b"bytes", &PutOptions { replicas: 10, ..PutOptions::default() }).unwrap();
        assert_eq!(stored.replicas, 10);
        assert_eq!(client.describe("key").unwrap().len(), 10);
        assert!(client.remove_batch(&["key", "other"]).unwrap().iter().all(is_gone));
        assert!((0..10).all(|node| cluster.metric(node, "tidepool_node_blocks") == 0));
        assert_eq!(client.get("key").unwrap(), None);
    }
}

/// A living node whose address does not resolve was left out of removals and listings without a word: its copies stayed, and
/// the answer said that all was done. Now it is named.
#[test]
fn a_node_that_there_is_no_way_to_is_named() {
    let mut cluster = Cluster::new(1);
    cluster.add_node("hidden", |config| config.data_advertise = Some("no-such-host.invalid:7413".to_owned()));
    let here = cluster.client(Over::Shm);
    for key in ["key", "other"] {
        here.put(key, b"bytes", &crate::cluster::prefer("hidden")).unwrap();
    }
    let away = cluster.client(Over::Tcp);
    let hidden = vec![name("hidden")];
    let removal = away.remove("key").unwrap();
    assert_eq!((removal.removed, removal.unanswered), (false, hidden.clone()));
    assert_eq!(away.list(&Pattern::All, &ListCursor::default(), 10).unwrap().unanswered, hidden);
    assert_eq!(away.remove_matching("key").unwrap().unanswered, hidden);
    assert!(here.get("key").unwrap().is_some(), "it is still there");
    assert!(is_gone(&here.remove("key").unwrap()));
}

/// A node that served as many connections as it may refused a listing, and the whole call failed: nothing was listed, and
/// `rm --matching` said that it had failed after it had removed blocks elsewhere. Now such a node is named like one that does not
/// answer, and the others are heard.
#[test]
fn a_node_that_refuses_is_named_and_the_others_answer() {
    let mut cluster = Cluster::new(1);
    cluster.add_node("full", |config| config.max_connections = 4);
    let client = cluster.client(Over::Tcp);
    client.put("key", b"bytes", &crate::cluster::prefer("n0")).unwrap();
    let hello = |client| Hello { client: ClientId(client), wants_memory: false };
    let address = cluster.nodes[1].data_address();
    let until = Deadline::after(std::time::Duration::from_secs(20));
    let connect = |n| Connection::connect_tcp(address, &TcpOptions::default(), hello(n), until).unwrap();
    let _seats: Vec<_> = (1..5).map(connect).collect();
    let full = vec![name("full")];
    let page = client.list(&Pattern::All, &ListCursor::default(), 10).unwrap();
    assert_eq!((page.entries.len(), page.unanswered), (1, full.clone()));
    let removals = client.remove_matching("key").unwrap();
    assert_eq!((removals.copies, removals.unanswered), (1, full));
    let error = client.remove_matching("(").unwrap_err();
    assert!(matches!(error, NodeError::Invalid(_)), "a bad pattern is the call's own fault: {error}");
}

/// A batch whose request or reply was longer than a frame failed as a whole, and the node was passed by as if it were dead:
/// putting a million held keys again found no node. Now batches travel in pieces.
#[test]
fn a_batch_that_fits_no_frame_is_answered() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm).within(std::time::Duration::from_secs(60));
    client.put("last", b"bytes", &PutOptions::default()).unwrap();
    // 16 bytes each: more than 16 MiB.
    let keys: Vec<String> = (0..1_060_000).map(|n| format!("absent {n}")).chain(["last".to_owned()]).collect();
    let removals = client.remove_batch(&keys).unwrap();
    assert!(removals.iter().all(|removal| removal.unanswered.is_empty()));
    assert_eq!(removals.iter().position(|removal| removal.removed), Some(keys.len() - 1));
    assert_eq!(client.stats().nodes_down, 0);
}
