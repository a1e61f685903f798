//! A wait ends as soon as the pool holds one of the blocks, wherever that becomes known.

use crate::cluster::{Cluster, Over, eventually, prefer};
use std::time::Duration;
use tidepool_catalog::CatalogConfig;
use tidepool_client::{Call, Client};

/// Far longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

fn config() -> CatalogConfig {
    CatalogConfig { settle: Duration::ZERO, ..CatalogConfig::default() }
}

/// A cluster of two nodes that announce to several catalogs.
fn cluster(catalogs: usize, config: &CatalogConfig) -> Cluster {
    let mut cluster = Cluster::with_catalogs(catalogs, config);
    (0..2).for_each(|number| cluster.add_node(&format!("n{number}"), |_| {}));
    cluster
}

fn begin(client: &Client, keys: [&'static str; 2]) -> Call<Vec<bool>> {
    client.within(LONG).spawn(move |client| client.wait(&keys).unwrap()).unwrap()
}

/// Calls that wait at a catalog.
fn waits(cluster: &Cluster, catalog: usize) -> u64 {
    tidepool_testing::number(&cluster.catalogs[catalog].metrics(), "tidepool_catalog_waits")
}

#[test]
fn a_wait_ends_when_any_node_seals_one_of_the_blocks() {
    let cluster = cluster(1, &config());
    for (over, node) in [(Over::Shm, "n0"), (Over::Tcp, "n1")] {
        let (reader, writer) = (cluster.client(over), cluster.client(Over::Tcp));
        let (sealed, other) = if node == "n0" { ("shm", "none") } else { ("tcp", "none") };
        let waiting = begin(&reader, [other, sealed]);
        eventually("it waits", || waits(&cluster, 0) == 1);
        writer.put("unrelated", b"bytes", &prefer(node)).unwrap();
        writer.put(sealed, b"bytes", &prefer(node)).unwrap();
        assert_eq!(waiting.wait().unwrap(), [false, true], "{over:?}");
        assert_eq!(reader.within(LONG).wait(&[sealed]).unwrap(), [true], "held already");
    }
}

#[test]
fn a_wait_that_ends_with_nothing_says_so() {
    let cluster = cluster(1, &config());
    let client = cluster.client(Over::Tcp).within(Duration::from_millis(30));
    assert_eq!(client.wait(&["none", "either"]).unwrap(), [false, false]);
    assert_eq!(client.wait::<&str>(&[]).unwrap(), []);
    assert!(client.wait(&[""]).is_err(), "no key");
    assert_eq!(client.exists(&["none"]).unwrap(), [false], "the catalog is asked as before");
}

#[test]
fn a_wait_goes_on_at_another_catalog_when_its_own_dies() {
    let mut cluster = cluster(2, &config());
    let client = cluster.client(Over::Tcp);
    let waiting = begin(&client, ["none", "key"]);
    eventually("it waits", || waits(&cluster, 0) + waits(&cluster, 1) == 1);
    let first = usize::from(waits(&cluster, 0) == 0);
    drop(cluster.catalogs.remove(first));
    eventually("it waits at the other one", || waits(&cluster, 0) == 1);
    client.put("key", b"bytes", &prefer("n1")).unwrap();
    assert_eq!(waiting.wait().unwrap(), [false, true]);
}

#[test]
fn a_wait_that_finds_no_catalog_ends_when_one_comes_back() {
    let mut cluster = cluster(1, &config());
    let client = cluster.client(Over::Tcp);
    let waiting = begin(&client, ["none", "key"]);
    eventually("it waits", || waits(&cluster, 0) == 1);
    cluster.restart_catalog(0, &config());
    eventually("the pool takes blocks again", || client.put("key", b"bytes", &prefer("n1")).is_ok());
    assert_eq!(waiting.wait().unwrap(), [false, true]);
}

#[test]
fn a_wait_on_this_host_needs_no_catalog() {
    let cluster = Cluster::without_catalog(1);
    let client = cluster.client(Over::Shm);
    let waiting = begin(&client, ["none", "key"]);
    client.put("key", b"bytes", &prefer("n0")).unwrap();
    assert_eq!(waiting.wait().unwrap(), [false, true]);
}

#[test]
fn a_wait_that_a_full_catalog_refuses_ends_all_the_same_and_look_ups_go_on() {
    let cluster = cluster(1, &CatalogConfig { max_waits: 1, ..config() });
    let client = cluster.client(Over::Tcp);
    let both = [begin(&client, ["none", "key"]), begin(&client, ["either", "key"])];
    let refused =
        || tidepool_testing::number(&cluster.catalogs[0].metrics(), "tidepool_catalog_rejected_requests_total");
    eventually("one waits, one is refused", || waits(&cluster, 0) == 1 && refused() > 0);
    assert_eq!(client.exists(&["key"]).unwrap(), [false]);
    client.put("key", b"bytes", &prefer("n0")).unwrap();
    for waiting in both {
        assert_eq!(waiting.wait().unwrap(), [false, true]);
    }
}
