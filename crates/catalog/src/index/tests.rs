use super::segment::{Entry, Mixed, Segment};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;

const TIERS: [Tier; 3] = [Tier::Dram, Tier::Disk, Tier::Object];

fn raw(n: u64) -> Raw {
    *BlockId::from_words([n, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).as_bytes()
}

/// The same in an index where it lies close to others: few segments have them all, at few homes.
fn close(index: &Index, n: u64) -> Raw {
    let (segment, home) = (n % 3, n / 3 % 5 * 3);
    let hash = segment << (64 - SEGMENT_BITS) | home << (60 - SEGMENT_BITS) | n; // in sixteenths of a segment
    *BlockId::from_words(index.hasher.unmix(Mixed { hash, word: n })).as_bytes()
}

fn index_with_live(slots: std::ops::Range<usize>) -> Index {
    let index = Index::default();
    slots.for_each(|slot| index.live().insert(StreamSlot::new(slot)));
    index
}

fn check(index: &Index) {
    index.shards.iter().for_each(|shard| shard.read().check());
}

fn sweep(index: &Index, slot: StreamSlot) {
    (0..Index::STEPS).for_each(|step| index.sweep(step, |s| s == slot));
}

#[derive(Debug, Clone)]
enum Op {
    Add(Vec<u64>, usize, usize),
    Remove(Vec<u64>, usize),
    Sweep(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let ids = || prop::collection::vec(0u64..300, 1..80);
    let op = prop_oneof![
        4 => (ids(), 0usize..12, 0usize..3).prop_map(|(ids, slot, tier)| Op::Add(ids, slot, tier)),
        3 => (ids(), 0usize..12).prop_map(|(ids, slot)| Op::Remove(ids, slot)),
        1 => (0usize..12).prop_map(Op::Sweep),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// The naive twin: a map of maps.
    #[test]
    fn the_index_answers_like_a_map_of_maps(ops in ops(), is_close: bool) {
        let index = index_with_live(0..12);
        let raw = |n| if is_close { close(&index, n) } else { raw(n) };
        // Of few streams, most blocks have one alone, and go with it.
        let slot_of = |slot| StreamSlot::new(if is_close { slot % 2 } else { slot });
        let mut model: HashMap<u64, BTreeMap<StreamSlot, Tier>> = HashMap::new();
        for op in ops {
            match op {
                Op::Add(ids, slot, tier) => {
                    let raws: Vec<_> = ids.iter().map(|id| raw(*id)).collect();
                    index.apply(slot_of(slot), &raws, |_| Some(TIERS[tier]));
                    for id in ids {
                        model.entry(id).or_default().insert(slot_of(slot), TIERS[tier]);
                    }
                }
                Op::Remove(ids, slot) => {
                    let raws: Vec<_> = ids.iter().map(|id| raw(*id)).collect();
                    index.apply(slot_of(slot), &raws, |_| None);
                    for id in ids {
                        model.entry(id).or_default().remove(&slot_of(slot));
                    }
                }
                Op::Sweep(slot) => {
                    sweep(&index, slot_of(slot));
                    model.values_mut().for_each(|holders| { holders.remove(&slot_of(slot)); });
                }
            }
            model.retain(|_, holders| !holders.is_empty());
            prop_assert_eq!(index.blocks(), model.len() as u64);
        }
        check(&index);
        let mut seen: HashMap<Raw, BTreeMap<StreamSlot, Tier>> = HashMap::new();
        let ids = (0..Index::STEPS).map(|step| index.look_through(step, |id, holder| {
            seen.entry(*id.as_bytes()).or_default().insert(holder.slot, holder.tier);
        }));
        prop_assert_eq!(ids.sum::<usize>(), model.len());
        let by_id: HashMap<Raw, _> = model.iter().map(|(id, holders)| (raw(*id), holders.clone())).collect();
        prop_assert_eq!(seen, by_id, "a walk through the table sees every holder");
        for id in 0..300 {
            let found: BTreeMap<_, _> =
                index.holders(BlockId::from_bytes(raw(id))).into_iter().map(|h| (h.slot, h.tier)).collect();
            prop_assert_eq!(&found, &model.get(&id).cloned().unwrap_or_default());
            prop_assert_eq!(index.fetch(&[raw(id)])[0].is_nothing(), found.is_empty());
        }
    }
}

/// A sweep left the ids of what it took out in their places. A search walks past a lower id, so what came next lay behind an
/// empty place; once that place had been used and left again, it was not found any more: a miss, and a second entry when it
/// was announced again. Now a sweep leaves places as they were before they were used.
#[test]
fn what_comes_after_a_sweep_is_found_until_it_is_removed() {
    let (swept, kept) = (StreamSlot::new(1), StreamSlot::new(2));
    let id = |hash| Mixed { hash, word: hash };
    let entry = |hash, slot| {
        let mut entry = Entry { id: id(hash), ..Entry::EMPTY };
        entry.holders[0] = Packed::new(Holder { slot, tier: Tier::Dram });
        entry
    };
    let mut segment = Segment::new(Arc::default());
    // In the middle of the segment, all with the same home; a sweep packs what is left to the front and spreads it out again.
    let middle = 1 << (63 - SEGMENT_BITS);
    for (hash, slot) in [(middle + 5, swept), (middle + 6, swept), (0, kept)] {
        segment.insert(entry(hash, slot));
    }
    segment.sweep(|entry| {
        entry.strip(|slot| slot == swept);
    });
    segment.insert(entry(middle + 7, kept));
    segment.insert(entry(middle + 3, kept));
    assert!(segment.change(id(middle + 3), |entry| entry.holders = Entry::EMPTY.holders));
    assert_eq!(segment.get(id(middle + 7)), Some(&entry(middle + 7, kept)));
    segment.check();
}

#[test]
fn a_large_table_keeps_every_entry_while_it_grows_and_gives_memory_back_when_it_shrinks() {
    let index = index_with_live(0..4);
    let ids: Vec<_> = (0..400_000).map(raw).collect();
    for (n, part) in ids.chunks(5_000).enumerate() {
        index.apply(StreamSlot::new(n % 4), part, |_| Some(Tier::Dram));
    }
    check(&index);
    assert_eq!(index.blocks(), 400_000);
    assert!(index.fetch(&ids).iter().all(|found| found.inline().count() == 1));
    let absent: Vec<_> = (400_000..500_000).map(raw).collect();
    assert!(index.fetch(&absent).iter().all(Found::is_nothing));
    for slot in 0..4 {
        sweep(&index, StreamSlot::new(slot));
        check(&index);
    }
    assert_eq!(index.blocks(), 0);
    let empty = |shard: &RwLock<Shard>| shard.read().segments.iter().all(Segment::is_bare);
    assert!(index.shards.iter().all(empty), "an empty table holds no chunks");
}

#[test]
fn a_block_has_as_many_holders_as_there_are_streams() {
    let index = index_with_live(0..1000);
    for slot in 0..1000 {
        index.apply(StreamSlot::new(slot), &[raw(7)], |_| Some(Tier::Dram));
    }
    assert!(index.fetch(&[raw(7)])[0].has_more());
    let slots: BTreeSet<_> = index.holders(BlockId::from_bytes(raw(7))).iter().map(|h| h.slot.index()).collect();
    assert_eq!(slots, (0..1000).collect());
    for slot in 2..1000 {
        index.apply(StreamSlot::new(slot), &[raw(7)], |_| None);
    }
    assert!(!index.fetch(&[raw(7)])[0].has_more());
    assert_eq!(index.fetch(&[raw(7)])[0].inline().count(), 2);
}

#[test]
fn the_order_of_a_batch_decides_when_it_names_an_id_twice() {
    let index = index_with_live(0..1);
    let slot = StreamSlot::new(0);
    index.apply(slot, &[raw(1), raw(1)], |n| (n == 0).then_some(Tier::Dram));
    assert!(index.fetch(&[raw(1)])[0].is_nothing());
    index.apply(slot, &[raw(1), raw(1)], |n| (n == 1).then_some(Tier::Disk));
    assert_eq!(index.holders(BlockId::from_bytes(raw(1))), [Holder { slot, tier: Tier::Disk }]);
}

#[test]
fn places_of_streams_that_are_no_longer_live_are_used_again() {
    let index = index_with_live(0..0);
    for slot in 0..100 {
        index.live().insert(StreamSlot::new(slot));
        index.apply(StreamSlot::new(slot), &[raw(1)], |_| Some(Tier::Dram));
        index.live().remove(StreamSlot::new(slot));
    }
    assert!(!index.fetch(&[raw(1)])[0].has_more(), "a stream that reconnects before sweeps finish costs no memory");
}

#[test]
fn look_ups_go_on_while_a_sweep_and_a_load_run() {
    let index = index_with_live(0..3);
    let kept: Vec<_> = (0..50_000).map(raw).collect();
    let swept: Vec<_> = (50_000..150_000).map(raw).collect();
    index.apply(StreamSlot::new(0), &kept, |_| Some(Tier::Dram));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                index.apply(StreamSlot::new(1), &swept, |_| Some(Tier::Dram));
                sweep(&index, StreamSlot::new(1));
            }
        });
        for _ in 0..200 {
            assert!(index.fetch(&kept[..5_000]).iter().all(|found| !found.is_nothing()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(&index);
}

/// Groups that are looked at ahead may be somebody else's at that moment.
#[test]
fn streams_that_change_the_same_blocks_at_once_leave_what_each_said_last() {
    const STREAMS: usize = 4;
    let index = index_with_live(0..STREAMS);
    let ids: Vec<Raw> = (0..2000).map(raw).collect();
    std::thread::scope(|scope| {
        for slot in 0..STREAMS {
            let (index, ids) = (&index, &ids);
            scope.spawn(move || {
                let slot = StreamSlot::new(slot);
                for round in 0..40 {
                    for some in ids.chunks(128) {
                        index.apply(slot, some, |_| (round % 2 == 0).then_some(Tier::Dram));
                    }
                }
                // Each holds its own part in the end.
                index.apply(slot, &ids[slot.index() * 500..][..500], |_| Some(Tier::Disk));
            });
        }
    });
    check(&index);
    assert_eq!(index.blocks(), 2000);
    for (n, found) in index.fetch(&ids).iter().enumerate() {
        let expected = Holder { slot: StreamSlot::new(n / 500), tier: Tier::Disk };
        assert_eq!(found.inline().collect::<Vec<_>>(), [expected], "block {n}");
    }
}
