//! What one lock guards: a few segments, and the holders that do not fit into their entries.

use super::SEGMENTS_PER_SHARD;
use super::arena::Arena;
use super::batch::Item;
use super::holder::{Holder, Packed, StreamSlot};
use super::segment::{Entry, INLINE, Mixed, Segment};
use super::slots::SlotSet;
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;

/// Invariant: an id is in `overflow` if and only if its entry carries [`Packed::OVERFLOW`].
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) segments: [Segment; SEGMENTS_PER_SHARD],
    /// Ids in all segments, which lie too far apart to be asked for every small batch.
    len: usize,
    overflow: Overflow,
}

type Overflow = HashMap<Mixed, Vec<Packed>>;

impl Shard {
    pub(super) fn new(arena: &Arc<Arena>) -> Self {
        let segments = std::array::from_fn(|_| Segment::new(arena.clone()));
        Self { segments, len: 0, overflow: Overflow::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where a segment of a shard is, which takes no look at the shard.
    pub(super) fn segment_at(shard: *const Self, segment: usize) -> *const Segment {
        shard.wrapping_byte_add(offset_of!(Self, segments)).cast::<Segment>().wrapping_add(segment)
    }

    #[inline]
    pub(super) fn prefetch(&self, item: Item) {
        self.segments[item.segment()].prefetch(item.id.hash);
    }

    pub(super) fn holders_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = Holder> + 'a {
        let more = entry.holders.contains(&Packed::OVERFLOW).then(|| self.overflow.get(&entry.id)).flatten();
        entry.holders.iter().chain(more.into_iter().flatten()).filter_map(|holder| holder.get())
    }

    pub(super) fn add(&mut self, item: Item, holder: Holder, live: &SlotSet) {
        let (segment, overflow) = (&mut self.segments[item.segment()], &mut self.overflow);
        let known = segment.change(item.id, |entry| {
            let in_place = !entry.holders.contains(&Packed::OVERFLOW) && entry.put(holder, live);
            if !in_place {
                let mut all = take_all(entry, overflow);
                all.retain(|h| h.get().is_some_and(|h| h.slot != holder.slot && live.contains(h.slot)));
                all.push(Packed::new(holder));
                store_all(entry, overflow, all);
            }
        });
        if !known {
            let mut entry = Entry { id: item.id, ..Entry::EMPTY };
            entry.holders[0] = Packed::new(holder);
            segment.insert(entry);
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, item: Item, slot: StreamSlot) {
        let (segment, overflow) = (&mut self.segments[item.segment()], &mut self.overflow);
        let before = segment.len();
        segment.change(item.id, |entry| strip(entry, overflow, |holder| holder == slot));
        self.len -= before - segment.len();
    }

    pub(super) fn sweep(&mut self, segment: usize, gone: impl Fn(StreamSlot) -> bool) {
        let (segment, overflow) = (&mut self.segments[segment], &mut self.overflow);
        let before = segment.len();
        segment.sweep(|entry| strip(entry, overflow, &gone));
        self.len -= before - segment.len();
        overflow.shrink_to(overflow.len() * 2);
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.segments.iter().for_each(Segment::check);
        assert_eq!(self.len, self.segments.iter().map(Segment::len).sum());
    }
}

/// Drops the holders that `gone` names from an entry and from its overflow.
fn strip(entry: &mut Entry, overflow: &mut Overflow, gone: impl Fn(StreamSlot) -> bool) {
    if entry.holders.contains(&Packed::OVERFLOW) {
        let mut all = take_all(entry, overflow);
        all.retain(|holder| holder.get().is_some_and(|holder| !gone(holder.slot)));
        store_all(entry, overflow, all);
    } else {
        entry.strip(gone);
    }
}

fn take_all(entry: &mut Entry, overflow: &mut Overflow) -> Vec<Packed> {
    let mut all: Vec<_> = entry.holders.into_iter().filter(|holder| holder.get().is_some()).collect();
    all.extend(overflow.remove(&entry.id).unwrap_or_default());
    all
}

fn store_all(entry: &mut Entry, overflow: &mut Overflow, mut all: Vec<Packed>) {
    entry.holders = [Packed::NONE; INLINE];
    if all.len() > INLINE {
        entry.holders[INLINE - 1] = Packed::OVERFLOW;
        overflow.insert(entry.id, all.split_off(INLINE - 1));
    }
    entry.holders[..all.len()].copy_from_slice(&all);
}
