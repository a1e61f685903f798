//! A caller in a hurry is no judge: what it had no time to wait for stays good for everybody else.

use crate::cluster::{Cluster, Over, content};
use std::time::Duration;
use tidepool_client::{Client, ClientConfig, PutOptions};

/// A call whose own short deadline ended its wait marked the node as down, although it was about to answer: every other
/// caller of the client then missed blocks that were there, and its puts found no node. Now such a wait has the node probed,
/// and only a node that keeps the probe waiting too is passed by.
#[test]
fn calls_that_run_out_of_time_take_no_node_away_from_others() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n0", |config| config.capacity = tidepool_types::ByteSize(64 << 20));
    let client = cluster.client(Over::Tcp);
    let options = PutOptions::default();
    client.put("large", &content(1, 32 << 20), &options).unwrap();
    client.put("small", &content(2, 4096), &options).unwrap();
    let hurried = client.within(Duration::from_millis(1));
    for round in 0..30 {
        assert_eq!(hurried.get("large"), Ok(None), "32 MiB do not come in a millisecond");
        assert!(client.get("small").unwrap().is_some(), "round {round}: {:?}", client.stats());
        // What a put waits for is a reply on a connection, not a transport.
        let _ = hurried.describe("small");
        let stored = client.put(format!("put {round}"), b"bytes", &options);
        assert!(stored.is_ok(), "round {round}: {stored:?}, {:?}", client.stats());
    }
    assert_eq!(client.stats().nodes_down, 0, "{:?}", client.stats());
}

/// The same with catalogs: one look-up that had a few milliseconds for a hundred thousand keys made every other caller's next
/// look-up say "not held", and their gets miss.
#[test]
fn look_ups_that_run_out_of_time_take_no_catalog_away_from_others() {
    let cluster = Cluster::new(2);
    let client = cluster.client(Over::Tcp);
    client.put("key", b"bytes", &PutOptions::default()).unwrap();
    let many: Vec<String> = (0..100_000).map(|n| format!("absent {n}")).collect();
    // Some of these budgets end while the catalog is being asked, whatever the machine.
    for millis in 1..60 {
        client.within(Duration::from_millis(millis)).exists(&many).unwrap();
        assert_eq!(client.exists(&["key"]).unwrap(), [true], "after a look-up of {millis} ms");
        assert!(client.get("key").unwrap().is_some(), "after a look-up of {millis} ms: {:?}", client.stats());
    }
}

/// A catalog that keeps silent took all of a put's short time, although a node of this host was there to take the block.
#[test]
fn a_silent_catalog_leaves_a_put_time_for_its_bytes() {
    let cluster = Cluster::without_catalog(1);
    // Connections are taken by the kernel and never answered.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let config = ClientConfig {
        dir: cluster.dir().to_owned(),
        catalogs: vec![address],
        deadline: Duration::from_millis(200),
        ..ClientConfig::default()
    };
    let client = Client::connect(config).unwrap();
    let stored = client.put("key", b"bytes", &PutOptions::default());
    assert!(stored.is_ok(), "{stored:?}");
}
