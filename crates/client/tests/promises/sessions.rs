//! What an engine says of a request reaches the nodes with the uses of blocks: those that evict by sessions act on it.

use crate::cluster::{BOTH, Cluster, Over, eventually};
use tidepool_client::{
    Client, GetInto, ListCursor, Millis, Origin, Pattern, PutItem, PutOptions, SessionId, Stored, ToolId,
};
use tidepool_policy::eviction::Policy;

/// With its key and its checksum, a block takes a page.
const BLOCK: usize = 4080;
const PAGE: u64 = 4096;

/// The client at work for a turn of a session whose tool is quick.
fn at_work(client: &Client, session: u64, turn: u32) -> Client {
    let (session, calls) = (SessionId(session), Some(ToolId(1)));
    client.used_for(Origin { session, parent: None, turn, pause: Millis(0), calls, last: false })
}

/// Puts blocks of one prefix.
fn put(client: &Client, keys: &[String]) {
    let items = keys.iter().zip(0..).map(|(key, depth)| PutItem::new(key, &[7; BLOCK]).at_depth(depth));
    let stored = client.put_batch(&items.collect::<Vec<_>>(), &PutOptions::default());
    assert!(stored.iter().all(|stored| matches!(stored, Ok(Stored { replicas: 1, .. }))), "{stored:?}");
}

/// What is left of two sessions' blocks after a third has put as many as one of them has. Before that, the first session has gone
/// on, and has read its last block.
fn left(policy: Policy, over: Over) -> Vec<String> {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n", |config| (config.capacity.0, config.eviction) = (8 * PAGE, policy));
    let client = cluster.client(over);
    let blocks = |name: &str| -> [String; 4] { [0, 1, 2, 3].map(|depth| format!("{name}{depth}00")) };
    // Others have come back at once: experience with pauses as short as a test's.
    for (session, turn) in (100..120).flat_map(|session| [(session, 0), (session, 1)]) {
        put(&at_work(&client, session, turn), &["for".to_owned()]);
    }
    assert!(client.remove("for").unwrap().removed);
    for (session, name) in [(1, "a"), (2, "b")] {
        put(&at_work(&client, session, 0), &blocks(name));
    }
    let mut bytes = [0; BLOCK];
    let mut item = [GetInto::new("a300", bytes.as_mut_slice()).at_depth(3)];
    assert_eq!(at_work(&client, 1, 1).get_batch_into(&mut item), [Ok(Some(BLOCK))]);
    eventually("the node hears of the read", || {
        let metrics = cluster.nodes[0].metrics();
        let hits = metrics.iter().filter(|metric| metric.name == "tidepool_node_hits_total");
        hits.map(tidepool_types::Metric::number).sum::<u64>() == 1
    });
    put(&at_work(&client, 3, 0), &blocks("x"));
    let listed = client.list(&Pattern::All, &ListCursor::default(), 100).unwrap().entries;
    listed
        .into_iter()
        .map(|listed| String::from_utf8(listed.key).unwrap())
        .filter(|key| !key.starts_with('x'))
        .collect()
}

/// The front of a session that goes on is not read again where its engine has it. To LRU it is the oldest.
#[test]
fn a_session_that_goes_on_keeps_its_blocks_where_nodes_evict_by_sessions() {
    for over in BOTH {
        assert_eq!(left(Policy::Agents, over), ["a000", "a100", "a200", "a300"], "{over:?}");
        assert_eq!(left(Policy::Lru, over), ["a300", "b000", "b100", "b200"], "{over:?}, by age");
    }
}
