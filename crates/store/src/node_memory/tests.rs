//! What a pool promises its node, checked without sockets: the owner writes through its own mapping.

#[path = "../../tests/common/mod.rs"]
pub(super) mod common;

use super::*;
use crate::inventory::Inventory as _;
use crate::layout::{MAP_MARK, SLAB_MARK};
use crate::node_memory::reserve::{NoRoom, Sealed};
use crate::placed::Placed;
use crate::{Mapping, ShmTransport};
use common::{create, id, put, reserve, sums};
use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::ops::{Completion, Destination, Done, Failure, Op, ReadOp};
use tidepool_transfer::transport::Transport as _;
use tidepool_types::{ByteSize, ClientId, Deadline, Key, NodeName};

pub(crate) struct Fixture {
    _dir: tempfile::TempDir,
    pub(crate) memory: Arc<NodeMemory>,
}

pub(crate) fn memory(capacity: u64, block: u64) -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let memory = create(dir.path(), "n", Epoch(7), capacity, block);
    Fixture { _dir: dir, memory }
}

fn transport(memory: &NodeMemory, verify: bool) -> ShmTransport {
    let [map, slab] = memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
    let mapping = Mapping::open(&map, &slab, None).unwrap();
    ShmTransport::new(Arc::new(mapping), Arc::new(CopyPool::new(1)), verify)
}

fn get(transport: &mut ShmTransport, key: &[u8]) -> Result<Vec<u8>, Failure> {
    get_range(transport, key, 0, None)
}

fn get_range(transport: &mut ShmTransport, key: &[u8], offset: u64, len: Option<u64>) -> Result<Vec<u8>, Failure> {
    let read = ReadOp { offset, len, ..ReadOp::whole(3, id(key), Destination::Allocate) };
    // However busy the host is.
    let deadline = Deadline::after(Duration::from_secs(60));
    assert_eq!(transport.submit(vec![Op::Read(read)], deadline), [Ok(())]);
    let mut done = Vec::new();
    transport.poll(&mut done, deadline);
    match done.pop() {
        Some(Completion { token: 3, outcome: Ok(Done::Read { data: Some(data), .. }) }) => Ok(data),
        Some(Completion { outcome: Err(failure), .. }) => Err(failure),
        other => panic!("{other:?}"),
    }
}

/// Bytes that depend on the key and the length.
fn content(key: &[u8], len: usize) -> Vec<u8> {
    let seed = id(key).words()[0];
    (0..len as u64).map(|i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn config_in(dir: &tempfile::TempDir, capacity: u64, smallest_expected_block: u64) -> NodeMemoryConfig {
    NodeMemoryConfig {
        dir: dir.path().to_owned(),
        name: NodeName::new("n").unwrap(),
        secret: TenantSecret::DEFAULT,
        epoch: Epoch(1),
        capacity: ByteSize(capacity),
        smallest_expected_block: ByteSize(smallest_expected_block),
        eviction: Policy::default(),
        admission: Rule::default(),
    }
}

#[test]
fn a_sealed_block_is_read_back_through_the_map() {
    let fixture = memory(16 << 20, 4096);
    let mut reader = transport(&fixture.memory, true);
    for (key, len) in [(&b"a"[..], 1), (b"bb", 4096), (&[0xff; 1024], 131_073), (b"large", 3 << 20)] {
        let bytes = content(key, len);
        assert!(matches!(put(&fixture.memory, key, &bytes), Ok(Sealed::New(_))));
        assert_eq!(get(&mut reader, key), Ok(bytes.clone()), "{len}");
        let half = len as u64 / 2;
        assert_eq!(get_range(&mut reader, key, half, Some(len as u64 - half)).unwrap(), &bytes[half as usize..]);
        assert_eq!(fixture.memory.hold(&id(key), None).unwrap().key(), Some(key));
    }
    assert_eq!(get(&mut reader, b"absent"), Err(Failure::Miss));
    assert_eq!(get_range(&mut reader, b"bb", 4096, Some(1)), Err(Failure::BadRange { block_len: 4096 }));
}

#[test]
fn a_reservation_is_invisible_until_sealed_and_gives_its_space_back() {
    let fixture = memory(1 << 20, 4096);
    let before = fixture.memory.stats();
    let mut reader = transport(&fixture.memory, false);
    let reservation = reserve(&fixture.memory, b"k", &[1; 100]).unwrap();
    assert_eq!(get(&mut reader, b"k"), Err(Failure::Miss));
    assert_eq!(fixture.memory.stats().reserved, 1);
    drop(reservation);
    assert_eq!(fixture.memory.stats(), before);
}

#[test]
fn the_first_seal_wins() {
    let fixture = memory(1 << 20, 4096);
    let (first, second) = (content(b"k", 500), vec![9; 500]);
    let early = reserve(&fixture.memory, b"k", &second).unwrap();
    let Ok(Sealed::New(copy)) = put(&fixture.memory, b"k", &first) else { panic!("the key was free") };
    assert_eq!(early.seal(&sums(b"k", &second)).unwrap(), Sealed::Held(copy));
    assert_eq!(get(&mut transport(&fixture.memory, true), b"k"), Ok(first));
    assert_eq!(fixture.memory.stats().blocks, 1);
    assert_eq!(fixture.memory.stats().reserved, 0);
}

#[test]
fn eviction_takes_what_was_used_longest_ago() {
    let fixture = memory(64 << 10, 4096);
    let key = |n: u32| format!("key-{n}").into_bytes();
    (0..12).for_each(|n| {
        put(&fixture.memory, &key(n), &content(&key(n), 5000)).unwrap();
    });
    assert_eq!(fixture.memory.stats().evictions_total, 0);
    // Blocks 0..6 are used again, in three different ways; 6.. are now the coldest.
    let _ = fixture.memory.confirm(&[id(&key(0)), id(&key(1))]);
    (2..4).for_each(|n| drop(fixture.memory.hold(&id(&key(n)), None)));
    let names: Vec<_> = (4..6).map(|n| fixture.memory.hold_slot_name(&id(&key(n)))).collect();
    fixture.memory.touch(&names, &[]);
    (100..104).for_each(|n| {
        put(&fixture.memory, &key(n), &content(&key(n), 5000)).unwrap();
    });
    let held = |n: u32| fixture.memory.confirm(&[id(&key(n))])[0].is_some();
    assert!((0..6).all(held), "what was used stays");
    assert!((100..104).all(held), "what is new stays");
    assert_eq!(fixture.memory.stats().evictions_total, 4, "and no more than needed goes");
}

/// Confirm and Touch looked up to a million blocks up under the one lock of the pool, for which all others waited. They work
/// in steps now; the answers and the order of uses are those of one piece.
#[test]
fn a_message_of_many_blocks_is_answered_in_order_whatever_the_steps() {
    let fixture = memory(16 << 20, 4096);
    let keys: Vec<[u8; 4]> = (0..1500u32).map(u32::to_le_bytes).collect();
    for key in keys.iter().step_by(2) {
        put(&fixture.memory, key, &vec![1; 1 + usize::from(key[0])]).unwrap();
    }
    let ids: Vec<BlockId> = keys.iter().rev().map(|key| id(key)).collect();
    let found = fixture.memory.confirm(&ids);
    for (key, found) in keys.iter().rev().zip(&found) {
        let expected = (u32::from_le_bytes(*key) % 2 == 0).then_some(1 + u64::from(key[0]));
        assert_eq!(found.map(|(_, len)| len), expected);
    }
    let coldest = || {
        let mut inner = fixture.memory.inner.lock();
        let first = inner.order.victim(Duration::ZERO);
        let order = std::iter::successors(first, |&slot| inner.order.after(slot));
        order.map(|slot| inner.slots[slot as usize].generation).collect::<Vec<_>>()
    };
    let used: Vec<u64> = found.iter().flatten().map(|(copy, _)| copy.generation.0).collect();
    assert!(coldest().into_iter().rev().eq(used.iter().copied()), "the first one of what was confirmed is the warmest");
    let wanted: Vec<_> = ids.iter().map(|id| (*id, None)).collect();
    let held = fixture.memory.hold_all(&wanted);
    assert!(held.iter().zip(&found).all(|(held, found)| held.as_ref().map(Hold::copy) == found.map(|(copy, _)| copy)));
    let names: Vec<_> = held.into_iter().flatten().rev().map(|hold| hold.name()).collect();
    fixture.memory.touch(&names, &[]);
    assert!(coldest() == used, "and so is the first one of what was touched");
}

#[test]
fn a_held_block_outlives_eviction_and_removal() {
    let fixture = memory(1 << 20, 4096);
    let bytes = content(b"kept", 200_000);
    put(&fixture.memory, b"kept", &bytes).unwrap();
    let hold = fixture.memory.hold(&id(b"kept"), None).unwrap();
    for n in 0..40u32 {
        put(&fixture.memory, &n.to_le_bytes(), &content(&n.to_le_bytes(), 100_000)).unwrap();
    }
    assert_eq!(hold.bytes(), bytes);
    assert!(fixture.memory.remove(&id(b"kept")));
    assert!(fixture.memory.confirm(&[id(b"kept")])[0].is_none());
    for n in 0..40u32 {
        put(&fixture.memory, &(n + 100).to_le_bytes(), &content(&n.to_le_bytes(), 100_000)).unwrap();
    }
    assert_eq!(hold.bytes(), bytes);
    assert!(hold.is_intact());
}

#[test]
fn a_full_pool_of_held_blocks_says_no_space_and_recovers() {
    let fixture = memory(256 << 10, 4096);
    let keys: Vec<[u8; 4]> = (0..4u32).map(u32::to_le_bytes).collect();
    keys.iter().for_each(|key| {
        put(&fixture.memory, key, &[5; 50_000]).unwrap();
    });
    let holds: Vec<_> = keys.iter().map(|key| fixture.memory.hold(&id(key), None).unwrap()).collect();
    assert_eq!(put(&fixture.memory, b"more", &[6; 100_000]), Err(NoRoom::Full));
    assert_eq!(put(&fixture.memory, b"huge", &vec![6; 300_000]), Err(NoRoom::TooLarge));
    let late = std::thread::spawn({
        let memory = Arc::clone(&fixture.memory);
        move || {
            memory
                .reserve(
                    Key::new(b"waits").unwrap(),
                    id(b"waits"),
                    100_000,
                    ClientId(1),
                    Deadline::after(Duration::from_secs(20)),
                    &|| true,
                )
                .is_ok()
        }
    });
    drop(holds);
    assert!(late.join().unwrap(), "a writer that waits gets the space that is let go");
    assert!(put(&fixture.memory, b"more", &[6; 100_000]).is_ok());
}

#[test]
fn one_size_traffic_wastes_under_3_percent_whatever_the_size() {
    for len in [4096, 4096 + 17, 5000, 16_384 + 17, 32_768, 65_536 + 17, 131_072 + 17, 200_001, (1 << 20) + 17] {
        let capacity = 64 << 20;
        let fixture = memory(capacity, 4096);
        let bytes = vec![3; len as usize];
        let mut n = 0u32;
        while fixture.memory.stats().evictions_total < 10 {
            put(&fixture.memory, &n.to_le_bytes(), &bytes).unwrap();
            n += 1;
        }
        // The end of the pool holds no part of a block; that is no fault of the allocator's.
        let possible = capacity / len * len;
        let used = fixture.memory.stats().block_bytes;
        assert!(used * 100 >= possible * 97, "blocks of {len}: {used} of {possible} bytes used");
    }
}

#[test]
fn one_size_traffic_in_any_order_of_eviction_fills_the_pool() {
    // A free run at the end of the pool, a little too short for a block but in the same class, was the oldest of its class
    // for ever. Every run freed behind it was invisible: puts evicted dozens of blocks, then failed, and a quarter of the
    // pool lay idle. Now a put takes the very space that it freed.
    let (len, key_len) = (64u64 << 10, 400u64);
    let run = Placed::run_bytes(len, key_len);
    let capacity = 64 * run + len;
    let fixture = memory(capacity, 4096);
    let bytes = vec![3; len as usize];
    let key = |n: u64| [&n.to_le_bytes()[..], &vec![7; key_len as usize - 8]].concat();
    let mut random = 7u64;
    for n in 0..3000 {
        put(&fixture.memory, &key(n), &bytes).expect("there is always something to evict");
        // Uses in random order, so that victims are seldom neighbours.
        for _ in 0..8 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let _ = fixture.memory.confirm(&[id(&key(n - n.min(random >> 33 & 63)))]);
        }
    }
    let stats = fixture.memory.stats();
    assert!(stats.blocks >= 64, "{} blocks of {len} bytes in {capacity}", stats.blocks);
    assert_eq!(stats.evictions_total, 3000 - stats.blocks, "one block goes for one block that comes");
}

#[test]
fn the_pool_recovers_when_the_size_mix_changes() {
    let capacity = 32 << 20;
    let fixture = memory(capacity, 4096);
    let mut n = 0u32;
    for (len, rounds) in
        [(4096u64, 9000), (1 << 20, 60), (70_000, 900), (4096 + 17, 9000), (8 << 20, 12), (30_000, 2000)]
    {
        let bytes = vec![3; len as usize];
        for _ in 0..rounds {
            put(&fixture.memory, &n.to_le_bytes(), &bytes).unwrap();
            n += 1;
        }
        let used = fixture.memory.stats().block_bytes;
        let possible = capacity * 97 / 100 / len * len;
        assert!(used * 100 >= possible * 90, "after {rounds} blocks of {len}: {used} of {possible} bytes used");
    }
}

#[test]
fn a_damaged_block_is_found_quarantined_and_never_used_again() {
    let fixture = memory(1 << 20, 4096);
    put(&fixture.memory, b"bad", &content(b"bad", 300_000)).unwrap();
    put(&fixture.memory, b"good", &content(b"good", 300_000)).unwrap();
    let Some((copy, _)) = fixture.memory.confirm(&[id(b"bad")])[0] else { panic!("just put") };
    let offset = fixture.memory.hold(&id(b"bad"), None).unwrap().offset();
    // SAFETY: the slab is mapped writable in this process; the test damages a byte of its own block.
    unsafe { *fixture.memory.slab.at(offset + 200_000, 1).unwrap() ^= 4 };
    assert_eq!(get(&mut transport(&fixture.memory, true), b"bad"), Err(Failure::Corrupt(copy)));
    assert!(fixture.memory.verify(&id(b"bad"), copy));
    assert!(!fixture.memory.verify(&id(b"good"), copy), "another copy is not touched");
    assert_eq!(get(&mut transport(&fixture.memory, false), b"bad"), Err(Failure::Miss));
    assert_eq!(get(&mut transport(&fixture.memory, true), b"good"), Ok(content(b"good", 300_000)));
    assert_eq!(fixture.memory.stats().damaged_total, 1);
    assert!(fixture.memory.stats().damaged_bytes > 0);
    for n in 0..40u32 {
        let _ = put(&fixture.memory, &n.to_le_bytes(), &[1; 100_000]);
    }
    assert!(put(&fixture.memory, b"whole pool", &[1; 900_000]).is_err(), "the damaged space is out of use");
}

/// Damage found in a block that had been removed while it was still held went uncounted, and its space was used again. Now the
/// bad memory is out of use whatever had become of the block.
#[test]
fn damage_in_a_block_that_was_removed_while_held_keeps_its_space_out_of_use() {
    let fixture = memory(1 << 20, 4096);
    put(&fixture.memory, b"bad", &content(b"bad", 300_000)).unwrap();
    let holds = [fixture.memory.hold(&id(b"bad"), None).unwrap(), fixture.memory.hold(&id(b"bad"), None).unwrap()];
    assert!(fixture.memory.remove(&id(b"bad")));
    // SAFETY: the slab is mapped writable in this process; the test damages a byte of its own block.
    unsafe { *fixture.memory.slab.at(holds[0].offset() + 200_000, 1).unwrap() ^= 4 };
    assert!(holds.iter().all(Hold::quarantine_if_damaged));
    drop(holds);
    let stats = fixture.memory.stats();
    assert_eq!((stats.damaged_total, stats.damaged_bytes, stats.holds), (1, 300_000, 0), "counted once");
    assert!(stats.free_bytes < fixture.memory.capacity() - 300_000);
    assert!(put(&fixture.memory, b"whole pool", &[1; 900_000]).is_err(), "the damaged space is out of use");
}

#[test]
fn the_journal_and_the_pages_tell_what_is_held() {
    let fixture = memory(256 << 10, 4096);
    let holdings = Holdings::of(Arc::clone(&fixture.memory));
    let mut told: HashMap<BlockId, ()> = HashMap::new();
    let mut after = 0;
    for n in 0..300u32 {
        put(&fixture.memory, &(n % 90).to_le_bytes(), &vec![1; 1000 + (n as usize * 37) % 9000]).unwrap();
        if n % 7 == 0 {
            fixture.memory.remove(&id(&((n / 2) % 90).to_le_bytes()));
        }
    }
    let mut changes = Vec::new();
    while after < holdings.latest() {
        changes.clear();
        holdings.changes(after, 50, &mut changes).unwrap();
        after += changes.len() as u64;
        for change in &changes {
            match change {
                Change::Added(id, _) => assert!(told.insert(*id, ()).is_none(), "added twice"),
                Change::Removed(id) => assert!(told.remove(id).is_some(), "removed twice"),
            }
        }
    }
    let (mut paged, mut cursor) = (Vec::new(), Some(0));
    while let Some(at) = cursor {
        let end = holdings.page(at, 13, &mut paged);
        assert_eq!(end.as_of, holdings.latest());
        cursor = end.next;
    }
    assert_eq!(paged.len() as u64, fixture.memory.stats().blocks);
    assert!(paged.iter().all(|(id, _)| told.contains_key(id)) && paged.len() == told.len());
}

#[test]
fn too_little_shared_memory_is_an_error_that_names_the_mount() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = config_in(&dir, 1 << 44, 1 << 20);
    let error = NodeMemory::create(&config).unwrap_err().to_string();
    assert!(error.contains("16TiB") && error.contains("/dev/shm") && error.contains("free"), "{error}");
    assert!(
        std::fs::read_dir(dir.path()).unwrap().next().is_none_or(|entry| entry.unwrap().path().ends_with("n.lock"))
    );
}

/// Two nodes that started at once where one had room both failed with a bare "no space left on device", for the free space is
/// looked at before it is taken. Now that says what the mount had and what is needed, too.
#[test]
fn space_that_goes_while_a_pool_allocates_is_an_error_that_names_the_mount() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=96m", "none"])
        .arg(dir.path())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("SKIPPED: mounting a file system takes root");
        return;
    }
    let config = config_in(&dir, 80 << 20, 1 << 20);
    let rival = dir.path().join("rival");
    // Asked for the first time when the free space has been looked at: the other node takes its share.
    let go_on = || rival.exists() || std::fs::write(&rival, vec![1; 64 << 20]).is_ok();
    let late = NodeMemory::create_while(&config, &go_on).unwrap_err();
    // And if not even a mark has room.
    let mut rest = std::fs::OpenOptions::new().append(true).open(&rival).unwrap();
    while rest.write(&[1; 4096]).is_ok() {}
    let full = NodeMemory::create(&config).unwrap_err();
    let left = names(dir.path());
    drop(rest);
    let unmounted = std::process::Command::new("umount").arg(dir.path()).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(left, ["rival"]);
    for error in [late, full] {
        let OpenError::TooLittleMemory { available, needed, .. } = &error else { panic!("{error}") };
        assert!(available.0 <= 32 << 20 && *needed > *available, "{error}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    }
}

/// A mount without inodes was said to have too little memory, and nobody could see why: it had plenty.
#[test]
fn a_mount_without_inodes_is_not_said_to_be_out_of_memory() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mount = |program: &str, args: &[&str]| {
        std::process::Command::new(program).args(args).arg(dir.path()).status().is_ok_and(|status| status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=96m,nr_inodes=3", "none"]) {
        eprintln!("SKIPPED: mounting a file system takes root");
        return;
    }
    (0..2).for_each(|n| std::fs::write(dir.path().join(n.to_string()), b"").unwrap());
    let config = config_in(&dir, 1 << 20, 4096);
    let error = NodeMemory::create(&config).map(drop).unwrap_err();
    assert!(mount("umount", &[]));
    assert!(matches!(error, OpenError::NoInodes { .. }), "{error}");
}

#[test]
fn a_second_owner_of_the_same_name_is_refused_and_leftovers_are_removed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = config_in(&dir, 1 << 20, 4096);
    // What killed nodes leave: marked files, a socket, and a lock that nobody holds. One was killed while it allocated.
    let _sockets = ["n", "gone"].map(|name| {
        std::fs::write(dir.path().join(format!("{name}.lock")), marked::LOCK).unwrap();
        std::fs::write(dir.path().join(format!("{name}.map")), [&MAP_MARK[..], &[0; 5000]].concat()).unwrap();
        std::fs::write(dir.path().join(format!("{name}.slab")), SLAB_MARK).unwrap();
        UnixListener::bind(dir.path().join(format!("{name}.sock"))).unwrap()
    });
    let memory = NodeMemory::create(&config).unwrap();
    assert!(matches!(NodeMemory::create(&config), Err(OpenError::InUse { .. })));
    assert_eq!(names(dir.path()), ["n.lock", "n.map", "n.slab"]);
    put(&memory, b"k", b"bytes").unwrap();
    drop(memory);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a clean end leaves nothing");
}

/// A node that started took every unlocked `*.lock` in its directory for that of a dead node, and deleted it with all that
/// had the same stem; what had the names of its own files went too. In a shared directory that was other programs' data. Now
/// only files that bear a mark go, and a foreign one is an error if it is in the way.
#[test]
fn other_programs_files_are_never_removed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = config_in(&dir, 1 << 20, 4096);
    let bystanders = ["cargo.lock", "cargo.map", "cargo.sock", "empty.lock", "gone.map", "gone.sock", "n.txt"];
    for name in bystanders {
        std::fs::write(dir.path().join(name), if name == "empty.lock" { "" } else { "theirs" }).unwrap();
    }
    // A dead node's lock says nothing about what else has its stem.
    std::fs::write(dir.path().join("gone.lock"), marked::LOCK).unwrap();
    drop(NodeMemory::create(&config).unwrap());
    assert_eq!(names(dir.path()), bystanders);

    for name in ["n.lock", "n.map", "n.slab"] {
        let path = dir.path().join(name);
        let refused = || match NodeMemory::create(&config) {
            Err(OpenError::Foreign { path: named }) => assert_eq!(named, path),
            other => panic!("{name}: {other:?}"),
        };
        for content in [&b""[..], b"theirs", b"theirs, and longer than a mark"] {
            std::fs::write(&path, content).unwrap();
            refused();
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("n.txt"), &path).unwrap();
        refused();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused();
        std::fs::remove_dir(&path).unwrap();
        assert_eq!(names(dir.path()), bystanders);
    }
}

fn names(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn a_pool_that_is_no_longer_wanted_is_given_up_at_any_point_and_leaves_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = config_in(&dir, 130 << 20, 1 << 20);
    let mut patience = 0;
    loop {
        let asked = std::cell::Cell::new(0);
        let go_on = || asked.replace(asked.get() + 1) < patience;
        match NodeMemory::create_while(&config, &go_on) {
            Err(OpenError::Stopped) => assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{patience}"),
            // Before each of four steps of allocation and after either file; how often while memory is touched hangs on how
            // much of that other threads do.
            other => break assert!(other.is_ok() && patience >= 6, "{patience}: {:?}", other.err()),
        }
        patience += 1;
    }
}

#[test]
fn a_slab_of_another_version_is_refused() {
    let fixture = memory(1 << 20, 4096);
    let open = || {
        let [map, slab] = fixture.memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
        Mapping::open(&map, &slab, None).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(open(), Ok(()));
    fixture.memory.slab.words()[1].store(2, crate::sync::Ordering::Relaxed);
    assert_eq!(open().unwrap_err(), "the slab has format version 2: this build reads version 1");
    fixture.memory.slab.words()[1].store(1, crate::sync::Ordering::Relaxed);
    fixture.memory.map.words()[3].store(u64::MAX, crate::sync::Ordering::Relaxed);
    assert!(open().is_err(), "a slot count that does not fit the file");
}

impl NodeMemory {
    fn hold_slot_name(self: &Arc<Self>, id: &BlockId) -> tidepool_wire::message::SlotName {
        self.hold(id, None).expect("the block is there").name()
    }
}
