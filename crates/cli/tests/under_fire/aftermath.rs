//! The state after the fire: nodes keep nothing for processes that are gone, and catalogs know the nodes' blocks.

use super::cluster::{Cluster, eventually};
use std::collections::BTreeMap;
use std::time::Duration;
use tidepool_client::catalogs::{Catalogs, CatalogsConfig};
use tidepool_client::{ListCursor, NodeName, Pattern, PutOptions};
use tidepool_types::{BlockId, Deadline, Key, TenantSecret};

/// Numbers of a node that are zero when nobody writes, views or waits.
const AT_REST: [&str; 7] = [
    "tidepool_node_reserved",
    "tidepool_node_quarantined_reservations",
    "tidepool_node_quarantined_bytes",
    "tidepool_node_holds",
    "tidepool_node_views",
    "tidepool_node_view_bytes",
    "tidepool_node_space_queue",
];

/// Who holds each key.
type Holders = BTreeMap<Vec<u8>, Vec<NodeName>>;

/// Waits until no node keeps anything for anybody.
pub(crate) fn nothing_is_kept(cluster: &Cluster) {
    for node in 0..cluster.nodes.len() {
        for name in AT_REST {
            eventually(&format!("{name} of node {node} is zero"), || cluster.metric(node, name) == 0);
        }
    }
}

/// Puts a block that needs all of a node's space, on each node.
pub(crate) fn every_byte_can_be_used(cluster: &Cluster) {
    for node in 0..cluster.nodes.len() {
        let capacity = cluster.metric(node, "tidepool_node_capacity_bytes");
        // All but what its key and checksums need.
        let block = vec![node as u8; (capacity - capacity / 256) as usize];
        let name = NodeName::new(format!("node-{node}")).expect("valid");
        let options = PutOptions { prefer: vec![name.clone()], ..PutOptions::default() };
        let (client, key) = (cluster.client(Some(node)), format!("all of {name}"));
        let stored = client.within(Duration::from_secs(10)).put(&key, &block, &options);
        assert!(stored.is_ok(), "{key}: {stored:?}");
        assert!(client.get(&key).expect("a valid key") == Some(block), "{key}: wrong bytes or none");
        assert_eq!(client.describe(&key).expect("a valid key")[0].node, name);
    }
}

/// Waits until each catalog, asked alone, says of every key what the nodes' own lists say, and knows of no other block.
pub(crate) fn catalogs_equal_the_nodes(cluster: &Cluster) {
    for address in &cluster.addresses {
        let catalog = Catalogs::new(std::slice::from_ref(address), CatalogsConfig::default()).expect("a good address");
        let mut last = String::new();
        let agrees = || {
            let listed = listed(cluster);
            let (answered, blocks) = answered(&catalog, &listed);
            last = format!("{} of {} keys answered alike", alike(&listed, &answered), listed.len());
            answered == listed && blocks == listed.len() as u64
        };
        eventually("a catalog equals the nodes' own lists", agrees);
        println!("catalog {address}: {last}");
    }
}

fn alike(one: &Holders, other: &Holders) -> usize {
    one.iter().filter(|(key, nodes)| other.get(*key) == Some(nodes)).count()
}

/// What the nodes themselves list.
fn listed(cluster: &Cluster) -> Holders {
    let page = cluster.client(None).list(&Pattern::All, &ListCursor::default(), 30_000).expect("nodes list");
    assert!(page.unanswered.is_empty() && page.next.is_none(), "every node lists all that it holds");
    let sorted = |mut nodes: Vec<NodeName>| {
        nodes.sort();
        nodes
    };
    page.entries.into_iter().map(|listed| (listed.key, sorted(listed.nodes))).collect()
}

/// What a catalog says of the same keys, and how many blocks it knows in all.
fn answered(catalog: &Catalogs, listed: &Holders) -> (Holders, u64) {
    let id = |key: &Vec<u8>| BlockId::derive(&TenantSecret::DEFAULT, Key::new(key).expect("a listed key"));
    let ids: Vec<BlockId> = listed.keys().map(id).collect();
    let soon = || Deadline::after(Duration::from_secs(5));
    let found = catalog.lookup(&ids, soon()).located;
    let holders = |index: usize| {
        let mut nodes: Vec<NodeName> =
            found.holders(index).iter().map(|holder| found.nodes()[usize::from(holder.node)].name.clone()).collect();
        nodes.sort();
        nodes
    };
    let numbers = catalog.stat(soon()).pop().and_then(|stat| stat.answer).map(|answer| answer.numbers);
    let blocks = numbers.unwrap_or_default().into_iter().find(|(name, _)| name == "tidepool_catalog_blocks");
    let answered = listed.keys().enumerate().map(|(index, key)| (key.clone(), holders(index))).collect();
    (answered, blocks.map_or(0, |(_, blocks)| blocks))
}
