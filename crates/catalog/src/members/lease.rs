//! Who may still use a stream slot, and the way back to the free slots.
//!
//! free -> leased (by the member, and by the stream that fills it) -> queued, once both have let go -> swept, and no view
//! of the members that still names it is in use -> free. A slot can therefore never be taken for another stream's.

use crate::index::StreamSlot;
use std::collections::BTreeSet;
use std::sync::Arc;
use tidepool_locks::Mutex;
use tokio::sync::Notify;

/// One stream number's slot. Dropping the last reference queues the slot for sweeping.
#[derive(Debug)]
pub(crate) struct Lease {
    slot: StreamSlot,
    number: u64,
    slots: Arc<Slots>,
}

impl Lease {
    pub(crate) const fn slot(&self) -> StreamSlot {
        self.slot
    }

    /// The stream number: never given twice.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.slots.state.lock().queued.push(self.slot);
        self.slots.wake.notify_one();
    }
}

/// The slots that nobody leases.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    // Short sections only: taken per stream and per sweep, never per look-up.
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    free: BTreeSet<StreamSlot>,
    /// Slots from this index on have never been used.
    unused: usize,
    numbers: u64,
    queued: Vec<StreamSlot>,
}

impl Slots {
    /// Takes the lowest free slot, at most `limit` of which are in use; `None` when there is none.
    pub(crate) fn lease(self: &Arc<Self>, limit: usize) -> Option<Arc<Lease>> {
        let mut state = self.state.lock();
        let slot = match state.free.pop_first() {
            Some(slot) => slot,
            None if state.unused < limit.min(StreamSlot::COUNT) => {
                state.unused += 1;
                StreamSlot::new(state.unused - 1)
            }
            None => return None,
        };
        state.numbers += 1;
        Some(Arc::new(Lease { slot, number: state.numbers, slots: self.clone() }))
    }

    /// Waits for slots to sweep and takes them all.
    pub(crate) async fn queued(&self) -> Vec<StreamSlot> {
        loop {
            let queued = std::mem::take(&mut self.state.lock().queued);
            if !queued.is_empty() {
                return queued;
            }
            self.wake.notified().await;
        }
    }

    /// Gives swept slots back.
    pub(crate) fn free(&self, slots: Vec<StreamSlot>) {
        self.state.lock().free.extend(slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_leased_again_only_after_it_was_given_back() {
        let slots = Arc::new(Slots::default());
        let (first, second) = (slots.lease(2).unwrap(), slots.lease(2).unwrap());
        assert!(slots.lease(2).is_none());
        let (slot, number) = (first.slot(), first.number());
        let other_reference = first.clone();
        drop(first);
        assert!(slots.state.lock().queued.is_empty());
        drop(other_reference);
        assert!(slots.lease(2).is_none(), "queued is not free");
        let queued = std::mem::take(&mut slots.state.lock().queued);
        assert_eq!(queued, [slot]);
        slots.free(queued);
        let again = slots.lease(2).unwrap();
        assert_eq!(again.slot(), slot);
        assert!(again.number() > second.number() && second.number() > number);
    }
}
