//! A new version takes the place of the old one: a get sees old, new or a miss, and in the end one version is left.

use crate::cluster::{BOTH, Cluster, Over, content, name};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use tidepool_client::{Client, NodeName, Pin, PutItem, PutOptions};
use tidepool_types::{BlockId, Key, TenantSecret};

fn id(key: &str) -> BlockId {
    BlockId::derive(&TenantSecret::DEFAULT, Key::new(key.as_bytes()).unwrap())
}

fn replicas(replicas: u32) -> PutOptions {
    PutOptions { replicas, ..PutOptions::default() }
}

/// What each node that holds the block holds.
pub(crate) fn copies(cluster: &Cluster, key: &str) -> Vec<Vec<u8>> {
    let copy = |node: &tidepool_node::Node| Some(node.memory().peek(&id(key))?.bytes().to_vec());
    cluster.nodes.iter().filter_map(copy).collect()
}

#[test]
fn an_upsert_takes_the_place_of_every_copy_and_keeps_their_number() {
    let cluster = Cluster::new(3);
    for over in BOTH {
        let client = cluster.client(over);
        let stored = client.upsert("key", b"first", &PutOptions::default()).unwrap();
        assert_eq!((stored.replicas, stored.moved), (1, true));
        client.upsert("key", b"second, longer", &replicas(2)).unwrap();
        assert_eq!(copies(&cluster, "key"), vec![b"second, longer".to_vec(); 2]);
        client.upsert("key", b"third", &PutOptions::default()).unwrap();
        assert_eq!(copies(&cluster, "key"), vec![b"third".to_vec(); 2]);
        assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"third"[..]));
        assert!(!client.put("key", b"fourth", &PutOptions::default()).unwrap().moved, "a put changes nothing");
        assert_eq!(copies(&cluster, "key"), vec![b"third".to_vec(); 2]);
        client.remove("key").unwrap();
        assert!(copies(&cluster, "key").is_empty());
    }
}

#[test]
fn what_cannot_be_stored_is_refused_before_anything_is_removed() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Shm);
    client.put("key", b"old", &PutOptions::default()).unwrap();
    let items = [PutItem::new("key", b""), PutItem::new("", b"x"), PutItem::new("other", b"new")];
    let results = client.upsert_batch(&items, &PutOptions::default());
    assert!(results[0].is_err() && results[1].is_err() && results[2].is_ok());
    assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"old"[..]));
}

/// A copy that another node makes of a block while a new version is put must not outlive it: neither the catalogs nor the
/// writer know of that node yet.
#[test]
fn a_node_that_copied_the_old_version_meanwhile_loses_it() {
    let cluster = Cluster::new(2);
    let (writer, copier) = (cluster.client(Over::Tcp), cluster.client(Over::Tcp));
    for round in 0..50u64 {
        let (old, new) = (content(round, 200_000), content(!round, 100_000));
        let options = PutOptions { prefer: vec![name("n0")], ..PutOptions::default() };
        writer.upsert("key", &old[..], &options).unwrap();
        std::thread::scope(|scope| {
            // It finds the block, or not any more.
            scope.spawn(|| drop(copier.copy_to("key", &name("n1"))));
            writer.upsert("key", &new[..], &options).unwrap();
        });
        let copies = copies(&cluster, "key");
        assert!(!copies.is_empty() && copies.iter().all(|copy| *copy == new), "round {round}: {} copies", copies.len());
        writer.remove("key").unwrap();
    }
}

const CLIENTS: u64 = 4;
const KEYS: [&str; 3] = ["a", "b", "c"];

/// What a client wrote in a step: all of it, or it is a mix.
fn bytes_of(seed: u64, client: u64, step: u64) -> Vec<u8> {
    let number = seed << 32 | client << 16 | step;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(content(number, 1000 + (number % 7 * 60_000) as usize));
    bytes
}

/// Which client wrote it in which step.
fn writer_of(seed: u64, bytes: &[u8]) -> (u64, u64) {
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let (client, step) = (number >> 16 & 0xffff, number & 0xffff);
    assert!(bytes == bytes_of(seed, client, step), "a mix, or bytes that nobody wrote");
    (client, step)
}

struct Worker<'a> {
    client: Client,
    number: u64,
    seed: u64,
    nodes: &'a [NodeName],
    /// The last step in which each client upserted each key.
    last: &'a Mutex<Vec<[Option<u64>; KEYS.len()]>>,
}

impl Worker<'_> {
    fn run(&self, steps: u64) {
        let mut state = (self.seed ^ self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for step in 0..steps {
            let (action, key, node) = (next(10), next(KEYS.len()), next(self.nodes.len()));
            match action {
                0..=3 => self.upsert(step, key, &self.nodes[node]),
                4 | 5 => drop(self.client.copy_to(KEYS[key], &self.nodes[node])),
                6 => drop(self.client.remove(KEYS[key])),
                _ => self.get(key),
            }
        }
    }

    fn upsert(&self, step: u64, key: usize, node: &NodeName) {
        let bytes = bytes_of(self.seed, self.number, step);
        let options = PutOptions { prefer: vec![node.clone()], replicas: 1 + step as u32 % 2, ..PutOptions::default() };
        // Noted before: somebody may see it from now on.
        self.last.lock().unwrap()[self.number as usize][key] = Some(step);
        self.client.upsert(KEYS[key], &bytes[..], &options).unwrap();
    }

    fn get(&self, key: usize) {
        if let Some(bytes) = self.client.get(KEYS[key]).unwrap() {
            writer_of(self.seed, &bytes);
        }
    }
}

#[test]
fn in_the_end_one_version_is_left_and_it_is_the_last_of_some_writer() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("SEED={seed}");
    let cluster = Cluster::new(3);
    let nodes: Vec<NodeName> = (0..3).map(|n| name(&format!("n{n}"))).collect();
    for round in 0..4 {
        let seed = seed + round;
        let last = Mutex::new(vec![[None; KEYS.len()]; CLIENTS as usize]);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let over = BOTH[number as usize % 2];
                let worker = Worker { client: cluster.client(over), number, seed, nodes: &nodes, last: &last };
                scope.spawn(move || worker.run(40));
            }
        });
        let last = last.into_inner().unwrap();
        for (index, key) in KEYS.iter().enumerate() {
            let versions: BTreeSet<(u64, u64)> =
                copies(&cluster, key).iter().map(|copy| writer_of(seed, copy)).collect();
            assert!(versions.len() <= 1, "SEED={seed}: {key} has {versions:?}");
            for (client, step) in versions {
                assert_eq!(last[client as usize][index], Some(step), "SEED={seed}: {key}");
            }
        }
        let client = cluster.client(Over::Shm);
        client.remove_batch(&KEYS).unwrap();
    }
}

#[test]
fn pins_and_groups_reach_the_node_that_holds_the_block() {
    let cluster = Cluster::with_leases(1, Duration::from_secs(600));
    for over in BOTH {
        let client = cluster.client_with(1, |config| (config.local, config.leases) = (over == Over::Shm, true));
        let pinned = PutOptions { pin: Pin::Hard, ..PutOptions::default() };
        client.put("pinned", b"for good", &pinned).unwrap();
        assert!(cluster.metric(0, "tidepool_node_pinned_bytes") > 0);
        assert!(client.remove("pinned").unwrap().removed);
        assert_eq!(cluster.metric(0, "tidepool_node_pinned_bytes"), 0);
        let groups =
            PutOptions { groups: vec!["g".to_owned(), "g".to_owned(), "h".to_owned()], ..PutOptions::default() };
        let items = [PutItem::new("g1", b"1"), PutItem::new("g2", b"2"), PutItem::new("h1", b"3")];
        assert!(client.put_batch(&items, &groups).iter().all(Result::is_ok));
        client.get("g1").unwrap().unwrap();
        let removals = client.remove_unleased(&["g2", "h1"]).unwrap();
        assert!(removals[0].leased && removals[1].removed, "{removals:?}");
        client.remove_batch(&["g1", "g2"]).unwrap();
    }
}

#[test]
fn a_client_clears_the_replicas_of_its_own_blocks_only() {
    let cluster = Cluster::with_leases(2, Duration::from_secs(600));
    for over in BOTH {
        let (client, other) = (cluster.client(over), cluster.client(over));
        let keys = ["own", "foreign", "none"].map(|key| format!("{key} {over:?}"));
        client.put(&keys[0], b"bytes", &replicas(2)).unwrap();
        other.put(&keys[1], b"bytes", &replicas(2)).unwrap();
        assert_eq!(client.clear_replicas(&keys, Some(&name("n1"))).unwrap(), [true, false, false]);
        assert_eq!((copies(&cluster, &keys[0]).len(), copies(&cluster, &keys[1]).len()), (1, 2));
        assert_eq!(client.clear_replicas(&keys, Some(&name("nobody"))).unwrap(), [false; 3]);
        let reader = cluster.client_with(2, |config| (config.local, config.leases) = (over == Over::Shm, true));
        assert!(reader.get(&keys[0]).unwrap().is_some());
        assert_eq!(client.clear_replicas(&keys, None).unwrap(), [false; 3], "somebody reads it");
        client.remove_batch(&keys).unwrap();
    }
}
