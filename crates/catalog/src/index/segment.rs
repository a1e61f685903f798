//! One piece of the table: open addressing with linear probing, kept in the order of the hashes.
//!
//! Invariants. Entries lie in ascending order of their hash; none lies before its home, the place its hash points to; and
//! between an entry and its home no place is empty. The order makes an unsuccessful search as short as a successful one
//! and allows the table to run nearly full. It also makes growing, shrinking and sweeping the same in-place pass, which
//! needs no second table.
//!
//! Memory comes in small chunks of one size, so a table that grows a little at a time leaves no holes in the heap.

use super::holder::{Holder, Packed, StreamSlot};
use super::prefetch::prefetch;
use super::slots::SlotSet;

/// Entries in one chunk: 3 KiB.
const CHUNK: usize = 128;

/// Places after the last home: room for the entries that were pushed on by those before them. With fewer, it would be
/// the end of the table, not its load, that makes it grow.
const SLACK: usize = 32;

/// Holders that fit into an entry.
pub(super) const INLINE: usize = 4;

/// An id and its holders. An entry without holders is an empty place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: [u64; 2],
    pub(super) holders: [Packed; INLINE],
}

impl Entry {
    pub(super) const EMPTY: Self = Self { id: [0; 2], holders: [Packed::NONE; INLINE] };

    /// Holders are kept to the front, so the first place tells.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.holders[0].is_none()
    }

    /// Replaces what `holder.slot` had said, or takes a place that is free or belongs to a stream that is no longer live.
    /// False when there is no such place.
    pub(super) fn put(&mut self, holder: Holder, live: &SlotSet) -> bool {
        let same = self.holders.iter().position(|h| h.is_slot(holder.slot));
        let usable = |h: &Packed| h.get().map_or(h.is_none(), |held| !live.contains(held.slot));
        match same.or_else(|| self.holders.iter().position(usable)) {
            Some(place) => self.holders[place] = Packed::new(holder),
            None => return false,
        }
        true
    }

    /// Drops the holders that `gone` names, closing the gaps. True when one was dropped.
    pub(super) fn strip(&mut self, gone: impl Fn(StreamSlot) -> bool) -> bool {
        let before = self.holders;
        self.holders = [Packed::NONE; INLINE];
        let mut kept = 0;
        for holder in before {
            let stays = holder.get().map_or(!holder.is_none(), |h| !gone(h.slot));
            if stays {
                self.holders[kept] = holder;
                kept += 1;
            }
        }
        self.holders != before
    }
}

/// How an id becomes a place in a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hasher {
    seed: [u64; 2],
}

impl Hasher {
    pub(super) const fn new(seed: [u64; 2]) -> Self {
        Self { seed }
    }

    /// Folds both words of the id with this process's seed: nobody outside can aim at one place.
    #[inline]
    pub(super) fn hash(self, id: [u64; 2]) -> u64 {
        let product = u128::from(id[0] ^ self.seed[0]) * u128::from(id[1] ^ self.seed[1]);
        product as u64 ^ (product >> 64) as u64
    }
}

/// Bits of a hash that choose the segment; the rest choose the place in it.
pub(super) const SEGMENT_BITS: u32 = 12;

/// The bits of a hash that order the entries of one segment.
#[inline]
const fn rank(hash: u64) -> u64 {
    hash << SEGMENT_BITS
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Segment {
    chunks: Vec<Box<[Entry; CHUNK]>>,
    len: usize,
}

impl Segment {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    fn places(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    #[inline]
    fn at(&self, place: usize) -> &Entry {
        &self.chunks[place / CHUNK][place % CHUNK]
    }

    #[inline]
    fn at_mut(&mut self, place: usize) -> &mut Entry {
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// The place that `hash` points to: order-preserving, whatever the number of places.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u128::from(rank(hash)) * self.places().saturating_sub(SLACK) as u128) >> 64) as usize
    }

    /// Starts to fetch the place at which a search for `hash` begins.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if !self.chunks.is_empty() {
            prefetch(self.at(self.home(hash)));
        }
    }

    /// The place of `id`, or the place where it would go.
    #[inline]
    fn find(&self, id: [u64; 2], hash: u64, hasher: Hasher) -> Result<usize, usize> {
        let places = self.places();
        for place in self.home(hash)..places {
            let entry = self.at(place);
            if entry.id == id && !entry.is_empty() {
                return Ok(place);
            }
            if entry.is_empty() || rank(hasher.hash(entry.id)) > rank(hash) {
                return Err(place);
            }
        }
        Err(places)
    }

    /// The entry of `id`.
    #[inline]
    pub(super) fn get(&self, id: [u64; 2], hash: u64, hasher: Hasher) -> Option<&Entry> {
        self.find(id, hash, hasher).ok().map(|place| self.at(place))
    }

    /// The entry of `id`, to be changed; the caller calls [`Segment::remove`] when no holder is left.
    pub(super) fn get_mut(&mut self, id: [u64; 2], hash: u64, hasher: Hasher) -> Option<&mut Entry> {
        self.find(id, hash, hasher).ok().map(|place| self.at_mut(place))
    }

    /// Adds an entry whose id is not in the segment.
    pub(super) fn insert(&mut self, entry: Entry, hasher: Hasher) {
        let hash = hasher.hash(entry.id);
        if self.len * 8 >= self.places() * 7 {
            self.rebuild(self.chunks.len() + 1 + self.chunks.len() / 10, hasher);
        }
        loop {
            let place = self.find(entry.id, hash, hasher).unwrap_or_else(|place| place);
            if let Some(free) = (place..self.places()).find(|place| self.at(*place).is_empty()) {
                for to in (place + 1..=free).rev() {
                    *self.at_mut(to) = *self.at(to - 1);
                }
                *self.at_mut(place) = entry;
                self.len += 1;
                return;
            }
            self.rebuild(self.chunks.len() + 1, hasher);
        }
    }

    /// Takes the entry of `id` out and closes the gap.
    pub(super) fn remove(&mut self, id: [u64; 2], hasher: Hasher) {
        // An entry whose last holder has just gone counts as an empty place, so look for the id itself.
        let start = self.home(hasher.hash(id));
        let Some(mut gap) = (start..self.places()).find(|place| self.at(*place).id == id) else { return };
        while gap + 1 < self.places() {
            let next = *self.at(gap + 1);
            if next.is_empty() || self.home(hasher.hash(next.id)) == gap + 1 {
                break;
            }
            *self.at_mut(gap) = next;
            gap += 1;
        }
        *self.at_mut(gap) = Entry::EMPTY;
        self.len -= 1;
        if let Some(chunks) = self.shrunk() {
            self.rebuild(chunks, hasher);
        }
    }

    /// Shows every entry to `change` and drops those it leaves without holders. Gives memory back when little is left.
    pub(super) fn sweep(&mut self, mut change: impl FnMut(&mut Entry), hasher: Hasher) {
        let mut emptied = 0;
        for entry in self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()) {
            if !entry.is_empty() {
                change(entry);
                emptied += usize::from(entry.is_empty());
            }
        }
        if emptied > 0 {
            self.len -= emptied;
            self.rebuild(self.shrunk().unwrap_or(self.chunks.len()), hasher);
        }
    }

    /// The number of chunks to shrink to when most places are empty.
    fn shrunk(&self) -> Option<usize> {
        let wanted = (self.len * 5 / 4).div_ceil(CHUNK);
        (wanted * 2 < self.chunks.len()).then_some(wanted)
    }

    /// Lays the entries out again over `chunks` chunks, or over more when their clusters need it. In place: packs them to
    /// the front, moves them to the back, and puts each, first to last, where it belongs, which is never behind where it
    /// is read from.
    fn rebuild(&mut self, chunks: usize, hasher: Hasher) {
        self.pack();
        let mut chunks = chunks.max(self.len.div_ceil(CHUNK));
        loop {
            self.chunks.resize_with(chunks, || Box::new([Entry::EMPTY; CHUNK]));
            self.chunks.shrink_to_fit();
            if self.spread(hasher) {
                return;
            }
            self.pack();
            chunks += 1;
        }
    }

    /// Moves all entries to the front, in order.
    fn pack(&mut self) {
        let mut to = 0;
        for from in 0..self.places() {
            let entry = *self.at(from);
            if !entry.is_empty() {
                *self.at_mut(from) = Entry::EMPTY;
                *self.at_mut(to) = entry;
                to += 1;
            }
        }
    }

    /// From packed to the front to where each entry belongs. False when the last of them do not fit behind their homes.
    fn spread(&mut self, hasher: Hasher) -> bool {
        let back = self.places() - self.len;
        for index in (0..self.len).rev() {
            let entry = std::mem::take(self.at_mut(index));
            *self.at_mut(back + index) = entry;
        }
        let mut next = 0;
        for from in back..self.places() {
            let to = next.max(self.home(hasher.hash(self.at(from).id)));
            if to > from {
                return false;
            }
            let entry = std::mem::take(self.at_mut(from));
            *self.at_mut(to) = entry;
            next = to + 1;
        }
        true
    }

    #[cfg(test)]
    pub(super) fn is_bare(&self) -> bool {
        self.chunks.is_empty()
    }

    #[cfg(test)]
    pub(super) fn check(&self, hasher: Hasher) {
        let mut previous: Option<(usize, u64)> = None;
        let mut len = 0;
        for place in 0..self.places() {
            let entry = self.at(place);
            if entry.is_empty() {
                continue;
            }
            len += 1;
            let hash = hasher.hash(entry.id);
            let home = self.home(hash);
            assert!(home <= place, "an entry lies before its home");
            assert!((home..place).all(|p| !self.at(p).is_empty()), "a gap between an entry and its home");
            assert!(previous.is_none_or(|(_, rank_before)| rank_before <= rank(hash)), "entries out of order");
            previous = Some((place, rank(hash)));
        }
        assert_eq!(len, self.len);
    }
}
