//! The lease ring: a client on the node's host notes what it has read, without waiting; the owner takes it from there
//! before it judges a removal. `docs/protocol.md` has its bytes.
//!
//! One writer and one reader, each in its own process. A writer that would overwrite what the owner may not have taken asks
//! it to first ([`LeaseWriter::is_full_for`]). The writer *claims* entries before it writes them and *publishes* them afterwards, and
//! overwrites the oldest when it is a whole ring ahead all the same, as with an owner that does not answer: what the reader finds claimed again after it has read
//! it may be torn, and is dropped. Nothing in a ring is believed beyond that: whoever writes nonsense leases nonsense.

use crate::layout::FormatError;
use crate::mapping::MapError;
use crate::memory_file::{self, MemoryFile};
use crate::sync::{AtomicU64, Ordering, fence};
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tidepool_types::BlockId;

const MAGIC: u64 = u64::from_le_bytes(*b"TDPLRING");
const VERSION: u64 = 1;
/// Leases that a ring holds until its owner takes them.
const ENTRIES: u64 = 1 << 14;
const HEADER_WORDS: usize = 8;
const ENTRY_WORDS: usize = 3;
const CLAIMED: usize = 2;
const PUBLISHED: usize = 3;
const RING_BYTES: u64 = (HEADER_WORDS as u64 + ENTRIES * ENTRY_WORDS as u64) * 8;

/// What the clock says that both sides of a ring go by: the host's own, the same in all its processes. Good to a few
/// milliseconds, and as cheap as a clock can be.
#[must_use]
pub fn host_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

fn entry(memory: &MemoryFile, number: u64) -> &[AtomicU64] {
    let start = HEADER_WORDS + (number % ENTRIES) as usize * ENTRY_WORDS;
    &memory.words()[start..start + ENTRY_WORDS]
}

/// The owner's side.
pub struct LeaseRing {
    file: OwnedFd,
    memory: MemoryFile,
    taken: u64,
}

impl LeaseRing {
    /// Makes a ring for one client.
    pub fn create() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("tidepool-leases", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        memory_file::allocate(&file, RING_BYTES, &|| true)?;
        // A client that made it shorter would have its owner read what is not there.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = MemoryFile::map(&file, true)?;
        for (word, value) in memory.words().iter().zip([MAGIC, VERSION]) {
            word.store(value, Ordering::Release);
        }
        Ok(Self { file, memory, taken: 0 })
    }

    /// The descriptor for the client.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes out what has been noted since the last time: blocks, and until when each is leased.
    pub fn take(&mut self, out: &mut Vec<(BlockId, Duration)>) {
        let words = self.memory.words();
        let published = words[PUBLISHED].load(Ordering::Acquire);
        let first = self.taken.max(published.saturating_sub(ENTRIES));
        let before = out.len();
        out.extend((first..published).map(|number| {
            let [low, high, until] =
                std::array::from_fn(|word| entry(&self.memory, number)[word].load(Ordering::Relaxed));
            (BlockId::from_words([low, high]), Duration::from_millis(until))
        }));
        fence(Ordering::Acquire);
        // Entries from `first` on that the writer has meanwhile begun to overwrite.
        let overwritten = words[CLAIMED].load(Ordering::Relaxed).saturating_sub(ENTRIES).saturating_sub(first);
        let torn = usize::try_from(overwritten).unwrap_or(usize::MAX).min(out.len() - before);
        out.drain(before..before + torn);
        self.taken = self.taken.max(published);
    }
}

/// The client's side.
pub struct LeaseWriter {
    memory: MemoryFile,
    published: u64,
    /// Entries that the owner is known to have taken.
    taken: u64,
}

impl LeaseWriter {
    /// Maps the ring that a node handed out.
    pub fn open(file: &OwnedFd) -> Result<Self, MapError> {
        let memory = MemoryFile::map(file, true)?;
        if memory.len() != RING_BYTES {
            return Err(FormatError::Length { file: "ring", found: memory.len(), expected: RING_BYTES }.into());
        }
        let [magic, version] = std::array::from_fn(|word| memory.words()[word].load(Ordering::Acquire));
        match (magic, version) {
            (MAGIC, VERSION) => Ok(Self { memory, published: 0, taken: 0 }),
            (MAGIC, found) => Err(FormatError::Version { file: "ring", found }.into()),
            _ => Err(FormatError::Magic { file: "ring" }.into()),
        }
    }

    /// The most that should be noted at a time.
    pub const MOST: usize = ENTRIES as usize;

    /// Whether `more` entries would overwrite some that the owner may not have taken.
    #[must_use]
    pub fn is_full_for(&self, more: usize) -> bool {
        self.published + more as u64 - self.taken > ENTRIES
    }

    /// The owner has taken what was noted up to now.
    pub fn all_taken(&mut self) {
        self.taken = self.published;
    }

    /// Notes that blocks are leased until `until`. When this returns the owner finds them.
    pub fn note(&mut self, ids: impl Iterator<Item = BlockId>, until: Duration) {
        let until = until.as_millis() as u64;
        let mut next = self.published;
        for id in ids {
            self.memory.words()[CLAIMED].store(next + 1, Ordering::Relaxed);
            fence(Ordering::Release);
            let [low, high] = id.words();
            for (word, value) in entry(&self.memory, next).iter().zip([low, high, until]) {
                word.store(value, Ordering::Relaxed);
            }
            next += 1;
        }
        self.memory.words()[PUBLISHED].store(next, Ordering::Release);
        self.published = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> BlockId {
        BlockId::from_words([n, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)])
    }

    fn until(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn pair() -> (LeaseRing, LeaseWriter) {
        let ring = LeaseRing::create().unwrap();
        let writer = LeaseWriter::open(&ring.descriptor().try_clone_to_owned().unwrap()).unwrap();
        (ring, writer)
    }

    #[test]
    fn what_is_noted_is_taken_once_and_a_full_ring_loses_the_oldest() {
        let (mut ring, mut writer) = pair();
        let mut taken = Vec::new();
        writer.note((0..3).map(id), until(5));
        ring.take(&mut taken);
        assert_eq!(taken, [(id(0), until(5)), (id(1), until(5)), (id(2), until(5))]);
        ring.take(&mut taken);
        assert_eq!(taken.len(), 3);
        taken.clear();
        writer.all_taken();
        assert!(!writer.is_full_for(LeaseWriter::MOST));
        writer.note((0..10).map(id), until(6));
        assert!(writer.is_full_for(LeaseWriter::MOST - 9) && !writer.is_full_for(LeaseWriter::MOST - 10));
        writer.note((10..ENTRIES + 10).map(id), until(6));
        ring.take(&mut taken);
        assert_eq!(taken.len() as u64, ENTRIES);
        assert_eq!(taken.first(), Some(&(id(10), until(6))));
        assert_eq!(taken.last(), Some(&(id(ENTRIES + 9), until(6))));
    }

    #[test]
    fn entries_that_are_overwritten_while_they_are_read_are_dropped_and_never_torn() {
        let (mut ring, mut writer) = pair();
        let last = 40 * ENTRIES;
        let writing = std::thread::spawn(move || {
            for start in (0..last).step_by(100) {
                let batch: Vec<u64> = (start..last.min(start + 100)).collect();
                writer.note(batch.iter().map(|n| id(*n)), until(batch[0] / 100));
            }
        });
        let (mut taken, mut latest, mut seen) = (Vec::new(), None, 0);
        while latest != Some(last - 1) {
            ring.take(&mut taken);
            for (found, when) in taken.drain(..) {
                let number = found.words()[0];
                assert_eq!(found, id(number));
                assert_eq!(when, until(number / 100));
                assert!(latest.is_none_or(|latest| number > latest));
                latest = Some(number);
                seen += 1;
            }
        }
        writing.join().unwrap();
        assert!(seen > 0);
    }

    #[test]
    fn a_ring_of_another_kind_is_refused() {
        let file = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert!(LeaseWriter::open(&file).is_err());
        rustix::fs::ftruncate(&file, RING_BYTES).unwrap();
        assert!(LeaseWriter::open(&file).is_err());
        let ring = LeaseRing::create().unwrap();
        assert!(rustix::fs::ftruncate(ring.descriptor(), 4096).is_err(), "a client must not shorten it");
    }
}
