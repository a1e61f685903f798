//! Puts whose deadline passes while the catalogs do not answer.

use super::aftermath::{catalogs_equal_the_nodes, every_byte_can_be_used, nothing_is_kept};
use super::cluster::{Cluster, client, content};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use tidepool_client::{Client, PutOptions};

/// Far more than a put may take past its deadline, far less than a hang.
const HANG: Duration = Duration::from_secs(3);

#[test]
fn a_put_whose_deadline_passes_while_catalogs_are_stopped_returns_and_leaves_nothing_half_done() {
    let cluster = Cluster::start(1, "16MiB");
    let (local, remote) = (cluster.client(Some(0)), cluster.client(None));
    let (mut answered, mut failed) = (Vec::new(), Vec::new());
    for (round, millis) in [1, 5, 30, 90, 110, 400].into_iter().enumerate() {
        let catalogs: Vec<_> = cluster.catalogs.iter().flatten().collect();
        catalogs.iter().for_each(|catalog| catalog.signal(Signal::STOP));
        for (writer, name) in [(&local, "local"), (&remote, "remote")] {
            for n in 0..8 {
                let key = format!("{name}-{round}-{n}");
                let started = Instant::now();
                let within = writer.within(Duration::from_millis(millis));
                match within.put(&key, &content(key.as_bytes()), &PutOptions::default()) {
                    Ok(_) => answered.push(key),
                    Err(_) => failed.push(key),
                }
                assert!(started.elapsed() < HANG, "a put with {millis} ms took {:?}", started.elapsed());
            }
        }
        catalogs.iter().for_each(|catalog| catalog.signal(Signal::CONT));
        cluster.wait_until_known(1);
    }
    println!("{} answered, {} failed", answered.len(), failed.len());
    assert!(!answered.is_empty() && !failed.is_empty(), "both have shown");
    nothing_is_kept(&cluster);
    let alone: Vec<Client> = cluster.addresses.iter().map(|one| client(std::slice::from_ref(one), None)).collect();
    for reader in alone.iter().chain([&local]) {
        assert!(reader.exists(&answered).expect("valid keys").iter().all(|found| *found), "an answered put is found");
        for key in answered.iter().chain(&failed) {
            let bytes = reader.get(key).expect("a valid key");
            assert!(bytes.is_none_or(|bytes| bytes == content(key.as_bytes())), "wrong bytes of {key}");
        }
    }
    catalogs_equal_the_nodes(&cluster);
    every_byte_can_be_used(&cluster);
}
