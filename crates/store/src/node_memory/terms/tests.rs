//! Versions take each other's place, pins keep blocks, groups go together.

use super::*;
use crate::node_memory::tests::common::{id, put, reserve, sums};
use crate::node_memory::tests::memory;
use crate::node_memory::{NoRoom, Sealed};
use std::sync::Arc;

const PINNED: BlockTerms = BlockTerms { version: None, pin: Pin::Hard, group: None };

fn put_as(memory: &Arc<NodeMemory>, key: &[u8], bytes: &[u8], terms: BlockTerms) -> Result<Sealed, NoRoom> {
    let reservation = reserve(memory, key, bytes)?.with_terms(terms)?;
    Ok(reservation.seal(&sums(key, bytes)).expect("the checksums fit the block"))
}

fn version(version: u64) -> BlockTerms {
    BlockTerms { version: Some(Version(version)), ..BlockTerms::default() }
}

fn bytes_of(memory: &Arc<NodeMemory>, key: &[u8]) -> Option<u8> {
    memory.peek(&id(key)).map(|hold| hold.bytes()[0])
}

#[test]
fn the_highest_version_stays_whatever_the_order_of_seals() {
    let fixture = memory(1 << 20, 4096);
    let memory = &fixture.memory;
    put(memory, b"k", &[1; 10]).unwrap();
    assert!(matches!(put_as(memory, b"k", &[5; 20], version(5)), Ok(Sealed::New(_))));
    assert_eq!(bytes_of(memory, b"k"), Some(5), "any version is higher than none");
    assert!(matches!(put_as(memory, b"k", &[4; 20], version(4)), Ok(Sealed::Held(_))));
    assert!(matches!(put(memory, b"k", &[1; 10]), Ok(Sealed::Held(_))));
    assert_eq!(bytes_of(memory, b"k"), Some(5));
    assert!(matches!(put_as(memory, b"k", &[6; 20], version(6)), Ok(Sealed::New(_))));
    assert_eq!(bytes_of(memory, b"k"), Some(6));
    assert_eq!(memory.stats().blocks, 1);
    assert_eq!(memory.supersede(&id(b"k"), Version(6)), SupersedeOutcome::Kept(Version(6)));
    assert_eq!(memory.supersede(&id(b"k"), Version(7)), SupersedeOutcome::Removed);
    assert_eq!(memory.supersede(&id(b"k"), Version(7)), SupersedeOutcome::Absent);
    assert!(matches!(put_as(memory, b"k", &[1; 10], version(u64::MAX)), Ok(Sealed::New(_))));
    assert_eq!(memory.supersede(&id(b"k"), Version::NEVER), SupersedeOutcome::Removed, "whatever a writer made up");
    assert!(matches!(put_as(memory, b"k", &[1; 10], version(1)), Ok(Sealed::New(_))), "what is gone has no version");
}

#[test]
fn a_copy_that_was_on_its_way_when_its_block_was_removed_is_not_sealed() {
    let fixture = memory(1 << 20, 4096);
    let memory = &fixture.memory;
    let before = memory.stats();
    let incoming = |key: &[u8]| reserve(memory, key, &[1; 10]).unwrap().watched(Key::new(key).unwrap());
    let (one, two, other, later) = (incoming(b"one"), incoming(b"two"), incoming(b"other"), incoming(b"later"));
    drop(later);
    assert!(!memory.remove(&id(b"one")) && !memory.remove(&id(b"later")));
    assert_eq!(memory.supersede(&id(b"two"), Version(1)), SupersedeOutcome::Absent);
    for (key, void) in [(&b"one"[..], one), (b"two", two)] {
        assert!(matches!(void.seal(&sums(key, &[1; 10])), Ok(Sealed::Void)));
        assert_eq!(bytes_of(memory, key), None);
    }
    assert!(matches!(other.seal(&sums(b"other", &[1; 10])), Ok(Sealed::New(_))));
    let begun_after = incoming(b"one");
    assert!(matches!(begun_after.seal(&sums(b"one", &[1; 10])), Ok(Sealed::New(_))));
    assert!(memory.remove(&id(b"one")) && memory.remove(&id(b"other")));
    let (one, other) = (incoming(b"one"), incoming(b"other"));
    memory.void_matching(|key| key.starts_with(b"on"));
    assert!(matches!(one.seal(&sums(b"one", &[1; 10])), Ok(Sealed::Void)));
    assert!(matches!(other.seal(&sums(b"other", &[1; 10])), Ok(Sealed::New(_))));
    assert!(memory.remove(&id(b"other")));
    assert_eq!((memory.stats().reserved, memory.stats().free_bytes), (0, before.free_bytes));
}

#[test]
fn hard_pins_survive_everything_but_removal_and_have_half_of_the_pool() {
    let fixture = memory(1 << 20, 4096);
    let memory = &fixture.memory;
    let mut pinned = 0u32;
    while put_as(memory, &pinned.to_le_bytes(), &[1; 16 << 10], PINNED).is_ok() {
        pinned += 1;
    }
    assert!((28..=32).contains(&pinned), "{pinned}");
    for n in 1000..1200u32 {
        put(memory, &n.to_le_bytes(), &[2; 16 << 10]).expect("the other half is free for all");
        if n % 7 == 0 {
            drop(memory.hold(&id(&(n % pinned).to_le_bytes()), None).expect("pinned"));
        }
    }
    assert!((0..pinned).all(|n| memory.contains(&id(&n.to_le_bytes()))));
    assert_eq!(put_as(memory, b"more", &[1; 16 << 10], PINNED), Err(NoRoom::Full));
    assert!((0..pinned).all(|n| memory.remove(&id(&n.to_le_bytes()))));
    assert_eq!(memory.stats().pinned_bytes, 0);
    drop(reserve(memory, b"more", &[1; 10]).unwrap().with_terms(PINNED).unwrap());
    assert_eq!(memory.stats().pinned_bytes, 0);
}

#[test]
fn soft_pins_go_last_until_they_end() {
    let fixture = memory(1 << 20, 4096);
    let memory = &fixture.memory;
    let soft = |millis| BlockTerms { pin: Pin::Soft { millis }, ..BlockTerms::default() };
    for n in 0..16u32 {
        put_as(memory, &n.to_le_bytes(), &[1; 16 << 10], soft(3_600_000)).unwrap();
    }
    put_as(memory, b"short", &[1; 16 << 10], soft(0)).unwrap();
    let held = |n: u32| memory.contains(&id(&n.to_le_bytes()));
    for n in 100..300u32 {
        put(memory, &n.to_le_bytes(), &[2; 16 << 10]).unwrap();
    }
    assert!((0..16).all(held));
    assert!(!memory.contains(&id(b"short")), "its pin had ended");
    // A block that needs all of the pool.
    put(memory, b"all", &vec![3; 1000 << 10]).expect("soft pins are no walls");
    assert!((0..16).filter(|n| held(*n)).count() <= 1, "there is room for one beside it");
}

#[test]
fn the_others_of_an_evicted_blocks_group_are_the_next() {
    let fixture = memory(1 << 20, 4096);
    let memory = &fixture.memory;
    let group = |n: u64| BlockTerms { group: Some(BlockId::from_words([n, n])), ..BlockTerms::default() };
    let key = |n: u32| n.to_le_bytes();
    // Members of two groups take turns, so that plain order would mix them.
    for n in 0..40u32 {
        put_as(memory, &key(n), &[1; 16 << 10], group(u64::from(n % 2))).unwrap();
    }
    assert_eq!(memory.group_of(&id(&key(3))).len(), 20);
    let mut filler = 100u32;
    while memory.contains(&id(&key(0))) || (0..40).step_by(2).filter(|n| memory.contains(&id(&key(*n)))).count() > 10 {
        put(memory, &key(filler), &[2; 16 << 10]).unwrap();
        filler += 1;
    }
    assert!((1..40).step_by(2).all(|n| memory.contains(&id(&key(n)))), "the other group is whole");
    assert_eq!(memory.group_of(&id(&key(1))).len(), 20);
    assert!(memory.group_of(&id(&key(filler - 1))).is_empty());
}
