//! What somebody has lately read, or been told of, is not removed unless the remover insists.

use crate::cluster::{BOTH, Cluster, Over, eventually};
use std::time::Duration;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_client::{Client, PutItem, PutOptions};
use tidepool_types::ByteSize;

/// Long enough that no test sees it end.
const LONG: Duration = Duration::from_secs(600);

fn reader(cluster: &Cluster, over: Over) -> Client {
    cluster.client_with(cluster.nodes.len(), |config| {
        config.local = over == Over::Shm;
        config.leases = true;
    })
}

fn put(client: &Client, key: &str, replicas: u32) {
    let options = PutOptions { replicas, ..PutOptions::default() };
    assert_eq!(client.put(key, key.as_bytes(), &options).unwrap().replicas, replicas);
}

fn is_leased(remover: &Client, key: &str) -> bool {
    let removal = remover.remove_unleased(&[key]).unwrap().remove(0);
    assert_ne!(removal.leased, removal.removed, "{removal:?}");
    removal.leased
}

type Look = fn(&Client, &str) -> bool;

const LOOKS: [(&str, Look); 4] = [
    ("get", |client, key| client.get(key).unwrap().is_some()),
    ("exists", |client, key| client.exists(&[key]).unwrap()[0]),
    ("view", |client, key| client.view(key).unwrap().is_some()),
    ("describe", |client, key| !client.describe(key).unwrap().is_empty()),
];

#[test]
fn a_block_that_was_looked_at_is_not_removed_by_anyone_unless_forced() {
    let cluster = Cluster::with_leases(2, LONG);
    for over in BOTH {
        let (reader, remover) = (reader(&cluster, over), cluster.client(over));
        for (name, look) in LOOKS {
            put(&remover, name, 1);
            assert!(look(&reader, name), "{name} over {over:?}");
            assert!(is_leased(&remover, name), "{name} over {over:?}");
            assert!(is_leased(&reader, name), "{name} over {over:?}");
            assert_eq!(remover.get(name).unwrap().as_deref(), Some(name.as_bytes()));
            assert!(remover.remove(name).unwrap().removed);
            assert_eq!(reader.get(name).unwrap(), None);
        }
    }
}

#[test]
fn a_lease_at_one_holder_keeps_the_copies_of_all() {
    let cluster = Cluster::with_leases(3, LONG);
    for over in BOTH {
        let (reader, remover) = (reader(&cluster, over), cluster.client(over));
        put(&remover, "key", 3);
        assert!(reader.get("key").unwrap().is_some());
        assert!(is_leased(&remover, "key"));
        assert_eq!(remover.describe("key").unwrap().len(), 3);
        assert!(remover.remove("key").unwrap().removed);
    }
}

#[test]
fn leases_are_judged_block_by_block() {
    let cluster = Cluster::with_leases(1, LONG);
    for over in BOTH {
        let (reader, remover) = (reader(&cluster, over), cluster.client(over));
        let keys: Vec<String> = (0..100).map(|n| format!("{over:?}/{n}")).collect();
        keys.iter().for_each(|key| put(&remover, key, 1));
        let even: Vec<&String> = keys.iter().step_by(2).collect();
        assert!(reader.get_batch(&even).iter().all(|answer| matches!(answer, Ok(Some(_)))));
        let removals = remover.remove_unleased(&keys).unwrap();
        for (n, removal) in removals.iter().enumerate() {
            assert_eq!((removal.leased, removal.removed), (n % 2 == 0, n % 2 == 1), "block {n} over {over:?}");
        }
    }
}

#[test]
fn puts_misses_and_clients_without_leases_protect_nothing() {
    let cluster = Cluster::with_leases(2, LONG);
    for over in BOTH {
        let (reader, native) = (reader(&cluster, over), cluster.client(over));
        assert!(!reader.exists(&["key"]).unwrap()[0]);
        assert_eq!(reader.get("key").unwrap(), None);
        put(&reader, "key", 1);
        put(&reader, "key", 1);
        assert!(LOOKS.iter().all(|(_, look)| look(&native, "key")));
        assert!(!is_leased(&reader, "key"));
    }
}

#[test]
fn a_lease_ends() {
    let cluster = Cluster::with_leases(1, Duration::from_millis(50));
    for over in BOTH {
        let (reader, remover) = (reader(&cluster, over), cluster.client(over));
        for (name, look) in LOOKS {
            put(&remover, name, 1);
            assert!(look(&reader, name));
            eventually("the lease ends", || !is_leased(&remover, name));
        }
    }
}

#[test]
fn a_lease_outlives_its_reader() {
    let cluster = Cluster::with_leases(1, LONG);
    for over in BOTH {
        let remover = cluster.client(over);
        put(&remover, "key", 1);
        let reader = reader(&cluster, over);
        assert!(reader.get("key").unwrap().is_some());
        drop(reader);
        assert!(is_leased(&remover, "key"), "{over:?}");
        assert!(cluster.metric(0, "tidepool_node_leases") > 0);
        remover.remove("key").unwrap();
    }
}

/// A look-up is answered by one catalog, and only that one knows of it.
#[test]
fn a_lease_at_any_catalog_counts() {
    let mut cluster = Cluster::with_leases(0, LONG);
    let config = CatalogConfig { settle: Duration::ZERO, lease: LONG, ..CatalogConfig::default() };
    let second = Server::start(config).unwrap();
    let address = second.address().to_string();
    cluster.add_node("n", |config| config.catalogs.push(address.clone()));
    let remover = cluster.client_with(1, |config| config.catalogs.push(address.clone()));
    put(&remover, "key", 1);
    let reader = cluster.client_with(1, |config| {
        config.catalogs = vec![address.clone()];
        (config.local, config.leases) = (false, true);
    });
    assert!(reader.exists(&["key"]).unwrap()[0]);
    assert!(is_leased(&remover, "key"));
    assert!(second.metrics().iter().any(|metric| metric.name == "tidepool_catalog_leases" && metric.number() == 1));
    drop(second);
    assert!(!is_leased(&remover, "key"), "a catalog that is gone keeps nothing");
}

#[test]
fn a_batch_longer_than_a_ring_leases_every_block_of_it() {
    let mut cluster = Cluster::with_leases(0, LONG);
    cluster.add_node("n0", |config| config.capacity = ByteSize(160 << 20));
    for over in BOTH {
        let (reader, remover) = (reader(&cluster, over), cluster.client(over));
        let keys: Vec<String> = (0..36_000).map(|n| format!("{over:?}/{n}")).collect();
        for some in keys.chunks(10_000) {
            let items: Vec<_> = some.iter().map(|key| PutItem::new(key, b"x")).collect();
            assert!(remover.put_batch(&items, &PutOptions::default()).iter().all(Result::is_ok));
        }
        assert!(reader.get_batch(&keys).iter().all(|answer| matches!(answer, Ok(Some(_)))));
        let removals = remover.remove_unleased(&keys).unwrap();
        assert_eq!(removals.iter().filter(|removal| !removal.leased).count(), 0, "over {over:?}");
        assert!(remover.remove_batch(&keys).unwrap().iter().all(|removal| removal.removed));
    }
}
