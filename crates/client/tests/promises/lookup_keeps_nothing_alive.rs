//! A look-up never keeps a block alive: probing for hits does not count as use, reading does.

use crate::cluster::{Cluster, Over, content, eventually};
use tidepool_client::{Client, PutOptions};

fn put(client: &Client, key: &str) {
    client.put(key, &content(1, 1 << 20), &PutOptions::default()).unwrap();
}

/// Fills a node of 16 MiB with twice as much, using `first` in between by `used`.
fn survives(used: impl Fn(&Client)) -> bool {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    put(&client, "first");
    for n in 0..32 {
        used(&client);
        put(&client, &format!("filler {n}"));
    }
    client.exists(&["first"]).unwrap()[0]
}

#[test]
fn looking_up_does_not_keep_a_block() {
    assert!(!survives(|client| {
        client.exists(&["first"]).unwrap();
        client.match_prefix(&[["first"]]).unwrap();
        client.describe("first").unwrap();
    }));
}

#[test]
fn reading_keeps_a_block() {
    let mut buffer = vec![0; 1 << 20];
    let buffer = std::cell::RefCell::new(&mut buffer);
    assert!(survives(|client| {
        let sent = client.stats().touches_sent;
        assert!(client.get_into("first", &mut buffer.borrow_mut()).unwrap().is_some());
        // The owner hears of uses a moment later.
        eventually("the use is reported", || client.stats().touches_sent > sent);
    }));
}

#[test]
fn putting_again_keeps_a_block() {
    // The holder confirms that it has the block, which counts as a use at once.
    assert!(survives(|client| {
        assert!(!client.put("first", b"other", &PutOptions::default()).unwrap().moved);
    }));
}
