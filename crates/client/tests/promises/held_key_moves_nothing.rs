//! Putting a key that a live node holds succeeds without moving bytes, and the bytes that are held stay.

use crate::cluster::{BOTH, Cluster, Over, prefer};
use tidepool_client::{PutError, PutItem, PutOptions, Stored};

#[test]
fn the_second_put_of_a_key_moves_nothing() {
    let cluster = Cluster::new(2);
    for over in BOTH {
        let (writer, other) = (cluster.client(over), cluster.client(Over::Tcp));
        let key = format!("{over:?}");
        assert!(writer.put(&key, b"first", &PutOptions::default()).unwrap().moved);
        for client in [&writer, &other] {
            let stored = client.put(&key, b"other", &prefer("n1")).unwrap();
            assert_eq!(stored, Stored { replicas: 1, moved: false });
        }
        let written = other.stats().bytes_written_shm + other.stats().bytes_written_socket;
        assert_eq!((written, other.stats().puts_held), (0, 1));
        assert_eq!(other.get(&key).unwrap().as_deref(), Some(&b"first"[..]));
    }
}

#[test]
fn of_a_key_that_is_twice_in_a_batch_only_the_first_is_put() {
    // A batch is sealed from its end, so the last one was stored; and with a first that had no room, the second was.
    let cluster = Cluster::new(2);
    for over in BOTH {
        let client = cluster.client(over);
        let key = format!("{over:?}");
        let huge = vec![0; 17 << 20];
        let item = |key, data| PutItem::new(key, data);
        let items = [
            item(&*key, &b"first"[..]),
            item("huge", &huge),
            item("", b"bad"),
            item(&key, b"other"),
            item("huge", b"small"),
        ];
        let stored = client.put_batch(&items, &prefer("n1"));
        assert_eq!(stored[0], Ok(Stored { replicas: 1, moved: true }));
        assert_eq!(stored[3], Ok(Stored { replicas: 1, moved: false }));
        assert!(stored[2].is_err());
        assert!(matches!(stored[1], Err(PutError::TooLarge { .. })), "{stored:?}");
        assert_eq!(stored[4], stored[1]);
        assert_eq!(client.get(&key).unwrap().as_deref(), Some(&b"first"[..]));
        assert_eq!(client.get("huge"), Ok(None));
    }
}

#[test]
fn a_put_asks_no_catalog_where_indexes_and_the_target_know_all() {
    // The catalog's answer took as long as the rest of a small put, and could not say more than had been seen already.
    let cluster = Cluster::new(1);
    let asked = || {
        let metrics = cluster.catalogs[0].metrics();
        metrics.into_iter().find(|metric| metric.name == "tidepool_catalog_lookups_total").unwrap().value
    };
    for over in BOTH {
        let client = cluster.client(over);
        let before = asked();
        assert!(client.put(format!("{over:?}"), b"new", &PutOptions::default()).unwrap().moved);
        assert_eq!(asked(), before, "{over:?}");
        assert!(!client.put(format!("{over:?}"), b"two", &PutOptions::default()).unwrap().moved);
    }
}

#[test]
fn a_put_asks_a_catalog_about_nodes_whose_index_it_has_not_seen() {
    let cluster = Cluster::new(2);
    let (writer, other) = (cluster.client(Over::Tcp), cluster.client(Over::Tcp));
    assert!(writer.put("k", b"first", &prefer("n0")).unwrap().moved);
    assert!(!other.put("k", b"other", &prefer("n1")).unwrap().moved);
}

#[test]
fn a_batch_moves_only_what_is_missing() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.put("b", b"held", &PutOptions::default()).unwrap();
    let items = [PutItem::new("a", b"new"), PutItem::new("b", b"xxxx"), PutItem::new("c", b"new")];
    let moved: Vec<bool> =
        client.put_batch(&items, &PutOptions::default()).into_iter().map(|stored| stored.unwrap().moved).collect();
    assert_eq!(moved, [true, false, true]);
    assert_eq!(client.stats().bytes_written_shm, 10);
}

#[test]
fn missing_replicas_of_a_held_block_are_copies_of_what_is_held() {
    let cluster = Cluster::new(2);
    for over in BOTH {
        let client = cluster.client(over);
        let key = format!("{over:?}");
        client.put(&key, b"held!", &prefer("n0")).unwrap();
        let two = PutOptions { replicas: 2, ..PutOptions::default() };
        let stored = client.put(&key, b"other", &two).unwrap();
        assert_eq!(stored, Stored { replicas: 2, moved: false }, "{over:?}");
        let copies = client.describe(&key).unwrap();
        assert_eq!(copies.len(), 2);
        client.move_to(&key, None, &crate::cluster::name("n1")).unwrap();
        assert_eq!(client.get(&key).unwrap().as_deref(), Some(&b"held!"[..]));
    }
}
