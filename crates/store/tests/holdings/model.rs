//! The holdings against a naive map of each tier, and against what catalogs make of their journal and pages.

use crate::common::{id, reserve_by, sums};
use crate::file_tier::{FileTier, Promotion, Spill};
use crate::{BLOCK, Pool, key, pool};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tidepool_store::inventory::{Change, Inventory as _};
use tidepool_store::{BlockTerms, Holdings, NoRoom, Reading, Sealed};
use tidepool_types::{BlockId, Deadline, Tier, Version};
use tidepool_wire::message::SupersedeOutcome;

/// Blocks that memory has room for, and different ones that there are.
const ROOM: u64 = 6;
const BLOCKS: u32 = 14;

/// What happens to the holdings, and what a catalog hears of it.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put(u32, Option<u64>),
    Read(u32),
    Supersede(u32, u64),
    Remove(u32),
    BeginSpill(u32),
    EndSpill(usize),
    Drop(u32),
    BeginPromotion(u32),
    EndPromotion(usize),
    /// A catalog begins anew.
    Snapshot,
    /// It hears the next page.
    Page(usize),
    /// It hears the next changes.
    Changes(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = || 0..BLOCKS;
    let step = prop_oneof![
        8 => block().prop_map(|block| Step::Put(block, None)),
        3 => (block(), 1..5_u64).prop_map(|(block, version)| Step::Put(block, Some(version))),
        4 => block().prop_map(Step::Read),
        1 => (block(), 1..5_u64).prop_map(|(block, version)| Step::Supersede(block, version)),
        2 => block().prop_map(Step::Remove),
        8 => block().prop_map(Step::BeginSpill),
        8 => (0..4_usize).prop_map(Step::EndSpill),
        2 => block().prop_map(Step::Drop),
        8 => block().prop_map(Step::BeginPromotion),
        8 => (0..4_usize).prop_map(Step::EndPromotion),
        1 => Just(Step::Snapshot),
        6 => (1..4_usize).prop_map(Step::Page),
        3 => (1..6_usize).prop_map(Step::Changes),
    ];
    prop::collection::vec(step, 1..250)
}

/// A copy of a block: its first byte, which is another one for each that is written, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    byte: u8,
    version: Option<u64>,
}

/// What a tier has, said as shortly as possible.
#[derive(Default)]
struct Naive {
    memory: BTreeMap<u32, Kept>,
    files: BTreeMap<u32, Kept>,
    /// Promotions under way, and whether their blocks were removed meanwhile.
    coming: Vec<(u32, Kept, bool)>,
}

impl Naive {
    fn fastest(&self) -> BTreeMap<BlockId, Tier> {
        let files = self.files.keys().map(|block| (id(&key(*block)), Tier::Disk));
        files.chain(self.memory.keys().map(|block| (id(&key(*block)), Tier::Dram))).collect()
    }

    fn void(&mut self, block: u32) {
        self.coming.iter_mut().filter(|(coming, ..)| *coming == block).for_each(|(.., is_void)| *is_void = true);
    }

    fn remove(&mut self, block: u32) -> bool {
        self.void(block);
        let removed = [self.memory.remove(&block), self.files.remove(&block)];
        removed.iter().any(Option::is_some)
    }

    /// A copy is sealed in memory. Whether it is there now.
    fn seal(&mut self, block: u32, copy: Kept) -> bool {
        let (in_memory, in_files) = (self.memory.get(&block).copied(), self.files.get(&block).copied());
        if in_memory.is_some_and(|held| copy.version.is_none() || held.version >= copy.version) {
            return false;
        }
        if in_files.is_some_and(|held| held.version > copy.version) {
            return false;
        }
        if in_memory.is_some() || in_files.is_some_and(|held| held.version < copy.version) {
            self.remove(block);
        }
        self.memory.insert(block, copy);
        true
    }
}

/// A catalog, or what it makes of one stream.
#[derive(Default)]
struct Catalog {
    told: BTreeMap<BlockId, Tier>,
    heard: u64,
    /// The next page; all have been heard when there is none.
    cursor: Option<u64>,
    is_first: bool,
}

impl Catalog {
    fn begin(&mut self) {
        *self = Self { cursor: Some(0), is_first: true, ..Self::default() };
    }

    fn hear_changes(&mut self, holdings: &Holdings, most: usize) {
        let mut changes = Vec::new();
        holdings.changes(self.heard, most, &mut changes).unwrap();
        self.heard += changes.len() as u64;
        for change in changes {
            match change {
                Change::Added(id, tier) => self.told.insert(id, tier),
                Change::Removed(id) => self.told.remove(&id),
            };
        }
    }

    fn hear_page(&mut self, holdings: &Holdings, max: usize) {
        let Some(cursor) = self.cursor else { return };
        let mut page = Vec::new();
        let end = holdings.page(cursor, max, &mut page);
        if std::mem::take(&mut self.is_first) {
            self.heard = end.as_of;
        }
        self.hear_changes(holdings, (end.as_of - self.heard) as usize);
        self.told.extend(page);
        self.cursor = end.next;
    }
}

struct Run<'a> {
    holdings: &'a Holdings,
    files: &'a FileTier,
    naive: Naive,
    spills: Vec<(u32, Kept, Spill)>,
    promotions: Vec<Promotion>,
    bytes: u8,
}

impl Run<'_> {
    /// What reserving has evicted is gone from memory: at most one block for one, and none that is held.
    fn note_evicted(&mut self) -> Result<(), TestCaseError> {
        let memory = self.holdings.memory();
        let gone: Vec<u32> =
            self.naive.memory.keys().copied().filter(|block| !memory.contains(&id(&key(*block)))).collect();
        prop_assert!(gone.len() <= 1, "{gone:?} went for one block");
        for block in gone {
            prop_assert!(!self.is_held(block), "{block} is being spilled");
            self.naive.memory.remove(&block);
        }
        Ok(())
    }

    /// Whether the copy of a block that is in memory is being spilled.
    fn is_held(&self, block: u32) -> bool {
        let copy = self.naive.memory.get(&block);
        self.spills.iter().any(|(held, spilled, _)| *held == block && Some(spilled) == copy)
    }

    fn put(&mut self, block: u32, version: Option<u64>) -> Result<(), TestCaseError> {
        self.bytes = self.bytes.wrapping_add(1);
        let (key, bytes) = (key(block), [self.bytes; BLOCK]);
        let reserved = reserve_by(Deadline::after(Duration::ZERO), self.holdings.memory(), &key, &bytes);
        self.note_evicted()?;
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(NoRoom::TooLarge) => return Err(TestCaseError::fail("too large")),
            Err(NoRoom::Full) => {
                prop_assert!(self.naive.memory.keys().all(|block| self.is_held(*block)), "something could go");
                return Ok(());
            }
        };
        let terms = BlockTerms { version: version.map(Version), ..BlockTerms::default() };
        let sealed = reservation.with_terms(terms).unwrap().seal(&sums(&key, &bytes)).unwrap();
        let is_new = self.naive.seal(block, Kept { byte: self.bytes, version });
        prop_assert_eq!(matches!(sealed, Sealed::New(_)), is_new);
        prop_assert_eq!(matches!(sealed, Sealed::Held(_)), !is_new);
        Ok(())
    }

    fn read(&self, block: u32) -> Result<(), TestCaseError> {
        let (in_memory, in_files) = (self.naive.memory.get(&block), self.naive.files.get(&block));
        let is_coming = self.naive.coming.iter().any(|(coming, _, is_void)| *coming == block && !is_void);
        match self.holdings.read(&id(&key(block)), None) {
            Reading::Here(hold) => prop_assert_eq!(Some(hold.bytes()[0]), in_memory.map(|copy| copy.byte)),
            Reading::BeingWritten => prop_assert!(in_memory.is_none() && is_coming),
            Reading::Slower(place) => {
                prop_assert!(in_memory.is_none() && !is_coming);
                prop_assert_eq!(Some(place.version), in_files.map(|copy| copy.version.map(Version)));
            }
            Reading::Miss => prop_assert!(in_memory.is_none() && in_files.is_none() && !is_coming),
            Reading::Throttled => return Err(TestCaseError::fail("nothing is throttled")),
        }
        Ok(())
    }

    fn begin_spill(&mut self, block: u32) -> Result<(), TestCaseError> {
        let is_coming = self.spills.iter().any(|(coming, ..)| *coming == block);
        let copy = self.naive.memory.get(&block).copied();
        let wanted = copy.filter(|_| !is_coming && !self.naive.files.contains_key(&block));
        let spill = self.files.begin_spill(self.holdings, &id(&key(block)));
        prop_assert_eq!(spill.is_some(), wanted.is_some());
        self.spills.extend(spill.zip(wanted).map(|(spill, copy)| (block, copy, spill)));
        Ok(())
    }

    fn end_spill(&mut self, at: usize) -> Result<(), TestCaseError> {
        if at < self.spills.len() {
            let (block, copy, spill) = self.spills.swap_remove(at);
            let is_there = self.naive.memory.get(&block) == Some(&copy);
            prop_assert_eq!(self.files.end_spill(self.holdings, spill), is_there);
            if is_there {
                self.naive.files.insert(block, copy);
            }
        }
        Ok(())
    }

    fn begin_promotion(&mut self, block: u32) -> Result<(), TestCaseError> {
        let is_coming = self.naive.coming.iter().any(|(coming, _, is_void)| *coming == block && !is_void);
        let copy = self.naive.files.get(&block).copied();
        let wanted = copy.filter(|_| !is_coming && !self.naive.memory.contains_key(&block));
        let promotion = self.files.begin_promotion(self.holdings, &id(&key(block)));
        self.note_evicted()?;
        let Some(copy) = wanted else {
            prop_assert!(promotion.is_none());
            return Ok(());
        };
        match promotion {
            Some(promotion) => {
                self.promotions.push(promotion);
                self.naive.coming.push((block, copy, false));
            }
            None => prop_assert!(self.naive.memory.keys().all(|block| self.is_held(*block)), "something could go"),
        }
        Ok(())
    }

    fn end_promotion(&mut self, at: usize) -> Result<(), TestCaseError> {
        if at < self.promotions.len() {
            let (block, copy, is_void) = self.naive.coming.swap_remove(at);
            let sealed = self.promotions.swap_remove(at).end();
            let is_new = !is_void && self.naive.seal(block, copy);
            prop_assert_eq!(matches!(sealed, Sealed::Void), is_void);
            prop_assert_eq!(matches!(sealed, Sealed::New(_)), is_new);
        }
        Ok(())
    }

    fn take(&mut self, step: Step, catalog: &mut Catalog) -> Result<(), TestCaseError> {
        let memory = self.holdings.memory();
        match step {
            Step::Put(block, version) => self.put(block, version)?,
            Step::Read(block) => self.read(block)?,
            Step::Remove(block) => prop_assert_eq!(memory.remove(&id(&key(block))), self.naive.remove(block)),
            Step::Supersede(block, version) => {
                let held = self.naive.memory.get(&block).or(self.naive.files.get(&block)).map(|copy| copy.version);
                let outcome = memory.supersede(&id(&key(block)), Version(version));
                self.naive.void(block);
                match held {
                    None => prop_assert_eq!(outcome, SupersedeOutcome::Absent),
                    Some(Some(held)) if held >= version => {
                        prop_assert_eq!(outcome, SupersedeOutcome::Kept(Version(held)));
                    }
                    Some(_) => {
                        prop_assert_eq!(outcome, SupersedeOutcome::Removed);
                        self.naive.remove(block);
                    }
                }
            }
            Step::BeginSpill(block) => self.begin_spill(block)?,
            Step::EndSpill(at) => self.end_spill(at)?,
            Step::Drop(block) => {
                let dropped = self.files.drop_block(self.holdings, &id(&key(block)));
                prop_assert_eq!(dropped, self.naive.files.remove(&block).is_some());
            }
            Step::BeginPromotion(block) => self.begin_promotion(block)?,
            Step::EndPromotion(at) => self.end_promotion(at)?,
            Step::Snapshot => catalog.begin(),
            Step::Page(max) => catalog.hear_page(self.holdings, max),
            Step::Changes(most) if !catalog.is_first => catalog.hear_changes(self.holdings, most),
            Step::Changes(_) => {}
        }
        Ok(())
    }

    /// Every tier has what the model says, byte for byte.
    fn check_copies(&self) -> Result<(), TestCaseError> {
        for block in 0..BLOCKS {
            let id = id(&key(block));
            let in_memory = self.holdings.memory().peek(&id);
            prop_assert!(in_memory.as_ref().is_none_or(|hold| hold.is_intact()));
            let byte = |copies: &BTreeMap<u32, Kept>| copies.get(&block).map(|copy| copy.byte);
            prop_assert_eq!(in_memory.map(|hold| hold.bytes()[0]), byte(&self.naive.memory));
            prop_assert_eq!(self.files.first_byte(&id), byte(&self.naive.files));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever moves between the tiers, whenever it is committed, and however pages and changes interleave with it.
    #[test]
    fn the_holdings_are_those_of_a_naive_map_and_catalogs_know_them_exactly(steps in steps()) {
        let Pool { holdings, files, .. } = &pool(ROOM);
        let (spills, promotions) = (Vec::new(), Vec::new());
        let mut run = Run { holdings, files, naive: Naive::default(), spills, promotions, bytes: 0 };
        // One hears every change at once; one hears snapshots, late.
        let (mut prompt, mut catalog) = (Catalog::default(), Catalog::default());
        catalog.begin();
        for step in steps {
            run.take(step, &mut catalog)?;
            prompt.hear_changes(holdings, usize::MAX);
            prop_assert_eq!(&prompt.told, &run.naive.fastest(), "{:?}", step);
        }
        while catalog.cursor.is_some() {
            catalog.hear_page(holdings, 2);
        }
        catalog.hear_changes(holdings, usize::MAX);
        prop_assert_eq!(&catalog.told, &run.naive.fastest());
        run.check_copies()?;
        drop((run.spills, run.promotions));
        let stats = holdings.memory().stats();
        prop_assert_eq!((stats.holds, stats.reserved), (0, 0));
    }
}
