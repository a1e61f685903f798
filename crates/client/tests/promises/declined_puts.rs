//! A put that a full node declines is a success for its caller: a cache may evict at any moment, and so at once.

use crate::cluster::{BOTH, Cluster, content};
use tidepool_client::{PutItem, PutOptions, Stored};
use tidepool_policy::admission::Rule;

#[test]
fn what_a_full_node_declines_is_a_success_that_stored_nothing() {
    let mut cluster = Cluster::new(0);
    cluster.add_node("picky", |config| config.admission = Rule::SecondSight);
    for over in BOTH {
        let client = cluster.client(over);
        let keys: Vec<String> = (0..40).map(|n| format!("{over:?}/{n}")).collect();
        let bytes = content(1, 1 << 20);
        let items: Vec<_> = keys.iter().map(|key| PutItem::new(key, &bytes)).collect();
        let stored = client.put_batch(&items, &PutOptions::default());
        let declined = |stored: &Result<Stored, _>| matches!(stored, Ok(Stored { replicas: 0, moved: false }));
        assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        let count = stored.iter().filter(|stored| declined(stored)).count();
        assert!(count >= 24, "{count} of 40 blocks in a node of 16");
        assert_eq!(client.stats().puts_declined, count as u64);
        assert!(keys.iter().zip(&stored).all(|(key, stored)| declined(stored) == client.get(key).unwrap().is_none()));
        let again = client.put(&keys[39], &bytes, &PutOptions::default()).unwrap();
        assert_eq!(again, Stored { replicas: 1, moved: true }, "what comes again is wanted");
    }
}
