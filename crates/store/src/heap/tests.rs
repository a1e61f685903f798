//! The heap against a naive map of bytes, and the waste it may make.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Every byte of the slab is in exactly one run, runs are in order, and free neighbours have merged.
fn check(heap: &Heap, used: &BTreeMap<u64, (u64, RunId)>, bytes: u64) {
    let first = (0..heap.runs.len() as u32)
        .find(|run| !heap.spare.contains(run) && heap.runs[*run as usize].before == NONE)
        .expect("a heap has a first run");
    assert_eq!(heap.first(), heap.describe(first));
    let (mut at, mut run, mut free, mut was_free) = (0, first, 0, false);
    while run != NONE {
        let this = heap.runs[run as usize];
        assert_eq!(this.start, at);
        at += this.len;
        if this.user == NONE {
            assert!(!was_free, "free neighbours have merged");
            free += this.len;
        } else {
            assert!(used.contains_key(&(this.start * GRANULE)), "only what was taken is in use");
        }
        was_free = this.user == NONE;
        run = this.after;
    }
    assert_eq!(at, bytes / GRANULE);
    assert_eq!(free, heap.free_granules);
}

proptest! {
    #[test]
    fn runs_never_overlap_and_all_space_comes_back(
        operations in prop::collection::vec((any::<bool>(), 1..5000u64, 0..4u32, any::<prop::sample::Index>()), 1..150),
    ) {
        let bytes = 64 << 10;
        let (mut heap, mut used) = (Heap::new(bytes), BTreeMap::<u64, (u64, RunId)>::new());
        for (take, len, align, pick) in operations {
            if take {
                let align = GRANULE << (align * 2);
                if let Some((run, at)) = heap.take(len, align, 7) {
                    prop_assert_eq!(at % align, 0);
                    prop_assert!(at + len <= bytes);
                    let before = used.range(..at).next_back().map_or(0, |(start, (len, _))| start + len);
                    prop_assert!(before <= at, "overlaps the run before");
                    let after = used.range(at..).next().map_or(bytes, |(start, _)| *start);
                    prop_assert!(at + len <= after, "overlaps the run after");
                    used.insert(at, (len, run));
                }
            } else if !used.is_empty() {
                let at = *pick.get(&used.keys().copied().collect::<Vec<_>>());
                let (_, run) = used.remove(&at).unwrap();
                heap.give_back(run);
            }
            check(&heap, &used, bytes);
        }
        for (_, (_, run)) in std::mem::take(&mut used) {
            heap.give_back(run);
        }
        check(&heap, &used, bytes);
        prop_assert!(heap.take(bytes, GRANULE, 1).is_some(), "all space is one run again");
    }
}
