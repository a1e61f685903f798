//! Who has a pool's name, and when it is free again.

mod common;

use common::create;
use rustix::fs::{FlockOperation, flock};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::path::Path;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_store::{NodeMemory, NodeMemoryConfig, OpenError};
use tidepool_types::{ByteSize, Epoch, NodeName, TenantSecret};

fn config(dir: &Path) -> NodeMemoryConfig {
    NodeMemoryConfig {
        dir: dir.to_owned(),
        name: NodeName::new("n").unwrap(),
        secret: TenantSecret::DEFAULT,
        epoch: Epoch(2),
        capacity: ByteSize(1 << 20),
        smallest_expected_block: ByteSize(4096),
        eviction: Policy::default(),
        admission: Rule::default(),
    }
}

/// The lock of a dead owner whose files have lost their names already, held by whoever frees their memory.
fn being_cleared(dir: &Path) -> File {
    let path = dir.join("n.lock");
    fs::write(&path, b"TDPLLOCK").unwrap();
    let lock = File::open(path).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    lock
}

#[test]
fn a_name_whose_leftovers_another_node_is_removing_is_waited_for() {
    // A node that starts removes what dead ones left, under their locks, and freeing a large slab takes seconds. A dead node that
    // was restarted meanwhile was told after 0.2 s that it was running already. Now it waits until its name is free.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let lock = RefCell::new(Some(being_cleared(dir.path())));
    let asked = Cell::new(0);
    // Asked at every look: the other node is done long after a live owner would have been believed.
    let go_on = || {
        asked.set(asked.get() + 1);
        if asked.get() == 60 {
            fs::remove_file(dir.path().join("n.lock")).unwrap();
            drop(lock.take());
        }
        true
    };
    NodeMemory::create_while(&config(dir.path()), &go_on).unwrap();
}

#[test]
fn a_node_that_waits_for_its_name_can_be_told_to_stop() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let _lock = being_cleared(dir.path());
    let asked = Cell::new(0);
    let go_on = || asked.replace(asked.get() + 1) < 5;
    assert!(matches!(NodeMemory::create_while(&config(dir.path()), &go_on), Err(OpenError::Stopped)));
}

#[test]
fn an_owner_can_remove_its_files_while_the_pool_is_in_use_and_takes_nobody_elses_later() {
    // A node whose threads hung left its files behind when it ended, for they went with the last use of the pool.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let memory = create(dir.path(), "n", Epoch(1), 1 << 20, 4096);
    memory.remove_files();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    common::put(&memory, b"k", b"bytes").unwrap();
    let next = NodeMemory::create(&config(dir.path())).unwrap();
    drop(memory);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "those of the next owner");
    drop(next);
}
