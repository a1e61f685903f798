//! The shape of the two shared files, and the checks that a client makes before it believes them.

use crate::protocol::LINE_WORDS;
use crate::sync::{AtomicU64, Ordering};
use thiserror::Error;
use tidepool_types::Epoch;

#[cfg(not(target_endian = "little"))]
compile_error!("shared files are little-endian, and are mapped as they are");

/// Bytes in front of the headers in the map, and of the blocks in the slab.
pub(crate) const CONTROL_BYTES: u64 = 4096;
const LINE_BYTES: u64 = 8 * LINE_WORDS as u64;
/// The first bytes of a map.
pub(crate) const MAP_MARK: [u8; 8] = *b"TDPLMAP\0";
/// The first bytes of a slab.
pub(crate) const SLAB_MARK: [u8; 8] = *b"TDPLSLAB";
const MAP_MAGIC: u64 = u64::from_le_bytes(MAP_MARK);
const SLAB_MAGIC: u64 = u64::from_le_bytes(SLAB_MARK);
/// The version of both files.
pub const FORMAT_VERSION: u64 = 1;
/// Slots that one bucket of the index stands for: seven ways at four slots are 57 % full when every slot is in use.
const SLOTS_PER_BUCKET: u64 = 4;
/// Most slots of a node: an entry of the index has 32 bits for one.
pub const MAX_SLOTS: u64 = u32::MAX as u64 - 1;

/// Why a shared file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Not a file of ours.
    #[error("the {file} does not start with the mark of a Tidepool {file}")]
    Magic {
        /// Which of the two files.
        file: &'static str,
    },
    /// A file of another version.
    #[error("the {file} has format version {found}: this build reads version {FORMAT_VERSION}")]
    Version {
        /// Which of the two files.
        file: &'static str,
        /// Its version.
        found: u64,
    },
    /// A file too short for its numbers.
    #[error("the {file} has {found} bytes where its header asks for {expected} or more")]
    Length {
        /// Which of the two files.
        file: &'static str,
        /// Its length.
        found: u64,
        /// The length that its header implies.
        expected: u64,
    },
    /// A slab that belongs to another map.
    #[error("the slab belongs to epoch {slab:x}, the map to epoch {map:x}")]
    Epoch {
        /// The slab's epoch.
        slab: u64,
        /// The map's epoch.
        map: u64,
    },
}

/// The sizes of a node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) epoch: Epoch,
    pub(crate) slots: u64,
    /// Bytes for blocks, without the control page.
    pub(crate) capacity: u64,
}

impl Shape {
    pub(crate) fn buckets(self) -> u64 {
        self.slots.div_ceil(SLOTS_PER_BUCKET).max(1)
    }

    pub(crate) fn index_at(self) -> u64 {
        CONTROL_BYTES + self.slots * LINE_BYTES
    }

    pub(crate) fn map_bytes(self) -> u64 {
        self.index_at() + self.buckets() * LINE_BYTES
    }

    pub(crate) fn slab_bytes(self) -> u64 {
        CONTROL_BYTES + self.capacity
    }

    /// Writes both control pages.
    pub(crate) fn describe(self, map: &[AtomicU64], slab: &[AtomicU64]) {
        for (page, magic) in [(map, MAP_MAGIC), (slab, SLAB_MAGIC)] {
            let words = [magic, FORMAT_VERSION, self.epoch.0, self.slots, self.capacity];
            page.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Release));
        }
    }

    /// Reads and checks both control pages; every later access relies on this check.
    pub(crate) fn read(map: &[AtomicU64], slab: &[AtomicU64]) -> Result<Self, FormatError> {
        let shape = Self::read_page("map", map, MAP_MAGIC)?;
        let other = Self::read_page("slab", slab, SLAB_MAGIC)?;
        // A file on hugetlbfs ends at the end of a huge page.
        check_at_least("map", map, shape.map_bytes())?;
        check_at_least("slab", slab, shape.slab_bytes())?;
        if shape != other {
            return Err(FormatError::Epoch { slab: other.epoch.0, map: shape.epoch.0 });
        }
        Ok(shape)
    }

    fn read_page(file: &'static str, page: &[AtomicU64], magic: u64) -> Result<Self, FormatError> {
        check_at_least(file, page, CONTROL_BYTES)?;
        let [found, version, epoch, slots, capacity] = std::array::from_fn(|i| page[i].load(Ordering::Acquire));
        if found != magic {
            return Err(FormatError::Magic { file });
        }
        if version != FORMAT_VERSION {
            return Err(FormatError::Version { file, found: version });
        }
        // Bounds before arithmetic: the lengths below must not overflow.
        if slots > MAX_SLOTS || capacity > 1 << 50 {
            return Err(FormatError::Length { file, found: page.len() as u64 * 8, expected: u64::MAX });
        }
        Ok(Self { epoch: Epoch(epoch), slots, capacity })
    }
}

fn check_at_least(file: &'static str, page: &[AtomicU64], expected: u64) -> Result<(), FormatError> {
    let found = page.len() as u64 * 8;
    if found < expected { Err(FormatError::Length { file, found, expected }) } else { Ok(()) }
}
