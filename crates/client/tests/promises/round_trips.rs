//! Every call gives back what was put, over shared memory and over TCP alike.

use crate::cluster::{BOTH, Cluster, Over, content};
use tidepool_client::{GetInto, PutItem, PutOptions};

#[test]
fn what_is_put_is_what_is_got() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        for len in [1, 2, 17, 4096, 65_537, 131_072, 131_073, 3 << 20] {
            let (key, bytes) = (format!("{over:?}/{len}"), content(len as u64, len));
            let stored = client.put(&key, &bytes, &PutOptions::default()).unwrap();
            assert_eq!((stored.replicas, stored.moved), (1, true), "{key}");
            assert!(client.get(&key).unwrap().as_ref() == Some(&bytes), "{key}");
            let mut buffer = vec![0xee; len + 3];
            assert_eq!(client.get_into(&key, &mut buffer).unwrap(), Some(len));
            assert!((&buffer[..len], &buffer[len..]) == (&bytes[..], &[0xee; 3][..]));
        }
        assert_eq!(client.get("absent").unwrap(), None);
        let stats = client.stats();
        assert_eq!(stats.misses_absent, 1, "{stats:?}");
        let (used, unused) = match over {
            Over::Shm => (stats.hits_shm, stats.hits_tcp),
            Over::Tcp => (stats.hits_tcp, stats.hits_shm),
        };
        assert_eq!((used, unused), (16, 0), "{stats:?}");
    }
}

#[test]
fn a_block_put_over_one_way_is_got_over_the_other() {
    let cluster = Cluster::new(2);
    let (near, far) = (cluster.client(Over::Shm), cluster.client(Over::Tcp));
    for (writer, reader, key) in [(&near, &far, "near"), (&far, &near, "far")] {
        let bytes = content(7, 300_000);
        writer.put(key, &bytes, &PutOptions::default()).unwrap();
        assert!(reader.get(key).unwrap() == Some(bytes));
        assert_eq!(reader.stats().foreign_hits, 1);
    }
}

#[test]
fn batches_answer_per_key_and_in_order() {
    let cluster = Cluster::new(2);
    for over in BOTH {
        let client = cluster.client(over);
        let blocks: Vec<_> = (0..200).map(|n| (format!("{over:?}/{n}"), content(n, 1 + 97 * n as usize))).collect();
        let items: Vec<_> = blocks.iter().map(|(key, bytes)| PutItem::new(key, bytes)).collect();
        assert!(client.put_batch(&items, &PutOptions::default()).iter().all(Result::is_ok));
        let mut keys: Vec<&str> = blocks.iter().map(|(key, _)| key.as_str()).collect();
        keys.insert(100, "absent");
        keys.insert(50, "");
        let got = client.get_batch(&keys);
        let expected = |key: &str| blocks.iter().find(|(known, _)| known == key).map(|(_, bytes)| bytes.clone());
        for (key, got) in keys.iter().zip(got) {
            match key.is_empty() {
                true => assert_eq!(got.unwrap_err().to_string(), "key of 0 bytes: a key has 1 to 1024 bytes"),
                false => assert!(got.unwrap() == expected(key), "{key}"),
            }
        }
        let found = client.exists(&keys[51..]).unwrap();
        assert!(found.iter().zip(&keys[51..]).all(|(found, key)| *found == (*key != "absent")));
    }
}

#[test]
fn any_range_of_a_block_can_be_read() {
    let cluster = Cluster::new(1);
    let bytes = content(3, 400_000);
    for over in BOTH {
        let client = cluster.client(over);
        client.put("block", &bytes, &PutOptions::default()).unwrap();
        for (start, end) in [(0, 1), (0, 400_000), (131_071, 131_073), (262_144, 393_216), (399_999, 400_000)] {
            let expected = &bytes[start as usize..end as usize];
            assert!(client.get_range("block", start..end).unwrap().as_deref() == Some(expected));
            let mut buffer = vec![0; expected.len()];
            assert_eq!(client.get_range_into("block", start..end, &mut buffer).unwrap(), Some(expected.len()));
            assert!(buffer == expected);
        }
        let (mut first, mut second) = (vec![0; 100], vec![0; 50]);
        let whole = GetInto::range("block", 10..110, &mut first);
        let part = GetInto::range("block", 100..150, &mut second);
        assert_eq!(client.get_batch_into(&mut [whole, part]), [Ok(Some(100)), Ok(Some(50))]);
        assert_eq!((&first[..], &second[..]), (&bytes[10..110], &bytes[100..150]));
    }
}

#[test]
fn nodes_of_this_host_are_found_without_a_catalog() {
    let cluster = Cluster::without_catalog(3);
    let client = cluster.client(Over::Shm);
    assert!(client.put("key", b"bytes", &PutOptions::default()).unwrap().moved);
    assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"bytes"[..]));
    assert_eq!(client.exists(&["key", "other"]).unwrap(), [true, false]);
}

#[test]
fn a_node_that_starts_later_is_found() {
    let mut cluster = Cluster::new(0);
    let (near, far) = (cluster.client(Over::Shm), cluster.client(Over::Tcp));
    cluster.add_node("late", |_| {});
    for client in [near, far] {
        let mut stored = || client.put("key", b"bytes", &PutOptions::default()).is_ok();
        crate::cluster::eventually("a put succeeds", &mut stored);
        assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"bytes"[..]));
    }
}

#[test]
fn verify_always_reads_the_same_bytes() {
    let cluster = Cluster::new(1);
    let client = cluster.client_with(1, |config| config.verify = tidepool_client::Verify::Always);
    let bytes = content(11, 1 << 20);
    client.put("block", &bytes, &PutOptions::default()).unwrap();
    assert!(client.get("block").unwrap().as_ref() == Some(&bytes));
    assert!(client.get_range("block", 5..200_000).unwrap().as_deref() == Some(&bytes[5..200_000]));
}

/// A block longer than what is copied between two looks at the clock goes in and out in parts, with the same checksums.
#[test]
fn a_long_block_goes_through_shared_memory_in_parts() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("n0", |config| config.capacity = tidepool_types::ByteSize(192 << 20));
    let near = cluster.client_with(1, |config| config.verify = tidepool_client::Verify::Always);
    let bytes = content(12, (130 << 20) + 5);
    let (head, tail) = bytes.split_at(70_000_001);
    near.put("block", vec![head, tail], &PutOptions::default()).unwrap();
    assert!(near.get("block").unwrap().as_ref() == Some(&bytes));
    let range = 3..(129 << 20) + 1;
    assert!(near.get_range("block", range.start as u64..range.end as u64).unwrap().as_deref() == Some(&bytes[range]));
    assert!(cluster.client(Over::Tcp).get("block").unwrap().as_ref() == Some(&bytes), "verified on arrival");
}

/// A client that was made or used inside an asynchronous runtime panicked, "cannot start a runtime from within a runtime".
/// Calls block the thread they are made on, wherever that is.
#[test]
fn a_client_works_inside_an_asynchronous_runtime() {
    let cluster = Cluster::new(2);
    let (dir, catalogs) = (cluster.dir().to_owned(), cluster.catalogs());
    let everything = async move {
        let config = tidepool_client::ClientConfig { dir, catalogs, local: false, ..Default::default() };
        let client = tidepool_client::Client::connect(config).unwrap();
        // More steps than a task has before it must yield.
        for n in 0..100 {
            let key = format!("key {n}");
            client.put(&key, key.as_bytes(), &PutOptions::default()).unwrap();
            assert!(client.exists(&[&key, "absent"]).unwrap() == [true, false]);
            assert!(client.get(&key).unwrap().as_deref() == Some(key.as_bytes()));
        }
        // Dropped inside, too.
    };
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    current.block_on(everything);
}
