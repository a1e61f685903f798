//! A client puts blocks to a node of its own process without a socket, and everything else stays as it is.

use crate::cluster::{Cluster, Over};
use std::time::Duration;
use tidepool_client::{Pin, PutError, PutItem, PutOptions};
use tidepool_types::ByteSize;

const KEPT: usize = 64 << 10;

fn blocks(prefix: &str, count: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|n| (format!("{prefix}{n}"), vec![n as u8; KEPT])).collect()
}

#[test]
fn a_put_to_a_node_of_this_process_opens_no_connection() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let connections = || cluster.metric(0, "tidepool_node_connections");
    let before = connections();
    for (key, data) in &blocks("k", 10) {
        assert!(client.put(key, data, &PutOptions::default()).unwrap().moved);
        assert_eq!(client.get(key).unwrap().as_ref(), Some(data));
    }
    assert_eq!(connections(), before);
    assert_eq!(cluster.nodes[0].memory().stats().reserved, 0);
}

#[test]
fn what_passes_the_bound_of_mapped_writes_goes_through_the_socket_and_is_stored() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n0", |config| config.quarantine_limit = ByteSize(1 << 20));
    let client = cluster.client(Over::Shm);
    let room = cluster.nodes[0].memory().capacity() as usize;
    let blocks = blocks("k", room / KEPT / 2);
    let items: Vec<_> = blocks.iter().map(|(key, data)| PutItem::new(key, data)).collect();
    let stored = client.put_batch(&items, &PutOptions::default());
    assert!(stored.iter().all(|stored| stored.as_ref().is_ok_and(|stored| stored.moved)), "{stored:?}");
    let stats = client.stats();
    assert!(stats.bytes_written_shm > 0 && stats.bytes_written_socket > 0, "{stats:?}");
    assert!(blocks.iter().all(|(key, data)| client.get(key).unwrap().as_ref() == Some(data)));
}

#[test]
fn a_put_works_on_a_thread_of_an_asynchronous_runtime() {
    // The put waits for the catalog's acknowledgement, and may not block on that inside another runtime.
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stored = runtime.block_on(async { client.put("k", b"bytes", &PutOptions::default()) });
    assert!(stored.unwrap().moved);
    assert_eq!(cluster.client(Over::Tcp).exists(&["k"]), Ok(vec![true]));
}

#[test]
fn puts_after_the_node_has_stopped_fail_and_do_not_hang() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.put("k", b"bytes", &PutOptions::default()).unwrap();
    cluster.nodes.clear();
    let failed = client.put("other", b"bytes", &PutOptions::default()).unwrap_err();
    assert!(matches!(failed, PutError::NoNode | PutError::Timeout), "{failed}");
}

#[test]
fn many_small_blocks_are_stored_whole_and_evicted_from_their_end() {
    // Sealed in another order than their own, a prefix would lose blocks from its middle first.
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let (first, second) = (blocks("first", 128), blocks("second", 160));
    let put = |blocks: &[(String, Vec<u8>)]| {
        let items: Vec<_> = blocks.iter().map(|(key, data)| PutItem::new(key, data)).collect();
        let stored = client.put_batch(&items, &PutOptions::default());
        assert!(stored.iter().all(|stored| stored.as_ref().is_ok_and(|stored| stored.moved)), "{stored:?}");
    };
    put(&first);
    assert!(first.iter().all(|(key, data)| client.get(key).unwrap().as_ref() == Some(data)));
    // As they were put: reading them has made the last the newest.
    client.remove_matching("^first").unwrap();
    put(&first);
    put(&second);
    assert!(second.iter().all(|(key, data)| client.get(key).unwrap().as_ref() == Some(data)));
    let held = client.exists(&first.iter().map(|(key, _)| key).collect::<Vec<_>>()).unwrap();
    let kept = held.iter().take_while(|held| **held).count();
    assert!((1..128).contains(&kept) && !held[kept..].contains(&true), "{held:?}");
    assert_eq!(cluster.nodes[0].memory().stats().reserved, 0);
}

/// Parts that are sealed in another order than the blocks within them would leave a prefix without its middle.
#[test]
fn a_batch_that_goes_in_parts_is_stored_whole_known_to_all_and_evicted_from_its_end() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n0", |config| config.capacity = ByteSize(64 << 20));
    let (client, other) = (cluster.client(Over::Shm), cluster.client(Over::Tcp));
    // Some are held already, and one key comes twice, far apart.
    let mut first = blocks("first", 230);
    first[200] = first[3].clone();
    let held = [5, 60, 120, 180, 229];
    held.iter().for_each(|&at| assert!(client.put(&first[at].0, &first[at].1, &PutOptions::default()).unwrap().moved));
    let put = |blocks: &[(String, Vec<u8>)]| {
        let items: Vec<_> = blocks.iter().map(|(key, data)| PutItem::new(key, data)).collect();
        client.put_batch(&items, &PutOptions::default())
    };
    let stored = put(&first);
    assert!(stored.iter().all(|stored| stored.as_ref().is_ok_and(|stored| stored.replicas == 1)), "{stored:?}");
    let moved = stored.iter().filter(|stored| stored.as_ref().is_ok_and(|stored| stored.moved)).count();
    assert_eq!(moved, first.len() - held.len() - 1, "what is held does not move");
    let keys: Vec<&String> = first.iter().map(|(key, _)| key).collect();
    assert_eq!(cluster.metric(0, "tidepool_node_announce_queue"), 0, "the catalog has heard of all parts");
    assert_eq!(other.exists(&keys), Ok(vec![true; keys.len()]));
    assert!(first.iter().all(|(key, data)| client.get(key).unwrap().as_ref() == Some(data)));
    assert_eq!(cluster.nodes[0].memory().stats().reserved, 0);

    client.remove_matching("^first").unwrap();
    let first = blocks("first", 230);
    assert!(put(&first).iter().all(Result::is_ok));
    (0..4).for_each(|round| assert!(put(&blocks(&format!("more{round}-"), 220)).iter().all(Result::is_ok)));
    let keys: Vec<&String> = first.iter().map(|(key, _)| key).collect();
    let held = client.exists(&keys).unwrap();
    let kept = held.iter().take_while(|held| **held).count();
    assert!((1..230).contains(&kept) && !held[kept..].contains(&true), "{kept}: {held:?}");
}

/// Room was made for the last part first: a batch that could not be pinned whole kept its end, of no use without the rest.
#[test]
fn of_a_batch_in_parts_that_may_not_be_pinned_whole_the_front_is() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n0", |config| config.capacity = ByteSize(64 << 20));
    let client = cluster.client(Over::Shm);
    let options = PutOptions { pin: Pin::Hard, ..PutOptions::default() };
    let put = |prefix: &str| {
        let blocks = blocks(prefix, 200);
        let items: Vec<_> = blocks.iter().map(|(key, data)| PutItem::new(key, data)).collect();
        client.within(Duration::from_millis(300)).put_batch(&items, &options)
    };
    assert!(put("first").iter().chain(&put("second")).all(Result::is_ok));
    // Half of the node may be pinned.
    let stored = put("third");
    let kept = stored.iter().take_while(|stored| stored.is_ok()).count();
    assert!((50..150).contains(&kept), "{kept}");
    assert!(stored[kept..].iter().all(|stored| *stored == Err(PutError::NoSpace)), "{stored:?}");
    assert_eq!(cluster.nodes[0].memory().stats().reserved, 0);
}

#[test]
fn more_small_blocks_than_the_node_has_room_for_are_stored_to_their_end() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    let blocks = blocks("k", 600);
    assert!((blocks.len() * KEPT) as u64 > 2 * cluster.nodes[0].memory().capacity());
    let items: Vec<_> = blocks.iter().map(|(key, data)| PutItem::new(key, data)).collect();
    let stored = client.put_batch(&items, &PutOptions::default());
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    let (key, data) = &blocks[599];
    assert_eq!(client.get(key).unwrap().as_ref(), Some(data));
    assert_eq!(cluster.nodes[0].memory().stats().reserved, 0);
}
