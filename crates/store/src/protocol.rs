//! The shared-memory protocol between one owner and any number of readers: slot headers and the index over them.
//!
//! A slot header is eight words. Word 0, the *stamp*, is `generation << 3 | state`; generations come from one counter and
//! never repeat. A reader loads a sealed stamp, takes id, offset and length from the header, copies the bytes, fences, and
//! requires the stamp it started from ([`load_sealed`], [`unchanged`]). The owner raises the stamp and fences
//! ([`retire`]) before it changes a header or hands out its space, so whatever a reader took between two equal
//! stamps belongs to one block. The index only suggests slots: a wrong suggestion has another id, a stale one another
//! stamp, and both are misses.
//!
//! The index is a table of buckets of eight words: a count of entries that had to pass the bucket by, and seven entries
//! `tag << 32 | slot + 1`. Entries never move, so a reader that walks until it meets a bucket that nobody passed by has
//! seen every entry that was there all along.

use super::sync::{AtomicU64, Ordering, fence};

/// Words of a slot header, and of an index bucket: one cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Entries of a bucket.
const WAYS: usize = LINE_WORDS - 1;
/// Buckets that a probe looks at before it gives up.
const MAX_PROBE: usize = 64;

/// What a slot is. Only [`State::Sealed`] means anything to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum State {
    /// In nobody's use.
    Free = 0,
    /// Being written.
    Reserved = 1,
    /// Visible and immutable.
    Sealed = 2,
    /// Removed while still held; free once the last hold is gone.
    Withdrawn = 3,
    /// Found damaged; never used again.
    Damaged = 4,
}

const STATE_BITS: u32 = 3;

/// The stamp of a slot in its `generation`.
pub(crate) const fn stamp(generation: u64, state: State) -> u64 {
    generation << STATE_BITS | state as u64
}

/// The generation in a stamp.
pub(crate) const fn generation_of(stamp: u64) -> u64 {
    stamp >> STATE_BITS
}

/// A block as its slot header describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Described {
    /// The id, as words.
    pub(crate) id: [u64; 2],
    /// Where the block's bytes start in the slab.
    pub(crate) offset: u64,
    /// Bytes of the block.
    pub(crate) len: u64,
    /// Bytes of its key.
    pub(crate) key_len: u64,
    /// The client that wrote it.
    pub(crate) writer: u64,
}

/// Reader: the stamp and the contents of a sealed slot. Only to be believed once [`unchanged`] has agreed.
pub(crate) fn load_sealed(header: &[AtomicU64]) -> Option<(u64, Described)> {
    let stamp = header[0].load(Ordering::Acquire);
    if stamp & ((1 << STATE_BITS) - 1) != State::Sealed as u64 {
        return None;
    }
    let word = |index: usize| header[index].load(Ordering::Relaxed);
    let described =
        Described { id: [word(1), word(2)], offset: word(3), len: word(4), key_len: word(5), writer: word(6) };
    Some((stamp, described))
}

/// Reader: whether everything taken from the slot since `stamp` was loaded belongs together.
pub(crate) fn unchanged(header: &[AtomicU64], stamp: u64) -> bool {
    fence(Ordering::Acquire);
    header[0].load(Ordering::Relaxed) == stamp
}

/// Owner: makes the slot mean nothing to readers, before its header changes or its space is handed out.
pub(crate) fn retire(header: &[AtomicU64], stamp: u64) {
    header[0].store(stamp, Ordering::Relaxed);
    fence(Ordering::Release);
}

/// Owner: describes a reserved slot's block and makes it readable.
pub(crate) fn publish(header: &[AtomicU64], stamp: u64, described: &Described) {
    let Described { id, offset, len, key_len, writer } = *described;
    for (index, word) in [id[0], id[1], offset, len, key_len, writer].into_iter().enumerate() {
        header[index + 1].store(word, Ordering::Relaxed);
    }
    header[0].store(stamp, Ordering::Release);
}

/// The index: whole buckets of [`LINE_WORDS`] words.
#[derive(Clone, Copy)]
pub(crate) struct Index<'a>(pub(crate) &'a [AtomicU64]);

impl<'a> Index<'a> {
    fn buckets(self) -> usize {
        self.0.len() / LINE_WORDS
    }

    /// The bucket where the search for `id` starts.
    pub(crate) fn home(self, id: [u64; 2]) -> usize {
        ((u128::from(id[0]) * self.buckets() as u128) >> 64) as usize
    }

    /// The words of one bucket.
    pub(crate) fn bucket(self, bucket: usize) -> &'a [AtomicU64] {
        &self.0[bucket * LINE_WORDS..][..LINE_WORDS]
    }

    fn path(self, id: [u64; 2]) -> impl Iterator<Item = &'a [AtomicU64]> {
        let (home, buckets) = (self.home(id), self.buckets());
        (0..buckets.min(MAX_PROBE)).map(move |step| self.bucket((home + step) % buckets))
    }

    fn entry(id: [u64; 2], slot: u32) -> u64 {
        (id[1] << 32) | (u64::from(slot) + 1)
    }

    /// Reader: the first slot that the index suggests for `id` and that `accept` takes.
    pub(crate) fn find<T>(self, id: [u64; 2], mut accept: impl FnMut(u32) -> Option<T>) -> Option<T> {
        for bucket in self.path(id) {
            for way in &bucket[1..] {
                let entry = way.load(Ordering::Acquire);
                let tagged = entry >> 32 == id[1] & 0xffff_ffff && entry as u32 != 0;
                if let Some(found) = tagged.then(|| accept(entry as u32 - 1)).flatten() {
                    return Some(found);
                }
            }
            if bucket[0].load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        None
    }

    /// Owner: adds an entry. False when every bucket it could lie in is full.
    pub(crate) fn insert(self, id: [u64; 2], slot: u32) -> bool {
        let empty = |bucket: &'a [AtomicU64]| bucket[1..].iter().find(|way| way.load(Ordering::Relaxed) == 0);
        let Some((passed, way)) = self.path(id).enumerate().find_map(|(n, bucket)| Some((n, empty(bucket)?))) else {
            return false;
        };
        for bucket in self.path(id).take(passed) {
            bucket[0].store(bucket[0].load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        way.store(Self::entry(id, slot), Ordering::Release);
        true
    }

    /// Owner: takes an entry out.
    pub(crate) fn remove(self, id: [u64; 2], slot: u32) {
        let entry = Self::entry(id, slot);
        let mine = |bucket: &'a [AtomicU64]| bucket[1..].iter().find(|way| way.load(Ordering::Relaxed) == entry);
        let Some((passed, way)) = self.path(id).enumerate().find_map(|(n, bucket)| Some((n, mine(bucket)?))) else {
            return;
        };
        way.store(0, Ordering::Release);
        for bucket in self.path(id).take(passed) {
            bucket[0].store(bucket[0].load(Ordering::Relaxed) - 1, Ordering::Release);
        }
    }
}

const _: () = assert!(WAYS == 7, "docs/protocol.md says seven");
