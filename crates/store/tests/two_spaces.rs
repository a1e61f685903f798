//! Two tenants on one node: ids, blocks and files of one are nothing to the other.

use rustix::fs::{OFlags, fcntl_getfl, fstat};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_store::{Holdings, Mapping, NodeMemoryConfig, Reading, Space, SpaceLimits};
use tidepool_testing::memory_dir;
use tidepool_types::{ByteSize, ClientId, Deadline, Epoch, Key, NodeName, TenantSecret};
use tidepool_wire::checksum::BlockChecksum;

const LIMITS: SpaceLimits = SpaceLimits { quarantine_bytes: 1 << 20, view_bytes: 1 << 20 };

fn space(dir: &std::path::Path, name: &str, secret: [u8; 16]) -> Space {
    let config = NodeMemoryConfig {
        dir: dir.to_owned(),
        name: NodeName::new(name).unwrap(),
        secret: TenantSecret::new(secret),
        epoch: Epoch(1),
        capacity: ByteSize(1 << 20),
        smallest_expected_block: ByteSize(4096),
        eviction: Policy::default(),
        admission: Rule::default(),
    };
    Space::create(&config, LIMITS, Vec::new(), &|| true).unwrap()
}

fn put(space: &Space, key: &[u8], bytes: &[u8]) {
    let (key, soon) = (Key::new(key).unwrap(), Deadline::after(Duration::from_secs(10)));
    let (id, len) = (space.id_of(key), bytes.len() as u64);
    let reservation = space.memory().reserve(key, id, len, ClientId(1), soon, &|| true).unwrap().named();
    let target = reservation.address(0, len).unwrap();
    // SAFETY: the reservation is this test's own and long enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    reservation.seal(&BlockChecksum::new(id, len).range(0, bytes)).unwrap();
}

fn read(holdings: &Holdings, space: &Space, key: &[u8]) -> Option<Vec<u8>> {
    match holdings.read(&space.id_of(Key::new(key).unwrap()), None) {
        Reading::Here(hold) => Some(hold.bytes().to_vec()),
        _ => None,
    }
}

/// The file behind a descriptor.
fn file(descriptor: impl AsFd) -> (u64, u64) {
    let found = fstat(descriptor).unwrap();
    (found.st_dev, found.st_ino)
}

#[test]
fn a_key_is_another_block_in_another_space() {
    let dir = memory_dir();
    let (one, two) = (space(dir.path(), "one", [1; 16]), space(dir.path(), "two", [2; 16]));
    put(&one, b"k", b"of the first");
    assert_ne!(one.id_of(Key::new(b"k").unwrap()), two.id_of(Key::new(b"k").unwrap()));
    assert_eq!(read(two.holdings(), &two, b"k"), None);
    assert_eq!(read(two.holdings(), &one, b"k"), None, "the id of one space was found in the other");
    put(&two, b"k", b"of the second");
    assert_eq!(read(one.holdings(), &one, b"k").unwrap(), b"of the first");
    assert_eq!(read(two.holdings(), &two, b"k").unwrap(), b"of the second");
    assert_eq!(one.ids_of(&[b"k"]).unwrap(), [one.id_of(Key::new(b"k").unwrap())]);
    assert!(two.memory().remove(&two.id_of(Key::new(b"k").unwrap())));
    assert!(read(one.holdings(), &one, b"k").is_some());
}

/// A key is checked against its space's secret: one that was made for another space is damage.
#[test]
fn a_block_is_listed_under_the_key_that_its_own_space_made_its_id_from() {
    let dir = memory_dir();
    let one = space(dir.path(), "one", [1; 16]);
    put(&one, b"k", b"bytes");
    let hold = one.memory().peek(&one.id_of(Key::new(b"k").unwrap())).unwrap();
    assert_eq!(hold.key(), Some(&b"k"[..]));
}

#[test]
fn no_space_hands_out_descriptors_of_another_ones_files() {
    let dir = memory_dir();
    let spaces = [space(dir.path(), "one", [1; 16]), space(dir.path(), "two", [2; 16])];
    let files = spaces.each_ref().map(|space| {
        let descriptors = space.descriptors(true);
        let modes = descriptors.iter().map(|fd| fcntl_getfl(fd).unwrap() & OFlags::RWMODE).collect::<Vec<_>>();
        assert_eq!(modes, [OFlags::RDONLY, OFlags::RDONLY, OFlags::RDWR]);
        let files = descriptors.into_iter().map(file).collect::<Vec<_>>();
        assert_eq!(files[1], files[2], "the slab comes twice");
        let read_only = space.descriptors(false).into_iter().map(file).collect::<Vec<_>>();
        assert_eq!(read_only, files[..2]);
        files
    });
    assert!(files[0].iter().all(|file| !files[1].contains(file)), "one file is in both");
    // Who has mapped one space finds nothing of the other in it.
    put(&spaces[0], b"k", b"of the first");
    let id = spaces[0].id_of(Key::new(b"k").unwrap());
    let found = spaces.each_ref().map(|space| {
        let fds = space.descriptors(false).into_iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect::<Vec<_>>();
        Arc::new(Mapping::open(&fds[0], &fds[1], None).unwrap()).find(&id).is_some()
    });
    assert_eq!(found, [true, false]);
}
