//! Space in a slab: a two-level segregated fit over runs of granules.
//!
//! Any length fits without size classes, so one-size traffic packs end to end and a change of the size mix needs no
//! re-cut: neighbours that are free merge at once. Taking and giving back cost a constant time. The heap is private to the
//! owner and knows nothing of blocks; a run carries the slot that uses it, so that eviction can clear a window of
//! neighbours. Free runs of one class are reused oldest first, which gives slow readers the most time.

/// Bytes of the smallest run; every run is a multiple.
pub(crate) const GRANULE: u64 = 64;

const NONE: u32 = u32::MAX;
/// Subdivisions of each power of two: a class spans at most 1/32 of its size.
const SUB_BITS: u32 = 5;
const SUBS: usize = 1 << SUB_BITS;
const LEVELS: usize = 64 - SUB_BITS as usize;

/// A piece of the slab, free or in use.
#[derive(Clone, Copy)]
struct Run {
    /// Both in granules.
    start: u64,
    len: u64,
    before: u32,
    after: u32,
    /// Neighbours in the free list while the run is free.
    older: u32,
    newer: u32,
    /// The user's slot, or `NONE` when free.
    user: u32,
}

/// One free list, oldest first.
#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
}

/// A run that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunId(u32);

/// A free run, until the heap changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeRun(u32);

/// What lies beside a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    /// The end of the slab.
    Edge,
    /// Free space.
    Free(FreeRun),
    /// Space in use by this slot.
    Used(u32),
}

/// The side of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Lower addresses.
    Before,
    /// Higher addresses.
    After,
}

/// The free and used space of one slab.
pub(crate) struct Heap {
    runs: Vec<Run>,
    spare: Vec<u32>,
    lists: Vec<List>,
    level_bits: u64,
    sub_bits: [u32; LEVELS],
    granules: u64,
    free_granules: u64,
}

/// The class whose runs have at least the length of the class's lower bound, for storing a free run.
fn class_of(len: u64) -> (usize, usize) {
    if len < SUBS as u64 {
        return (0, len as usize);
    }
    let top = 63 - len.leading_zeros();
    let shift = top - SUB_BITS;
    ((shift + 1) as usize, ((len >> shift) as usize) & (SUBS - 1))
}

/// The first class in which every run is long enough for `len`.
fn class_for(len: u64) -> (usize, usize) {
    if len < SUBS as u64 {
        return class_of(len);
    }
    let shift = 63 - len.leading_zeros() - SUB_BITS;
    class_of(len + (1 << shift) - 1)
}

impl Heap {
    /// A heap over `bytes` bytes, all free; a remainder below a granule is left out.
    pub(crate) fn new(bytes: u64) -> Self {
        let lists = vec![List { oldest: NONE, newest: NONE }; LEVELS * SUBS];
        let len = bytes / GRANULE;
        let mut heap = Self {
            runs: Vec::new(),
            spare: Vec::new(),
            lists,
            level_bits: 0,
            sub_bits: [0; LEVELS],
            granules: len,
            free_granules: len,
        };
        if len > 0 {
            let run =
                heap.new_run(Run { start: 0, len, before: NONE, after: NONE, older: NONE, newer: NONE, user: NONE });
            heap.link_free(run);
        }
        heap
    }

    /// Bytes that are free, in one run or many.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_granules * GRANULE
    }

    /// Takes `bytes` bytes that start at a multiple of `align` (a power of two) for `user`.
    pub(crate) fn take(&mut self, bytes: u64, align: u64, user: u32) -> Option<(RunId, u64)> {
        let want = bytes.div_ceil(GRANULE).max(1);
        let align = (align / GRANULE).max(1);
        let found = self.find(want, align)?;
        Some(self.take_found(found, want, align, user))
    }

    /// As [`Heap::take`], out of the free run that [`Heap::give_back`] named and nothing has been taken from since. Other
    /// free runs of the same class may be older, and too short: this one needs no search.
    pub(crate) fn take_from(&mut self, free: FreeRun, bytes: u64, align: u64, user: u32) -> Option<(RunId, u64)> {
        let want = bytes.div_ceil(GRANULE).max(1);
        let align = (align / GRANULE).max(1);
        self.fits(free.0, want, align).then(|| self.take_found(free.0, want, align, user))
    }

    fn take_found(&mut self, found: u32, want: u64, align: u64, user: u32) -> (RunId, u64) {
        let run = self.split_front(found, align);
        self.unlink_free(run);
        if self.runs[run as usize].len > want {
            let rest = self.split(run, want);
            self.link_free(rest);
        }
        self.runs[run as usize].user = user;
        self.free_granules -= want;
        (RunId(run), self.runs[run as usize].start * GRANULE)
    }

    /// Gives a run back; it merges with free neighbours. Returns the free run that it became part of.
    pub(crate) fn give_back(&mut self, RunId(run): RunId) -> FreeRun {
        self.runs[run as usize].user = NONE;
        self.free_granules += self.runs[run as usize].len;
        let run = self.merge_before(run);
        self.merge_after(run);
        self.link_free(run);
        FreeRun(run)
    }

    /// What lies on one side of a run that is in use.
    pub(crate) fn neighbour(&self, RunId(run): RunId, side: Side) -> Neighbour {
        self.describe(self.beside(run, side))
    }

    /// What lies beyond the free space on one side of a run that is in use.
    pub(crate) fn neighbour_past_free(&self, run: RunId, side: Side) -> Neighbour {
        match self.neighbour(run, side) {
            Neighbour::Free(FreeRun(free)) => self.describe(self.beside(free, side)),
            other => other,
        }
    }

    /// Bytes of the free space on one side of a run that is in use.
    pub(crate) fn free_beside(&self, run: RunId, side: Side) -> u64 {
        match self.neighbour(run, side) {
            Neighbour::Free(FreeRun(free)) => self.runs[free as usize].len * GRANULE,
            _ => 0,
        }
    }

    /// Where a run that is in use starts and ends.
    pub(crate) fn span(&self, RunId(run): RunId) -> (u64, u64) {
        let Run { start, len, .. } = self.runs[run as usize];
        (start * GRANULE, (start + len) * GRANULE)
    }

    /// What lies at the start of the slab.
    pub(crate) fn first(&self) -> Neighbour {
        // A run keeps its number when it is cut and when it grows, so the first is the one made first.
        self.describe(0)
    }

    /// Where the slab ends.
    pub(crate) fn end(&self) -> u64 {
        self.granules * GRANULE
    }

    fn beside(&self, run: u32, side: Side) -> u32 {
        match side {
            Side::Before => self.runs[run as usize].before,
            Side::After => self.runs[run as usize].after,
        }
    }

    fn describe(&self, run: u32) -> Neighbour {
        match self.runs.get(run as usize) {
            None => Neighbour::Edge,
            Some(found) if found.user == NONE => Neighbour::Free(FreeRun(run)),
            Some(found) => Neighbour::Used(found.user),
        }
    }

    fn is_free(&self, run: u32) -> bool {
        matches!(self.describe(run), Neighbour::Free(_))
    }

    /// A free run in which `want` granules fit behind the padding that alignment needs.
    fn find(&self, want: u64, align: u64) -> Option<u32> {
        // The oldest run of the exact class serves one-size traffic without padding; otherwise room for any padding.
        let (level, sub) = class_of(want);
        let exact = self.lists[level * SUBS + sub].oldest;
        if self.fits(exact, want, align) {
            return Some(exact);
        }
        let (level, sub) = class_for(want);
        let first = self.first_at_least(level, sub)?;
        if self.fits(first, want, align) {
            return Some(first);
        }
        let (level, sub) = class_for(want + align - 1);
        self.first_at_least(level, sub)
    }

    fn fits(&self, run: u32, want: u64, align: u64) -> bool {
        self.runs.get(run as usize).is_some_and(|run| run.len >= want + padding(run.start, align))
    }

    fn first_at_least(&self, level: usize, sub: usize) -> Option<u32> {
        let here = self.sub_bits[level] & (u32::MAX << sub);
        let (level, bits) = if here != 0 {
            (level, here)
        } else {
            let levels = self.level_bits & (u64::MAX.checked_shl(level as u32 + 1).unwrap_or(0));
            let level = levels.trailing_zeros() as usize;
            (level, *self.sub_bits.get(level)?)
        };
        Some(self.lists[level * SUBS + bits.trailing_zeros() as usize].oldest)
    }

    /// Cuts the padding off the front of a free run; the padding stays free.
    fn split_front(&mut self, run: u32, align: u64) -> u32 {
        let padding = padding(self.runs[run as usize].start, align);
        if padding == 0 {
            return run;
        }
        self.unlink_free(run);
        let rest = self.split(run, padding);
        self.link_free(run);
        self.link_free(rest);
        rest
    }

    /// Cuts a run that is in no list after `len` granules; the new run is in no list either.
    fn split(&mut self, run: u32, len: u64) -> u32 {
        let whole = self.runs[run as usize];
        let rest =
            self.new_run(Run { start: whole.start + len, len: whole.len - len, before: run, user: NONE, ..whole });
        self.runs[run as usize].len = len;
        self.runs[run as usize].after = rest;
        if let Some(after) = self.runs.get_mut(whole.after as usize) {
            after.before = rest;
        }
        rest
    }

    fn merge_before(&mut self, run: u32) -> u32 {
        let before = self.runs[run as usize].before;
        if !self.is_free(before) {
            return run;
        }
        self.unlink_free(before);
        self.absorb_after(before);
        before
    }

    fn merge_after(&mut self, run: u32) {
        let after = self.runs[run as usize].after;
        if self.is_free(after) {
            self.unlink_free(after);
            self.absorb_after(run);
        }
    }

    /// Makes the run after `run` part of it. Neither may be in a list.
    fn absorb_after(&mut self, run: u32) {
        let gone = self.runs[run as usize].after;
        let Run { len, after, .. } = self.runs[gone as usize];
        self.runs[run as usize].len += len;
        self.runs[run as usize].after = after;
        if let Some(after) = self.runs.get_mut(after as usize) {
            after.before = run;
        }
        self.spare.push(gone);
    }

    fn new_run(&mut self, run: Run) -> u32 {
        if let Some(index) = self.spare.pop() {
            self.runs[index as usize] = run;
            return index;
        }
        self.runs.push(run);
        self.runs.len() as u32 - 1
    }

    fn link_free(&mut self, run: u32) {
        let (level, sub) = class_of(self.runs[run as usize].len);
        let newest = std::mem::replace(&mut self.lists[level * SUBS + sub].newest, run);
        self.runs[run as usize].older = newest;
        self.runs[run as usize].newer = NONE;
        match self.runs.get_mut(newest as usize) {
            Some(newest) => newest.newer = run,
            None => self.lists[level * SUBS + sub].oldest = run,
        }
        self.sub_bits[level] |= 1 << sub;
        self.level_bits |= 1 << level;
    }

    fn unlink_free(&mut self, run: u32) {
        let Run { len, older, newer, .. } = self.runs[run as usize];
        let (level, sub) = class_of(len);
        match self.runs.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.lists[level * SUBS + sub].oldest = newer,
        }
        match self.runs.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.lists[level * SUBS + sub].newest = older,
        }
        if self.lists[level * SUBS + sub].oldest == NONE {
            self.sub_bits[level] &= !(1 << sub);
            if self.sub_bits[level] == 0 {
                self.level_bits &= !(1 << level);
            }
        }
    }
}

/// Granules from `start` to the next multiple of `align`.
fn padding(start: u64, align: u64) -> u64 {
    start.next_multiple_of(align) - start
}

#[cfg(test)]
mod tests;
