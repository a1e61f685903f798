//! A full node makes room; only when nothing can be evicted before the deadline is there no space.

use crate::cluster::{BOTH, Cluster, Over, content};
use std::time::Duration;
use tidepool_client::{PutError, PutItem, PutOptions};

#[test]
fn a_batch_larger_than_the_node_is_stored_to_its_end() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let keys: Vec<String> = (0..40).map(|n| format!("{over:?}/{n}")).collect();
        let bytes = content(1, 1 << 20);
        let items: Vec<_> = keys.iter().map(|key| PutItem::new(key, &bytes)).collect();
        let stored = client.put_batch(&items, &PutOptions::default());
        assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        assert!(client.get(&keys[39]).unwrap().as_ref() == Some(&bytes));
    }
}

#[test]
fn pinned_blocks_leave_no_space_and_a_huge_block_never_fits() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm).within(Duration::from_millis(300));
    let keys: Vec<String> = (0..15).map(|n| format!("{n}")).collect();
    keys.iter().for_each(|key| assert!(client.put(key, &content(1, 1 << 20), &PutOptions::default()).is_ok()));
    let views: Vec<_> = keys.iter().map(|key| client.view(key).unwrap().unwrap()).collect();
    let error = client.put("more", &content(2, 2 << 20), &PutOptions::default()).unwrap_err();
    assert_eq!(error, PutError::NoSpace);
    drop(views);
    let within = client.within(Duration::from_secs(10));
    assert!(within.put("more", &content(2, 2 << 20), &PutOptions::default()).is_ok());
    let error = client.put("huge", &content(3, 17 << 20), &PutOptions::default()).unwrap_err();
    assert_eq!(error, PutError::TooLarge { len: 17 << 20, largest: Some(16 << 20) });
}

#[test]
fn a_block_too_large_for_one_node_goes_to_a_larger_one() {
    let mut cluster = Cluster::new(1);
    cluster.add_node("large", |config| config.capacity = tidepool_types::ByteSize(64 << 20));
    for over in BOTH {
        let client = cluster.client(over);
        let key = format!("{over:?}");
        let stored = client.put(&key, &content(1, 20 << 20), &crate::cluster::prefer("n0")).unwrap();
        assert!(stored.moved);
        assert_eq!(client.describe(&key).unwrap()[0].node, crate::cluster::name("large"));
    }
}
