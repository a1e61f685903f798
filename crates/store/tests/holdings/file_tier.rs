//! The simplest slower tier: each block is a file of one directory. Its I/O waits while a test has it shut.

use crate::common::{WRITER, sums};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidepool_locks::{Condvar, Mutex};
use tidepool_store::{Evicting, Hold, Holdings, Place, Reading, Reservation, Sealed, SlowerTier};
use tidepool_types::{BlockId, CopyName, Deadline, Key, Tier};

/// See the file's head.
pub(crate) struct FileTier {
    dir: PathBuf,
    index: Mutex<Index>,
    gate: Mutex<Gate>,
    turned: Condvar,
    throttled: AtomicBool,
}

#[derive(Default)]
struct Index {
    entries: HashMap<BlockId, Entry>,
    by_position: BTreeMap<u64, BlockId>,
    last_position: u64,
    /// Blocks that are being written.
    coming: HashSet<BlockId>,
}

struct Entry {
    position: u64,
    key: Vec<u8>,
    place: Place,
}

#[derive(Default)]
struct Gate {
    is_shut: bool,
    /// I/O that waits in front of it.
    stuck: usize,
}

/// A tier whose I/O waits until this is dropped.
pub(crate) struct Shut<'a>(&'a FileTier);

/// A block that is being written to the tier.
pub(crate) struct Spill {
    hold: Hold,
}

/// A block that is being read into memory.
pub(crate) struct Promotion {
    reservation: Reservation,
    key: Vec<u8>,
    bytes: Vec<u8>,
}

impl FileTier {
    /// An empty tier in a directory that is made.
    pub(crate) fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let (index, gate, turned) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { dir, index, gate, turned, throttled: AtomicBool::new(false) }
    }

    /// Has the tier's I/O wait.
    pub(crate) fn shut(&self) -> Shut<'_> {
        self.gate.lock().is_shut = true;
        Shut(self)
    }

    pub(crate) fn set_throttled(&self, throttled: bool) {
        self.throttled.store(throttled, Ordering::Release);
    }

    /// A file of its own for each copy: it never changes, and nobody takes it for another one.
    fn path(&self, id: &BlockId, copy: CopyName) -> PathBuf {
        self.dir.join(format!("{id}-{}", copy.generation.0))
    }

    fn wait_while_shut(&self) {
        let mut gate = self.gate.lock();
        gate.stuck += 1;
        self.turned.notify_all();
        self.turned.wait_while(&mut gate, |gate| gate.is_shut);
        gate.stuck -= 1;
    }

    /// Writes a block that memory has. `None` when there is nothing to do.
    pub(crate) fn begin_spill(&self, holdings: &Holdings, id: &BlockId) -> Option<Spill> {
        let mut index = self.index.lock();
        if index.entries.contains_key(id) || !index.coming.insert(*id) {
            return None;
        }
        drop(index);
        let Some(hold) = holdings.memory().peek(id) else {
            self.index.lock().coming.remove(id);
            return None;
        };
        self.wait_while_shut();
        fs::write(self.path(id, hold.copy()), hold.bytes()).unwrap();
        Some(Spill { hold })
    }

    /// What was written is the tier's. False when the block was removed meanwhile.
    pub(crate) fn end_spill(&self, holdings: &Holdings, Spill { hold }: Spill) -> bool {
        let id = hold.id();
        let key = hold.key().unwrap().to_vec();
        let is_spilled = holdings.commit(|commit| commit.spilled(&hold, |place| self.insert(id, key, place)));
        self.index.lock().coming.remove(&id);
        is_spilled
    }

    fn insert(&self, id: BlockId, key: Vec<u8>, place: Place) {
        let index = &mut *self.index.lock();
        index.last_position += 1;
        let (position, place) = (index.last_position, Place { tier: Tier::Disk, ..place });
        index.by_position.insert(position, id);
        assert!(index.entries.insert(id, Entry { position, key, place }).is_none(), "twice in one tier");
    }

    /// Both steps of a spill.
    pub(crate) fn spill(&self, holdings: &Holdings, id: &BlockId) -> bool {
        self.begin_spill(holdings, id).is_some_and(|spill| self.end_spill(holdings, spill))
    }

    /// Lets a block go, as a tier does that needs its space. False when the tier does not have it.
    pub(crate) fn drop_block(&self, holdings: &Holdings, id: &BlockId) -> bool {
        holdings.commit(|commit| commit.change(id, || self.remove(id)))
    }

    /// Reads a block that only this tier has into memory; `None` when it is not so, or memory has no room.
    pub(crate) fn begin_promotion(&self, holdings: &Holdings, id: &BlockId) -> Option<Promotion> {
        let Reading::Slower(place) = holdings.read(id, None) else { return None };
        let key = self.index.lock().entries.get(id)?.key.clone();
        let now = Deadline::after(Duration::ZERO);
        let named = Key::new(&key).unwrap();
        let reserved = holdings.memory().reserve(named, *id, place.len, WRITER, now, &|| true).ok()?.named();
        let reservation = holdings.promote(reserved, named, &place)?;
        self.wait_while_shut();
        let bytes = fs::read(self.path(id, place.copy)).ok()?;
        Some(Promotion { reservation, key, bytes })
    }

    /// The first byte of a block that the tier has.
    pub(crate) fn first_byte(&self, id: &BlockId) -> Option<u8> {
        let place = self.find(id)?;
        fs::read(self.path(id, place.copy)).unwrap().first().copied()
    }
}

impl Promotion {
    /// What was read becomes visible in memory.
    pub(crate) fn end(self) -> Sealed {
        let Self { reservation, key, bytes } = self;
        let target = reservation.address(0, bytes.len() as u64).unwrap();
        // SAFETY: the reservation is ours and long enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        reservation.seal(&sums(&key, &bytes)).expect("the checksums fit the block")
    }
}

impl Shut<'_> {
    /// Waits until I/O of the tier waits.
    pub(crate) fn wait_until_stuck(&self) {
        self.0.turned.wait_while(&mut self.0.gate.lock(), |gate| gate.stuck == 0);
    }

    /// Whether I/O of the tier waits.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.gate.lock().stuck > 0
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.gate.lock().is_shut = false;
        self.0.turned.notify_all();
    }
}

impl SlowerTier for FileTier {
    fn tier(&self) -> Tier {
        Tier::Disk
    }

    fn find(&self, id: &BlockId) -> Option<Place> {
        self.index.lock().entries.get(id).map(|entry| entry.place)
    }

    fn remove(&self, id: &BlockId) -> bool {
        let index = &mut *self.index.lock();
        let removed = index.entries.remove(id);
        if let Some(entry) = &removed {
            index.by_position.remove(&entry.position);
        }
        removed.is_some()
    }

    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Place)>) -> Option<u64> {
        let index = self.index.lock();
        let mut rest = index.by_position.range(cursor..);
        out.extend(rest.by_ref().take(max).map(|(_, id)| (*id, index.entries[id].place)));
        rest.next().map(|(position, _)| *position)
    }

    fn evicting(&self, id: &BlockId) -> Evicting {
        let index = self.index.lock();
        match index.entries.contains_key(id) {
            true => Evicting::Moved,
            false if index.coming.contains(id) => Evicting::Busy,
            false => Evicting::Go,
        }
    }

    fn is_throttled(&self) -> bool {
        self.throttled.load(Ordering::Acquire)
    }
}
