//! Several pools on one host whose nodes have their sockets in one directory.
//!
//! A client used whatever node it found in the directory. Two pools with the default directory were one without a word: `rm
//! --all` in one emptied the other. Now a client that has catalogs leaves nodes alone that announce to others.

use crate::cluster::{Cluster, Over, eventually, name};
use tidepool_client::{Client, ClientConfig, ListCursor, Pattern, PutOptions};
use tidepool_node::Node;

/// Two pools of a node each, with their sockets in the directory of the first.
fn two_pools() -> (Cluster, Cluster) {
    let (one, mut other) = (Cluster::new(1), Cluster::new(0));
    let dir = one.dir().to_owned();
    other.add_node("m0", |config| config.dir = dir);
    (one, other)
}

fn client_of(cluster: &Cluster, dir: &Cluster) -> Client {
    cluster.client_with(1, |config| config.dir = dir.dir().to_owned())
}

fn names(client: &Client) -> Vec<String> {
    client.members().iter().map(|member| member.name.to_string()).collect()
}

fn keys(client: &Client) -> Vec<Vec<u8>> {
    let page = client.list(&Pattern::All, &ListCursor::default(), 100).unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn pools_that_share_a_directory_stay_apart() {
    let (one, other) = two_pools();
    let (first, second) = (client_of(&one, &one), client_of(&other, &one));
    first.put("mine", b"one", &PutOptions::default()).unwrap();
    second.put("yours", b"other", &PutOptions::default()).unwrap();
    assert_eq!((names(&first), names(&second)), (vec!["n0".to_owned()], vec!["m0".to_owned()]));
    assert!([&first, &second].iter().all(|client| client.members()[0].mapped), "each through memory");
    assert_eq!((keys(&first), keys(&second)), (vec![b"mine".to_vec()], vec![b"yours".to_vec()]));
    assert_eq!(first.get("yours").unwrap(), None);
    assert_eq!(first.remove_all().unwrap().copies, 1);
    assert_eq!(second.get("yours").unwrap().as_deref(), Some(&b"other"[..]));
}

#[test]
fn without_any_catalog_a_client_still_knows_its_own_nodes() {
    let (mut one, mut other) = two_pools();
    let (catalogs, dir) = (one.catalogs(), one.dir().to_owned());
    // The catalogs go while their nodes stay.
    one.catalogs.clear();
    other.catalogs.clear();
    let client = Client::connect(ClientConfig { catalogs, dir, ..ClientConfig::default() }).unwrap();
    assert_eq!(names(&client), ["n0"]);
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"bytes"[..]));
    assert_eq!(other.metric(0, "tidepool_node_blocks"), 0);
}

#[test]
fn a_node_that_announces_to_nobody_and_a_client_without_catalogs_take_what_is_there() {
    let mut cluster = Cluster::new(1);
    cluster.add_node("quiet", |config| config.catalogs.clear());
    let client = cluster.client_with(1, |_| {});
    eventually("both are known", || client.members().len() == 2);
    let alone = cluster.client_with(0, |config| config.catalogs.clear());
    let mut known = names(&alone);
    known.sort();
    assert_eq!(known, ["n0", "quiet"]);
}

#[test]
fn a_node_that_its_catalog_names_is_used_however_its_address_is_written() {
    // The node says `catalog.invalid`, which this client has never heard of; but the catalog names the node.
    let mut cluster = Cluster::new(0);
    let catalogs = [cluster.catalogs(), vec!["catalog.invalid:7411".to_owned()]].concat();
    cluster.add_node("n0", |config| config.catalogs = catalogs);
    let client = cluster.client(Over::Shm);
    assert!(client.members()[0].mapped);
    // And one that no catalog names is not, though it is in the directory.
    let stranger = tidepool_node::NodeConfig {
        catalogs: vec!["catalog.invalid:7411".to_owned()],
        ..cluster.node_config("stranger")
    };
    let _stranger = Node::start(stranger).unwrap();
    let again = cluster.client(Over::Shm);
    assert_eq!(names(&again), ["n0"]);
    assert_eq!(again.node_stat(&name("stranger")).unwrap_err().to_string(), "no node named stranger is known");
}
