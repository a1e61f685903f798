//! An inventory in memory: slots, and a bounded journal of the changes to them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};
use tidepool_store::inventory::{Change, Inventory, Overrun, PageEnd};
use tidepool_types::{BlockId, Tier};

#[derive(Default)]
struct State {
    slots: Vec<Option<BlockId>>,
    places: BTreeMap<BlockId, usize>,
    journal: VecDeque<Change>,
    latest: u64,
}

/// See the file's head.
pub(super) struct MemoryInventory {
    state: Mutex<State>,
    changed: Condvar,
    kept: usize,
}

impl MemoryInventory {
    /// Keeps the last `kept` changes.
    pub(super) fn new(kept: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), kept }
    }

    /// Holds a block, in the first free slot; the number of that change.
    pub(super) fn add(&self, id: BlockId) -> u64 {
        let state = &mut *self.state.lock();
        if state.places.contains_key(&id) {
            return state.latest;
        }
        let free = state.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            state.slots.push(None);
            state.slots.len() - 1
        });
        state.slots[free] = Some(id);
        state.places.insert(id, free);
        self.note(state, Change::Added(id, Tier::Dram))
    }

    /// Holds many blocks.
    pub(super) fn add_all(&self, ids: impl IntoIterator<Item = BlockId>) {
        for id in ids {
            self.add(id);
        }
    }

    /// Lets a block go.
    pub(super) fn remove(&self, id: BlockId) {
        let state = &mut *self.state.lock();
        if let Some(place) = state.places.remove(&id) {
            state.slots[place] = None;
            self.note(state, Change::Removed(id));
        }
    }

    fn note(&self, state: &mut State, change: Change) -> u64 {
        state.journal.push_back(change);
        if state.journal.len() > self.kept {
            state.journal.pop_front();
        }
        state.latest += 1;
        self.changed.notify_all();
        state.latest
    }

    pub(super) fn held(&self) -> Vec<BlockId> {
        self.state.lock().places.keys().copied().collect()
    }
}

impl Inventory for MemoryInventory {
    fn latest(&self) -> u64 {
        self.state.lock().latest
    }

    fn changes(&self, after: u64, max: usize, out: &mut Vec<Change>) -> Result<(), Overrun> {
        let state = self.state.lock();
        let first_kept = state.latest - state.journal.len() as u64;
        let skip = after.checked_sub(first_kept).ok_or(Overrun)?;
        out.extend(state.journal.iter().skip(skip as usize).take(max));
        Ok(())
    }

    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Tier)>) -> PageEnd {
        let state = self.state.lock();
        // Small pages, whatever is asked for: tests want many of them.
        let end = (cursor as usize + max.min(64)).min(state.slots.len());
        out.extend(state.slots[cursor as usize..end].iter().flatten().map(|id| (*id, Tier::Dram)));
        PageEnd { as_of: state.latest, next: (end < state.slots.len()).then_some(end as u64) }
    }

    fn wait(&self, after: u64, timeout: Duration) -> u64 {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        while state.latest <= after && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.latest
    }

    fn wake(&self) {
        self.changed.notify_all();
    }
}
