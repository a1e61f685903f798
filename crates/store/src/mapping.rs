//! A client's side of a node's memory: finds blocks in the shared index without asking anybody.

use crate::layout::{CONTROL_BYTES, FormatError, Shape};
use crate::memory_file::{MemoryFile, prefetch};
use crate::protocol::{Described, Index, LINE_WORDS, generation_of, load_sealed, unchanged};
use crate::sync::AtomicU64;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Instant;
use thiserror::Error;
use tidepool_locks::Mutex;
use tidepool_transfer::door::{Door, DoorError, Pinned, REFUSED_FOR};
use tidepool_types::{BlockId, ClientId, CopyName, Epoch, Generation, MAX_KEY_LEN, check_block_len};
use tidepool_wire::message::SlotName;

/// Why a node's memory could not be mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// The kernel refused.
    #[error("mapping a node's memory: {0}")]
    Io(#[from] io::Error),
    /// The files are not what they should be.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A node's memory, mapped.
pub struct Mapping {
    /// The slab, for a device. Dropped before the memory that it pins. Held while it is pinned: who else wants it waits for that.
    pinning: Mutex<Pinning>,
    /// Whether no device gets it any more.
    is_retired: AtomicBool,
    shape: Shape,
    map: MemoryFile,
    slab: MemoryFile,
    writable: Option<MemoryFile>,
}

/// What became of pinning the slab.
#[derive(Debug)]
enum Pinning {
    Not,
    Done(Arc<dyn Pinned>),
    /// Copies that are under way may have it still: a driver does not pin what is pinned.
    LetGo(Weak<dyn Pinned>),
    RefusedUntil(Instant),
}

impl Pinning {
    fn let_go(&mut self) {
        if let Self::Done(pinned) = self {
            *self = Self::LetGo(Arc::downgrade(pinned));
        }
    }
}

/// A block that was there a moment ago. What was taken from it counts only if [`Mapping::is_current`] agrees afterwards.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    slot: u32,
    stamp: u64,
    described: Described,
}

impl Mapping {
    /// Maps the files that a node handed out, after checking that they are a node's.
    pub fn open(map: &OwnedFd, slab: &OwnedFd, writable: Option<&OwnedFd>) -> Result<Self, MapError> {
        let (map, slab) = (MemoryFile::map(map, false)?, MemoryFile::map(slab, false)?);
        let shape = Shape::read(map.words(), slab.words())?;
        let writable = writable.map(|file| MemoryFile::map(file, true)).transpose()?;
        if let Some(writable) = writable.as_ref().filter(|writable| writable.len() != slab.len()) {
            let (found, expected) = (writable.len(), slab.len());
            return Err(FormatError::Length { file: "slab", found, expected }.into());
        }
        let (pinning, is_retired) = (Mutex::new(Pinning::Not), AtomicBool::new(false));
        Ok(Self { pinning, is_retired, shape, map, slab, writable })
    }

    /// Enters the node's pages into this process's page tables; the first copies are slow without. Takes tenths of a
    /// second per gigabyte: call it from a thread that has the time.
    /// Stops when `go_on` says no.
    pub fn populate(&self, go_on: &dyn Fn() -> bool) {
        self.map.populate(false, go_on);
        self.slab.populate(false, go_on);
        if let Some(writable) = &self.writable {
            writable.populate(true, go_on);
        }
    }

    /// The node's incarnation.
    pub fn epoch(&self) -> Epoch {
        self.shape.epoch
    }

    /// Bytes of the slab.
    pub fn slab_bytes(&self) -> u64 {
        self.slab.len()
    }

    /// Whether this process may fill reservations itself.
    pub fn is_writable(&self) -> bool {
        self.writable.is_some()
    }

    /// Looks a block up. No round trip, and nothing is held.
    pub fn find(&self, id: &BlockId) -> Option<Found> {
        let id = id.words();
        self.index().find(id, |slot| {
            let header = self.header(slot)?;
            let (stamp, described) = load_sealed(header)?;
            let sane = self.is_sane(&described);
            (described.id == id && sane && unchanged(header, stamp)).then_some(Found { slot, stamp, described })
        })
    }

    /// Whether a block can be as its header says; every later access relies on it.
    fn is_sane(&self, described: &Described) -> bool {
        check_block_len(described.len).is_ok()
            && described.key_len <= MAX_KEY_LEN as u64
            && self.slab.at(described.offset, described.len).is_some()
    }

    /// Whether everything taken from the block since it was found belongs to it.
    pub fn is_current(&self, found: &Found) -> bool {
        self.header(found.slot).is_some_and(|header| unchanged(header, found.stamp))
    }

    /// The copy's name.
    pub fn copy_name(&self, found: &Found) -> CopyName {
        CopyName { epoch: self.shape.epoch, generation: Generation(generation_of(found.stamp)) }
    }

    /// Asks the processor for the index line that the search for `id` starts at.
    pub fn prefetch_index(&self, id: &BlockId) {
        let index = self.index();
        prefetch(index.bucket(index.home(id.words())).as_ptr().cast());
    }

    /// Asks the processor for the header that the index suggests for `id`; the index line should be in cache.
    pub fn prefetch_header(&self, id: &BlockId) {
        if let Some(header) = self.index().find(id.words(), |slot| self.header(slot)) {
            prefetch(header.as_ptr().cast());
        }
    }

    /// The address of `len` bytes at `offset` of the slab; `None` outside it.
    pub fn readable_at(&self, offset: u64, len: u64) -> Option<*const u8> {
        self.slab.at(offset, len).map(<*mut u8>::cast_const)
    }

    /// The address of `len` bytes at `offset` of the slab, for filling a reservation; `None` without that right.
    pub fn writable_at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        // The control page is nobody's reservation.
        self.writable.as_ref().filter(|_| offset >= CONTROL_BYTES)?.at(offset, len)
    }

    /// Pins the slab for a device, once; false where the device's driver has refused to, which is asked again after a while. Takes
    /// a twentieth of a second per gigabyte.
    pub fn pin(&self, door: &dyn Door) -> bool {
        self.pinned(door).is_some()
    }

    /// Lets the slab go, once the copies that are under way have landed.
    pub fn unpin(&self) {
        self.pinning.lock().let_go();
    }

    /// The same for good: the node is gone, and views alone need its memory. Waits for nobody who is pinning it just now.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        // Either this has the lock, or whoever has it looks again when he has let it go.
        fence(Ordering::SeqCst);
        if let Some(mut pinning) = self.pinning.try_lock() {
            pinning.let_go();
        }
    }

    /// The slab, pinned for as long as the answer is held, which must not be longer than this mapping.
    pub(crate) fn pinned(&self, door: &dyn Door) -> Option<Arc<dyn Pinned>> {
        let pinned = self.pinned_by_now(door);
        fence(Ordering::SeqCst);
        if self.is_retired.load(Ordering::Relaxed) {
            self.unpin();
        }
        pinned
    }

    fn pinned_by_now(&self, door: &dyn Door) -> Option<Arc<dyn Pinned>> {
        let mut pinning = self.pinning.lock();
        let held = match &*pinning {
            Pinning::Done(pinned) => return Some(Arc::clone(pinned)),
            Pinning::RefusedUntil(then) if Instant::now() < *then => return None,
            Pinning::RefusedUntil(_) | Pinning::Not => None,
            Pinning::LetGo(pinned) => pinned.upgrade(),
        };
        if let Some(pinned) = held {
            *pinning = Pinning::Done(Arc::clone(&pinned));
            return Some(pinned);
        }
        if self.is_retired.load(Ordering::Relaxed) {
            return None;
        }
        let (slab, writable) = (self.device_slab(), self.is_writable());
        let start = slab.at(0, slab.len())?;
        // SAFETY: the memory is mapped for as long as this mapping, which drops the pin first.
        let pinned: Result<Arc<dyn Pinned>, DoorError> =
            unsafe { door.pin(start, slab.len() as usize, writable) }.map(Arc::from);
        *pinning = match &pinned {
            Ok(pinned) => Pinning::Done(Arc::clone(pinned)),
            Err(error) => {
                tracing::warn!(%error, "a node's memory cannot be pinned: copies are staged");
                match *pinning {
                    // It may have been about to be let go.
                    Pinning::LetGo(_) => Pinning::Not,
                    _ => Pinning::RefusedUntil(Instant::now() + REFUSED_FOR),
                }
            }
        };
        pinned.ok()
    }

    /// The address of `len` bytes at `offset` of the slab as it is pinned.
    pub(crate) fn pinned_at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        self.device_slab().at(offset, len)
    }

    /// The slab as a device gets it: the writable mapping serves both ways, and pages need to be pinned once only.
    fn device_slab(&self) -> &MemoryFile {
        self.writable.as_ref().unwrap_or(&self.slab)
    }

    fn header(&self, slot: u32) -> Option<&[AtomicU64]> {
        let start = CONTROL_BYTES as usize / 8 + slot as usize * LINE_WORDS;
        (u64::from(slot) < self.shape.slots).then(|| &self.map.words()[start..start + LINE_WORDS])
    }

    fn index(&self) -> Index<'_> {
        Index(&self.map.words()[self.shape.index_at() as usize / 8..])
    }
}

impl Found {
    /// Bytes of the block.
    #[expect(clippy::len_without_is_empty, reason = "a block has at least one byte")]
    pub fn len(&self) -> u64 {
        self.described.len
    }

    /// Where it starts in the slab.
    pub fn offset(&self) -> u64 {
        self.described.offset
    }

    /// Who wrote it.
    pub fn writer(&self) -> ClientId {
        ClientId(self.described.writer)
    }

    /// Its slot.
    pub fn slot(&self) -> SlotName {
        SlotName { slot: self.slot, generation: Generation(generation_of(self.stamp)) }
    }

    /// Its id.
    pub fn id(&self) -> BlockId {
        BlockId::from_words(self.described.id)
    }

    /// Where its checksums start in the slab.
    pub(crate) fn checksums_at(&self) -> u64 {
        crate::placed::Placed::of(&self.described).checksums_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_memory::tests::memory;
    use tidepool_cuda::fake::Fake;
    use tidepool_cuda::{Choice, Gpu};

    /// One refusal was for good: everything that the engine moved went through memory of its own until it was restarted.
    #[test]
    fn a_slab_that_could_not_be_pinned_is_tried_again_later_and_let_go_when_nobody_wants_it() {
        let fixture = memory(1 << 20, 4096);
        let [map, slab] = fixture.memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
        let mapping = Mapping::open(&map, &slab, None).unwrap();
        let driver = Arc::new(Fake::default());
        let gpu = Gpu::with_choice(driver.clone(), Choice::default());
        driver.fail_once_after(0);
        assert!(!mapping.pin(&gpu), "the driver has refused");
        assert!(!mapping.pin(&gpu), "and is not asked at once");
        *mapping.pinning.lock() = Pinning::RefusedUntil(Instant::now());
        assert!(mapping.pin(&gpu));
        let under_way = mapping.pinned(&gpu);
        mapping.unpin();
        assert_eq!(driver.books().pinned, 1, "memory was let go under a copy");
        drop(under_way);
        assert_eq!(driver.books().pinned, 0);
        driver.fail_once_after(0);
        assert!(!mapping.pin(&gpu), "the driver has not quite let it go yet");
        assert!(mapping.pin(&gpu), "who comes later has it pinned again");
        mapping.retire();
        assert_eq!(driver.books().pinned, 0);
        assert!(!mapping.pin(&gpu), "the memory of a node that is gone was pinned");
        drop(mapping);
        assert_eq!((driver.books().pinned, driver.books().stale), (0, 0));
    }
}
