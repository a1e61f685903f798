//! Memory and a scripted tier below it: what eviction asks, what the journal says of moves, and the walk ahead of eviction.

use super::*;
use crate::node_memory::tests::common::{WRITER, config, id, put, sums};
use crate::node_memory::{Hold, NoRoom, Sealed, Slot};
use crate::placed::Placed;
use crate::tier::Evicting;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{OnceLock, Weak};
use tidepool_locks::Mutex;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_types::{CopyName, Deadline, Epoch, Generation, Version};
use tidepool_wire::message::{Pin, SupersedeOutcome};

/// Bytes of every block: with its key and checksum it takes a page.
const BLOCK: usize = 4080;

/// A tier that has what a test says.
#[derive(Default)]
struct Scripted {
    has: Mutex<BTreeMap<BlockId, Place>>,
    busy: Mutex<BTreeSet<BlockId>>,
    /// Whom eviction asked about.
    asked: Mutex<Vec<BlockId>>,
    memory: OnceLock<Weak<NodeMemory>>,
}

impl SlowerTier for Scripted {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn find(&self, id: &BlockId) -> Option<Place> {
        self.has.lock().get(id).copied()
    }

    fn remove(&self, id: &BlockId) -> bool {
        self.has.lock().remove(id).is_some()
    }

    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Place)>) -> Option<u64> {
        let has = self.has.lock();
        let mut rest = has.iter().skip(cursor as usize);
        out.extend(rest.by_ref().take(max).map(|(id, place)| (*id, *place)));
        rest.next().map(|_| cursor + max as u64)
    }

    fn evicting(&self, id: &BlockId) -> Evicting {
        let memory = self.memory.get().and_then(Weak::upgrade).expect("made with the fixture");
        assert!(memory.inner.try_lock().is_none(), "asked under the lock");
        self.asked.lock().push(*id);
        match self.find(id) {
            _ if self.busy.lock().contains(id) => Evicting::Busy,
            Some(_) => Evicting::Moved,
            None => Evicting::Go,
        }
    }
}

struct Fixture {
    _dir: tempfile::TempDir,
    holdings: Holdings,
    tier: Arc<Scripted>,
}

/// A memory for so many blocks.
fn fixture(blocks: u64) -> Fixture {
    fixture_with(blocks, Policy::default())
}

fn fixture_with(blocks: u64, policy: Policy) -> Fixture {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let page = Placed::run_bytes(BLOCK as u64, 4);
    let config = config(dir.path(), "n", Epoch(1), (blocks * page, page / 2), (policy, Rule::default()));
    let tier = Arc::new(Scripted::default());
    let holdings = Holdings::create(&config, vec![Arc::clone(&tier) as _], &|| true).unwrap();
    assert!(tier.memory.set(Arc::downgrade(holdings.memory())).is_ok());
    Fixture { _dir: dir, holdings, tier }
}

fn key(block: u32) -> [u8; 4] {
    block.to_le_bytes()
}

fn name(block: u32) -> BlockId {
    id(&key(block))
}

impl Fixture {
    fn memory(&self) -> &Arc<NodeMemory> {
        &self.holdings.memory
    }

    fn put(&self, blocks: impl IntoIterator<Item = u32>) {
        for block in blocks {
            assert!(matches!(put(self.memory(), &key(block), &[1; BLOCK]), Ok(Sealed::New(_))));
        }
    }

    fn put_version(&self, block: u32, version: Option<u64>) -> Sealed {
        let (key, bytes) = (key(block), [1; BLOCK]);
        let terms = BlockTerms { version: version.map(Version), pin: Pin::None, group: None };
        let reservation = self.reserve_at_once(block).unwrap().with_terms(terms).unwrap();
        reservation.seal(&sums(&key, &bytes)).expect("the checksums fit the block")
    }

    /// A reservation that waits for nothing. Its bytes are whatever was there.
    fn reserve_at_once(&self, block: u32) -> Result<Reservation, NoRoom> {
        let key = key(block);
        let now = Deadline::after(Duration::ZERO);
        let key = Key::new(&key).unwrap();
        Ok(self.memory().reserve(key, name(block), BLOCK as u64, WRITER, now, &|| true)?.named())
    }

    /// The tier has the block from now on.
    fn spill(&self, block: u32) {
        let hold = self.memory().peek(&name(block)).unwrap();
        let note = |place: Place| self.tier.has.lock().insert(name(block), Place { tier: Tier::Disk, ..place });
        assert!(self.holdings.commit(|commit| commit.spilled(&hold, |place| assert!(note(place).is_none()))));
    }

    /// The tier lets the block go.
    fn forget(&self, block: u32) -> bool {
        self.holdings.commit(|commit| commit.change(&name(block), || self.tier.remove(&name(block))))
    }

    fn changes_since(&self, before: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        self.holdings.changes(before, usize::MAX, &mut changes).unwrap();
        changes
    }
}

#[test]
fn a_block_costs_no_byte_more_where_there_is_no_slower_tier() {
    assert_eq!(size_of::<Slot>(), 48, "what the owner keeps of each slot, beside 64 bytes of header and 16 of index");
}

#[test]
fn eviction_asks_the_tiers_under_the_lock_and_never_waits() {
    let fixture = fixture(4);
    fixture.put(0..4);
    fixture.spill(1);
    fixture.tier.busy.lock().extend([name(0), name(2)]);
    fixture.tier.asked.lock().clear();
    let before = fixture.holdings.latest();
    drop(fixture.reserve_at_once(10).unwrap());
    assert_eq!(*fixture.tier.asked.lock(), [name(0), name(1)], "in the order of eviction, as far as needed");
    assert_eq!(fixture.changes_since(before), [Change::Added(name(1), Tier::Disk)], "moved");

    // The space of 1 is free again.
    fixture.put([1]);
    let before = fixture.holdings.latest();
    let _taken = fixture.reserve_at_once(10).unwrap();
    assert_eq!(fixture.changes_since(before), [Change::Removed(name(3))], "gone: the tier has no copy of it");
    let present = |block: u32| fixture.memory().contains(&name(block));
    assert!(present(0) && present(2), "those that the tier is about to have were passed over");

    // A tier that wants every block to stay keeps no put waiting.
    fixture.tier.busy.lock().extend((0..100).map(name));
    let before = fixture.holdings.latest();
    let _taken_too = fixture.reserve_at_once(11).expect("room without waiting");
    assert_eq!(fixture.changes_since(before), [Change::Removed(name(0))], "then the coldest one goes");
}

#[test]
fn a_tier_that_is_busy_with_very_many_blocks_is_asked_about_a_bounded_number() {
    let blocks = 1000;
    let fixture = fixture(u64::from(blocks));
    fixture.put(0..blocks);
    fixture.tier.busy.lock().extend((0..blocks).map(name));
    fixture.tier.asked.lock().clear();
    let _taken = fixture.reserve_at_once(blocks).expect("room without waiting");
    let asked = fixture.tier.asked.lock().len();
    assert!((1..=300).contains(&asked), "{asked}");
    assert_eq!(fixture.memory().stats().evictions_total, 1);
}

#[test]
fn a_move_between_tiers_is_one_change() {
    let fixture = fixture(2);
    let step = |what: &str, expected: &[Change], step: &dyn Fn()| {
        let before = fixture.holdings.latest();
        step();
        assert_eq!(fixture.changes_since(before), expected, "{what}");
    };
    let (dram, disk) = (Change::Added(name(0), Tier::Dram), Change::Added(name(0), Tier::Disk));
    let gone = Change::Removed(name(0));
    let added = |block| Change::Added(name(block), Tier::Dram);
    step("put", &[dram], &|| fixture.put([0]));
    step("spilled", &[], &|| fixture.spill(0));
    step("dropped by the slower tier", &[], &|| assert!(fixture.forget(0)));
    step("spilled once more", &[], &|| fixture.spill(0));
    step("another one", &[added(1)], &|| fixture.put([1]));
    step("evicted", &[disk, added(2)], &|| fixture.put([2]));
    step("promoted", &[Change::Removed(name(1)), dram], &|| {
        let place = fixture.tier.find(&name(0)).unwrap();
        let reservation = fixture.reserve_at_once(0).unwrap();
        let promoted = fixture.holdings.promote(reservation, Key::new(&key(0)).unwrap(), &place).unwrap();
        assert!(matches!(fixture.holdings.read(&name(0), None), Reading::BeingWritten));
        assert!(matches!(promoted.seal(&sums(&key(0), &[1; BLOCK])), Ok(Sealed::New(_))));
    });
    step("removed from both tiers", &[gone], &|| assert!(fixture.memory().remove(&name(0))));
    assert!(fixture.tier.find(&name(0)).is_none());

    step("put again", &[dram], &|| fixture.put([0]));
    fixture.spill(0);
    step("evicted again", &[Change::Removed(name(2)), added(3), disk, added(4)], &|| fixture.put(3..5));
    step("dropped by the last tier", &[gone], &|| assert!(fixture.forget(0)));
    assert!(!fixture.memory().remove(&name(0)));
}

#[test]
fn a_block_that_is_damaged_in_memory_is_in_the_slower_tier() {
    let fixture = fixture(2);
    fixture.put([0]);
    fixture.spill(0);
    let before = fixture.holdings.latest();
    let hold = fixture.memory().peek(&name(0)).unwrap();
    // SAFETY: the slab is mapped writable in this process; the test damages a byte of its own block.
    unsafe { *fixture.memory().slab.at(hold.offset(), 1).unwrap() ^= 4 };
    assert!(hold.quarantine_if_damaged());
    assert_eq!(fixture.changes_since(before), [Change::Added(name(0), Tier::Disk)]);
    assert!(matches!(fixture.holdings.read(&name(0), None), Reading::Slower(_)));
}

#[test]
fn of_several_versions_the_highest_stays_whichever_tier_has_it() {
    let fixture = fixture(2);
    let memory = fixture.memory();
    let to_disk = |block: u32| {
        fixture.spill(block);
        fixture.put(100..102);
        assert!(!memory.contains(&name(block)) && fixture.tier.find(&name(block)).is_some());
        (100..102).for_each(|filler| assert!(memory.remove(&name(filler))));
    };
    assert!(matches!(fixture.put_version(0, Some(5)), Sealed::New(_)));
    to_disk(0);
    let on_disk = fixture.tier.find(&name(0)).unwrap();
    assert_eq!(on_disk.version, Some(Version(5)));
    assert_eq!(fixture.put_version(0, Some(4)), Sealed::Held(on_disk.copy));
    assert_eq!(fixture.put_version(0, None), Sealed::Held(on_disk.copy), "any version is higher than none");
    assert_eq!(memory.supersede(&name(0), Version(5)), SupersedeOutcome::Kept(Version(5)));
    assert!(matches!(fixture.put_version(0, Some(6)), Sealed::New(_)));
    assert!(fixture.tier.find(&name(0)).is_none(), "a newer version takes the place of what every tier has");
    to_disk(0);
    assert_eq!(memory.supersede(&name(0), Version(7)), SupersedeOutcome::Removed);
    assert_eq!(memory.supersede(&name(0), Version(7)), SupersedeOutcome::Absent);
    assert!(fixture.tier.find(&name(0)).is_none());
}

#[test]
fn what_was_written_of_a_block_that_is_removed_meanwhile_is_void() {
    let fixture = fixture(4);
    let spilled = |hold: &Hold| fixture.holdings.commit(|commit| commit.spilled(hold, |_| panic!("void")));
    fixture.put([0]);
    let removed = fixture.memory().peek(&name(0)).unwrap();
    assert!(fixture.memory().remove(&name(0)));
    fixture.put([0]);
    assert!(!spilled(&removed), "another copy than that of now");
    drop(removed);
    let replaced = fixture.memory().peek(&name(0)).unwrap();
    assert!(matches!(fixture.put_version(0, Some(1)), Sealed::New(_)));
    assert!(!spilled(&replaced));
}

#[test]
fn a_promotion_of_a_block_that_is_removed_meanwhile_is_void() {
    let fixture = fixture(1);
    let (bytes, key) = ([1; BLOCK], key(0));
    let promote = || {
        fixture.put([0]);
        fixture.spill(0);
        drop(fixture.reserve_at_once(9).unwrap());
        fixture.tier.find(&name(0)).unwrap()
    };
    let place = promote();
    let reservation = fixture.reserve_at_once(0).unwrap();
    let promoted = fixture.holdings.promote(reservation, Key::new(&key).unwrap(), &place).unwrap();
    assert!(fixture.memory().remove(&name(0)));
    assert!(matches!(promoted.seal(&sums(&key, &bytes)), Ok(Sealed::Void)));

    let place = promote();
    assert!(fixture.memory().remove(&name(0)));
    let reservation = fixture.reserve_at_once(0).unwrap();
    assert!(fixture.holdings.promote(reservation, Key::new(&key).unwrap(), &place).is_none());
    assert!(matches!(fixture.holdings.read(&name(0), None), Reading::Miss));
    assert_eq!(fixture.memory().stats().reserved, 0);
}

#[test]
fn look_ups_and_listings_name_the_fastest_tier() {
    let fixture = fixture(2);
    fixture.put([0]);
    fixture.spill(0);
    fixture.put(1..3);
    fixture.spill(1);
    let found = fixture.holdings.confirm(&[name(0), name(1), name(2), name(3)]);
    let tiers: Vec<Option<Tier>> = found.iter().map(|place| place.map(|place| place.tier)).collect();
    assert_eq!(tiers, [Some(Tier::Disk), Some(Tier::Dram), Some(Tier::Dram), None]);
    let mut listed = Vec::new();
    let end = fixture.holdings.list(0, 10, &mut listed);
    let end = fixture.holdings.list(end.next.expect("the tier below"), 10, &mut listed);
    assert_eq!(end.next, None);
    let listed: BTreeMap<BlockId, Place> = listed.into_iter().collect();
    let expected = [0, 1, 2].map(|block: u32| (name(block), found[block as usize].unwrap()));
    assert_eq!(listed, BTreeMap::from(expected));
    let disk = found[0].unwrap();
    assert!(matches!(fixture.holdings.read(&name(0), Some(disk.copy)), Reading::Slower(place) if place == disk));
    let other = CopyName { generation: Generation(u64::MAX), ..disk.copy };
    assert!(matches!(fixture.holdings.read(&name(0), Some(other)), Reading::Miss));
    assert!(matches!(fixture.holdings.read(&name(1), None), Reading::Here(_)));
}

/// Everything that a walk yields, in steps of `max`.
fn walk(fixture: &Fixture, cursor: &mut ColdCursor, max: usize) -> Vec<BlockId> {
    let mut out = Vec::new();
    while fixture.holdings.coldest(cursor, &*fixture.tier, max, &mut out) {}
    out.iter().map(|cold| cold.id).collect()
}

#[test]
fn a_walk_ahead_of_eviction_names_the_blocks_in_the_order_in_which_they_go() {
    let fixture = fixture(8);
    let soft = BlockTerms { pin: Pin::Soft { millis: 3_600_000 }, ..BlockTerms::default() };
    for block in 0..2 {
        let reservation = fixture.reserve_at_once(block).unwrap().with_terms(soft).unwrap();
        reservation.seal(&sums(&key(block), &[1; BLOCK])).unwrap();
    }
    fixture.put(2..8);
    let names = |blocks: &[u32]| blocks.iter().copied().map(name).collect::<Vec<_>>();
    let all = names(&[2, 3, 4, 5, 6, 7, 0, 1]);
    for max in 1..10 {
        assert_eq!(walk(&fixture, &mut ColdCursor::default(), max), all, "softly pinned ones go last");
    }
    let held = fixture.memory().peek(&name(3)).unwrap();
    fixture.spill(4);
    fixture.tier.busy.lock().insert(name(6));
    assert_eq!(walk(&fixture, &mut ColdCursor::default(), 3), names(&[2, 5, 7, 0, 1]));
    drop(held);
    let mut out = Vec::new();
    assert!(fixture.holdings.coldest(&mut ColdCursor::default(), &*fixture.tier, 1, &mut out));
    assert_eq!((out[0].id, out[0].len), (name(2), BLOCK as u64));
    assert_eq!(out[0].name, fixture.memory().peek(&name(2)).unwrap().name());
    let before = fixture.holdings.latest();
    let _taken = [90, 91, 92].map(|block| fixture.reserve_at_once(block).unwrap());
    let gone = [Change::Removed(name(2)), Change::Removed(name(3)), Change::Added(name(4), Tier::Disk)];
    assert_eq!(fixture.changes_since(before), gone, "and this is how they go");
}

#[test]
fn under_every_policy_a_walk_names_each_block_once_and_the_next_to_go_first() {
    for policy in Policy::ALL {
        let fixture = fixture_with(32, policy);
        fixture.put(0..32);
        for block in [3, 9, 3, 30, 0, 17, 9] {
            assert!(fixture.memory().confirm(&[name(block)])[0].is_some());
        }
        let whole = walk(&fixture, &mut ColdCursor::default(), 100);
        let all: BTreeSet<BlockId> = (0..32).map(name).collect();
        assert_eq!((whole.len(), whole.iter().copied().collect()), (32, all), "{policy}");
        for max in [1, 5, 31] {
            assert_eq!(walk(&fixture, &mut ColdCursor::default(), max), whole, "{policy}, in steps of {max}");
        }
        let before = fixture.holdings.latest();
        let _taken = fixture.reserve_at_once(99).unwrap();
        assert_eq!(fixture.changes_since(before), [Change::Removed(whole[0])], "{policy}");
    }
}

#[test]
fn a_walk_ahead_of_eviction_goes_on_whatever_has_changed_since() {
    let fixture = fixture(8);
    fixture.put(0..8);
    let mut cursor = ColdCursor::default();
    let mut step = |max| {
        let mut out = Vec::new();
        let goes_on = fixture.holdings.coldest(&mut cursor, &*fixture.tier, max, &mut out);
        // What was named is about to be had.
        fixture.tier.busy.lock().extend(out.iter().map(|cold| cold.id));
        (out.iter().map(|cold| cold.id).collect::<Vec<_>>(), goes_on)
    };
    let names = |blocks: &[u32]| blocks.iter().copied().map(name).collect::<Vec<_>>();
    assert_eq!(step(2), (names(&[0, 1]), true));
    // The block where the walk is goes: it starts anew, and passes over what it has named.
    assert!(fixture.memory().remove(&name(1)));
    assert_eq!(step(2), (names(&[2]), true));
    // The block where the walk is is used: it goes last now.
    let _ = fixture.memory().confirm(&[name(2)]);
    assert_eq!(step(3), (names(&[3, 4]), true));
    // The tier has given up a block that is the next to go: it comes first.
    assert!(fixture.tier.busy.lock().remove(&name(3)));
    let _ = fixture.memory().confirm(&[name(0)]);
    assert_eq!(step(1), (names(&[3]), true));
    assert_eq!(step(9), (names(&[5, 6, 7]), false));
    assert_eq!(step(9), (Vec::new(), false), "all are named");
}
