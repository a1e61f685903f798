//! `--eviction` and `node.eviction` decide which blocks of a running node go: a workload on which two policies keep different ones.

mod common;

use common::{Daemon, code, pool_args, stderr, stdout};
use std::path::PathBuf;
use tidepool_client::{Client, ClientConfig, PutOptions};
use tidepool_testing::memory_dir;

const BLOCK: usize = 1 << 20;

fn client_of(pool: &Daemon) -> Client {
    let catalogs = vec![pool.address("catalog", "listen").to_owned()];
    let dir = PathBuf::from(pool.address("node", "dir"));
    Client::connect(ClientConfig { catalogs, dir, ..ClientConfig::default() }).unwrap()
}

/// Fills a pool of 16 MiB more than twice over, with one block that comes back after it was evicted. The keys that are there in the
/// end.
fn survivors(pool: &Daemon) -> Vec<String> {
    let client = client_of(pool);
    let put = |key: String| _ = client.put(&key, &[7; BLOCK], &PutOptions::default()).unwrap();
    let held = |key: &str| client.exists(&[key]).unwrap() == [true];
    put("back".to_owned());
    (0..17).for_each(|n| put(format!("once/{n}")));
    assert!(!held("back"), "the pool is smaller than what was put");
    put("back".to_owned());
    assert!(held("back"));
    (0..17).for_each(|n| put(format!("scan/{n}")));
    let listed = pool.run(&["ls", "--json"]);
    assert_eq!(code(&listed), 0, "{}", stderr(&listed));
    let key = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().to_owned();
    stdout(&listed).lines().map(key).collect()
}

#[test]
fn a_running_node_keeps_what_its_policy_keeps() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("pool.toml");
    std::fs::write(&file, "[node]\neviction = \"s3fifo\"\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let cases: [(&[&str], bool); 5] = [
        (&[], false),
        (&["--eviction", "lru"], false),
        // A block that comes again soon after it was evicted is one that comes more than once, and stays.
        (&["--eviction", "s3fifo"], true),
        (&config, true),
        (&["--config", file.to_str().unwrap(), "--eviction", "lru"], false),
    ];
    for (flags, stays) in cases {
        let dir = memory_dir();
        let pool = Daemon::start(&[&pool_args(dir.path()), flags].concat());
        let keys = survivors(&pool);
        assert_eq!(keys.iter().any(|key| key == "back"), stays, "{flags:?}: {keys:?}");
        assert!(keys.len() > 12 && keys.iter().any(|key| key == "scan/16"), "{flags:?}: {keys:?}");
    }
}

/// A put that a full node declined was told as "there already, 0 copies", and as `held` in JSON: nothing is there.
#[test]
fn a_put_that_a_full_node_declines_says_that_nothing_was_stored() {
    let dir = memory_dir();
    let pool = Daemon::start(&[&pool_args(dir.path())[..], &["--admission", "second-sight"]].concat());
    let client = client_of(&pool);
    let stored = |n: &u32| client.put(format!("fill/{n}"), &[7; BLOCK], &PutOptions::default()).unwrap().replicas;
    assert!((0..32).any(|n| stored(&n) == 0), "the pool is full");
    let put = pool.run_with(&["put", "k"], &[7; BLOCK]);
    assert_eq!((code(&put), stdout(&put).as_str()), (4, "k was not stored, 0 of 1 copies\n"), "{}", stderr(&put));
    assert!(stderr(&put).contains("node.admission"), "{}", stderr(&put));
    let put = pool.run_with(&["put", "other", "--json"], &[7; BLOCK]);
    assert_eq!((code(&put), &common::json(&put)["held"]), (4, &serde_json::json!(false)), "{}", stderr(&put));
}
