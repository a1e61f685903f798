//! One piece of the table: open addressing with linear probing, kept in the order of the hashes.
//!
//! Invariants. Entries lie in ascending order of their hash; none lies before its home, the place its hash points to;
//! between an entry and its home no place is empty; and an empty place is [`Entry::EMPTY`], at which a search ends. The
//! order makes an unsuccessful search as short as a successful one and allows the table to run well filled. It also makes
//! growing, shrinking and sweeping the same in-place pass, which needs no second table.
//!
//! Memory comes in small chunks of one size, so a table that grows a little at a time leaves no holes in the heap.

use super::arena::{Arena, Chunk};
use super::holder::{Holder, Packed, StreamSlot};
use super::prefetch::prefetch;
use super::slots::SlotSet;
use std::sync::Arc;

/// Entries in one chunk: 3 KiB.
pub(super) const CHUNK: usize = 128;

/// Places after the last home: room for the entries that were pushed on by those before them. With fewer, it would be
/// the end of the table, not its load, that makes it grow.
const SLACK: usize = 32;

/// Holders that fit into an entry.
pub(super) const INLINE: usize = 4;

/// An id and its holders. An entry without holders is an empty place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Mixed,
    pub(super) holders: [Packed; INLINE],
}

impl Entry {
    /// Its hash is above (or equal to) any other: a search for a place need not look at the holders to stop here.
    pub(super) const EMPTY: Self = Self { id: Mixed { hash: u64::MAX, word: 0 }, holders: [Packed::NONE; INLINE] };

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

/// An id as the table keeps it: its hash and one of its own words, which together are as good as the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Mixed {
    pub(super) hash: u64,
    pub(super) word: u64,
}

/// How an id becomes a place in a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hasher {
    factors: [u64; 2],
    /// Of the first factor.
    inverse: u64,
}

impl Hasher {
    /// Draws the two factors from `seed`: nobody outside can aim at one place.
    pub(super) const fn new(seed: [u64; 2]) -> Self {
        let factors = [seed[0] | 1, seed[1] | 1];
        Self { factors, inverse: inverse(factors[0]) }
    }

    /// The upper bits of the sum of two products with random odd factors are as good as random. For a given second word
    /// the hash is a bijection of the first, so different ids stay different.
    #[inline]
    pub(super) const fn mix(self, id: [u64; 2]) -> Mixed {
        let hash = id[0].wrapping_mul(self.factors[0]).wrapping_add(id[1].wrapping_mul(self.factors[1]));
        Mixed { hash, word: id[1] }
    }

    /// The id that becomes this.
    #[inline]
    pub(super) const fn unmix(self, mixed: Mixed) -> [u64; 2] {
        [mixed.hash.wrapping_sub(mixed.word.wrapping_mul(self.factors[1])).wrapping_mul(self.inverse), mixed.word]
    }
}

/// What an odd number is multiplied with to give one.
const fn inverse(odd: u64) -> u64 {
    // Of an odd number, x * (2 - n * x) has twice as many bits of the inverse as x; any odd number has three of its own.
    let (mut inverse, mut bits) = (odd, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

/// Bits of a hash that choose the segment; the rest choose the place in it.
pub(super) const SEGMENT_BITS: u32 = 12;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Segment {
    chunks: Vec<Chunk>,
    len: usize,
    arena: Arc<Arena>,
}

impl Segment {
    pub(super) const fn new(arena: Arc<Arena>) -> Self {
        Self { chunks: Vec::new(), len: 0, arena }
    }

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
        let rank = hash << SEGMENT_BITS;
        ((u128::from(rank) * self.places().saturating_sub(SLACK) as u128) >> 64) as usize
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
    fn find(&self, id: Mixed) -> Result<usize, usize> {
        let places = self.places();
        let mut place = self.home(id.hash);
        while place < places && self.at(place).id.hash < id.hash {
            place += 1;
        }
        // Two ids of one hash are possible, and so are empty places that look like the highest hash.
        while place < places && self.at(place).id.hash == id.hash && !self.at(place).is_empty() {
            if self.at(place).id.word == id.word {
                return Ok(place);
            }
            place += 1;
        }
        Err(place)
    }

    /// The entry of `id`.
    #[inline]
    pub(super) fn get(&self, id: Mixed) -> Option<&Entry> {
        self.find(id).ok().map(|place| self.at(place))
    }

    /// Every entry, in the order of the hashes.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|entry| !entry.is_empty())
    }

    /// Lets `change` have the entry of `id`, and takes it out when that leaves it without holders. False when there is none.
    pub(super) fn change(&mut self, id: Mixed, change: impl FnOnce(&mut Entry)) -> bool {
        let Ok(place) = self.find(id) else { return false };
        change(self.at_mut(place));
        if self.at(place).is_empty() {
            self.take_out(place);
        }
        true
    }

    /// Adds an entry whose id is not in the segment.
    pub(super) fn insert(&mut self, entry: Entry) {
        if self.len * 4 >= self.places() * 3 {
            self.rebuild(self.chunks.len() + 1 + self.chunks.len() / 10);
        }
        loop {
            let place = self.find(entry.id).unwrap_or_else(|place| place);
            if let Some(free) = (place..self.places()).find(|place| self.at(*place).is_empty()) {
                for to in (place + 1..=free).rev() {
                    *self.at_mut(to) = *self.at(to - 1);
                }
                *self.at_mut(place) = entry;
                self.len += 1;
                return;
            }
            self.rebuild(self.chunks.len() + 1);
        }
    }

    /// Closes the gap that an entry leaves: those after it move up, as far as they are not at home.
    fn take_out(&mut self, mut gap: usize) {
        while gap + 1 < self.places() {
            let next = *self.at(gap + 1);
            if next.is_empty() || self.home(next.id.hash) == gap + 1 {
                break;
            }
            *self.at_mut(gap) = next;
            gap += 1;
        }
        *self.at_mut(gap) = Entry::EMPTY;
        self.len -= 1;
        // The last chunk stays until a sweep: a catalog that is filled, emptied and filled again would otherwise give back
        // and take anew a chunk for almost every id.
        if let Some(chunks) = self.shrunk().filter(|chunks| *chunks > 0) {
            self.rebuild(chunks);
        }
    }

    /// Shows every entry to `change` and drops those it leaves without holders. Gives memory back when little is left.
    pub(super) fn sweep(&mut self, mut change: impl FnMut(&mut Entry)) {
        let mut emptied = 0;
        for entry in self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()) {
            if !entry.is_empty() {
                change(entry);
                if entry.is_empty() {
                    *entry = Entry::EMPTY;
                    emptied += 1;
                }
            }
        }
        if emptied > 0 {
            self.len -= emptied;
            self.rebuild(self.shrunk().unwrap_or(self.chunks.len()));
        }
    }

    /// The number of chunks to shrink to when most places are empty.
    fn shrunk(&self) -> Option<usize> {
        let wanted = (self.len * 3 / 2).div_ceil(CHUNK);
        (wanted * 2 < self.chunks.len()).then_some(wanted)
    }

    /// Lays the entries out again over `chunks` chunks, or over more when their clusters need it. In place: packs them to
    /// the front, moves them to the back, and puts each, first to last, where it belongs, which is never behind where it
    /// is read from.
    fn rebuild(&mut self, chunks: usize) {
        self.pack();
        let mut chunks = chunks.max(self.len.div_ceil(CHUNK));
        loop {
            self.chunks.resize_with(chunks, || self.arena.take());
            self.chunks.shrink_to_fit();
            if self.spread() {
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
    fn spread(&mut self) -> bool {
        let back = self.places() - self.len;
        for index in (0..self.len).rev() {
            let entry = std::mem::replace(self.at_mut(index), Entry::EMPTY);
            *self.at_mut(back + index) = entry;
        }
        let mut next = 0;
        for from in back..self.places() {
            let to = next.max(self.home(self.at(from).id.hash));
            if to > from {
                return false;
            }
            let entry = std::mem::replace(self.at_mut(from), Entry::EMPTY);
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
    pub(super) fn check(&self) {
        let mut previous = 0;
        let mut len = 0;
        for place in (0..self.places()).filter(|place| !self.at(*place).is_empty()) {
            let hash = self.at(place).id.hash;
            let home = self.home(hash);
            assert!(home <= place, "an entry lies before its home");
            assert!((home..place).all(|p| !self.at(p).is_empty()), "a gap between an entry and its home");
            assert!(previous <= hash, "entries out of order");
            previous = hash;
            len += 1;
        }
        assert_eq!(len, self.len);
        let empty = (0..self.places()).map(|place| self.at(place)).filter(|entry| entry.is_empty());
        assert!(empty.copied().all(|entry| entry == Entry::EMPTY), "an empty place looks like an entry");
    }
}
