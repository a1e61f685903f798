//! A byte flipped in a slab: never wrong bytes. The read comes from a replica or is a miss, and the owner hears of it.

use crate::cluster::{BOTH, Cluster, content, eventually, prefer};
use std::os::unix::fs::FileExt;
use tidepool_client::{PutOptions, Verify};

const DAMAGED: &str = "tidepool_node_damaged_total";

/// Flips a byte of `block` wherever it lies in a node's slab.
fn flip(cluster: &Cluster, node: &str, block: &[u8]) {
    let is_slab =
        |path: &std::path::Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(node));
    let mut flipped = 0;
    for path in std::fs::read_dir(cluster.dir()).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        if let Some(at) = bytes.windows(block.len()).position(|window| window == block).filter(|_| is_slab(&path)) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[!block[100]], at as u64 + 100).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "the block lies in one slab of {node}");
}

#[test]
fn a_flipped_byte_is_a_miss_and_is_quarantined() {
    for over in BOTH {
        let mut cluster = Cluster::new(0);
        cluster.add_node("n0", |config| config.scrub_rate = tidepool_types::ByteSize(0));
        let client = cluster.client_with(1, |config| {
            (config.local, config.verify) = (over == crate::cluster::Over::Shm, Verify::Always);
        });
        let bytes = content(9, 10_000);
        client.put("block", &bytes, &PutOptions::default()).unwrap();
        flip(&cluster, "n0", &bytes);
        assert!(client.get("block").unwrap().is_none(), "over {over:?}");
        eventually("the owner has quarantined it", || cluster.metric(0, DAMAGED) == 1);
    }
}

#[test]
fn a_replica_stands_in_for_a_corrupt_copy() {
    for over in BOTH {
        let mut cluster = Cluster::new(0);
        let no_scrubber = |config: &mut tidepool_node::NodeConfig| config.scrub_rate = tidepool_types::ByteSize(0);
        cluster.add_node("n0", no_scrubber);
        cluster.add_node("n1", no_scrubber);
        let client = cluster.client_with(2, |config| {
            (config.local, config.verify) = (over == crate::cluster::Over::Shm, Verify::Always);
        });
        let bytes = content(9, 10_000);
        client.put("block", &bytes, &PutOptions { replicas: 2, ..prefer("n0") }).unwrap();
        flip(&cluster, "n0", &bytes);
        for _ in 0..4 {
            let got = client.get("block").unwrap();
            assert!(got.as_ref() == Some(&bytes), "over {over:?}: {:?}", client.stats());
        }
    }
}
