//! Borrowed views: a block's bytes where they lie in its owner's memory, without a copy.
//!
//! A view pins its block: whatever is evicted or removed around it, its bytes stay. Past the owner's bound on pinned
//! bytes, for a process that the owner cannot watch, and for blocks on other hosts, a view is a copy instead.
#![expect(unsafe_code, reason = "a view is a slice of its owner's mapped memory")]

use crate::client::Client;
use crate::counters::add;
use crate::error::GetError;
use crate::peers::{MappedNode, Peer};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use tidepool_types::{BlockId, Deadline};
use tidepool_wire::message::{Reply, Request, SlotName, ViewOutcome};

/// A block's bytes, right until this is dropped.
pub struct View(Bytes);

enum Bytes {
    Borrowed(Pinned),
    Copied(Vec<u8>),
}

/// A block that its owner keeps in place for this process.
struct Pinned {
    start: *const u8,
    len: usize,
    slot: SlotName,
    /// Keeps the memory mapped, and the way to tell the owner.
    memory: Arc<MappedNode>,
}

// SAFETY: the bytes are immutable while they are pinned, so any thread may read them and any thread may let them go.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl View {
    /// Whether the bytes are the owner's own, not a copy.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Bytes::Borrowed(_))
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the range lies inside the mapping (checked when the view was made), which lives as long as the view;
            // the owner neither reuses nor writes to a pinned block's place until it is let go.
            Bytes::Borrowed(pinned) => unsafe { std::slice::from_raw_parts(pinned.start, pinned.len) },
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).field("borrowed", &self.is_borrowed()).finish()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.memory.let_go(&[self.slot]);
    }
}

impl Client {
    /// A view of a block, or `None` for a miss.
    pub fn view(&self, key: impl AsRef<[u8]>) -> Result<Option<View>, GetError> {
        self.view_batch(&[key]).pop().unwrap_or(Ok(None))
    }

    /// Views of many blocks, in the order of `keys`. What cannot be borrowed is fetched together.
    pub fn view_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<View>, GetError>> {
        let (core, deadline) = (self.core(), self.deadline());
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let ids = core.id_of_each(&keys);
        let mut views: Vec<Option<View>> = keys.iter().map(|_| None).collect();
        for peer in &core.peers.table().locals {
            borrow_from(peer, &ids, &mut views, deadline);
        }
        let borrowed = views.iter().flatten().count() as u64;
        add(&core.counters.views_borrowed, borrowed);
        let rest = views.iter().zip(keys).filter(|(view, _)| view.is_none()).map(|(_, key)| key);
        let rest: Vec<&[u8]> = rest.collect();
        // Keys that cannot be are among them, and come back as errors.
        let mut copies = self.until(deadline).get_batch(&rest).into_iter();
        let finish = |view: Option<View>| match view {
            Some(view) => Ok(Some(view)),
            None => Ok(copies.next().unwrap_or(Ok(None))?.map(|bytes| View(Bytes::Copied(bytes)))),
        };
        let answers: Vec<Result<Option<View>, GetError>> = views.into_iter().map(finish).collect();
        let had = answers.iter().filter(|answer| matches!(answer, Ok(Some(_)))).count() as u64;
        add(&core.counters.views_copied, had - borrowed);
        answers
    }
}

/// Borrows what one node of this host holds and still is wanted, in one round trip unless they are very many.
fn borrow_from<E>(peer: &Peer, ids: &[Result<BlockId, E>], views: &mut [Option<View>], deadline: Deadline) {
    let Some(memory) = peer.memory().filter(|memory| memory.writable) else { return };
    let here = |index: &usize| {
        let id = ids[*index].as_ref().ok().filter(|_| views[*index].is_none());
        id.is_some_and(|id| memory.mapping.find(id).is_some())
    };
    let wanted: Vec<usize> = (0..ids.len()).filter(here).collect();
    if wanted.is_empty() {
        return;
    }
    let asked: Vec<BlockId> = wanted.iter().filter_map(|&index| ids[index].as_ref().ok().copied()).collect();
    let read = |reply| if let Reply::Views(outcomes) = reply { Some(outcomes) } else { None };
    let outcomes = peer.call_about(&asked, |ids| Request::View(ids.to_vec().into()), || deadline, read);
    for (index, outcome) in wanted.into_iter().zip(outcomes) {
        let ViewOutcome::Pinned { slot, offset, len } = outcome else { continue };
        match memory.mapping.readable_at(offset, len) {
            Some(start) => {
                let pinned = Pinned { start, len: len as usize, slot, memory: Arc::clone(memory) };
                views[index] = Some(View(Bytes::Borrowed(pinned)));
            }
            // The node names memory that it does not have; do without.
            None => memory.let_go(&[slot]),
        }
    }
}
