//! What slower tiers change of the holdings.

use super::Holdings;
use crate::inventory::Change;
use crate::node_memory::{Hold, Inner, NodeMemory, SlotState};
use crate::protocol::load_sealed;
use crate::tier::Place;
use tidepool_types::BlockId;

/// A section under the lock that orders all changes of the holdings.
pub struct Commit<'a> {
    memory: &'a NodeMemory,
    inner: &'a mut Inner,
}

impl Holdings {
    /// Runs changes of slower tiers in one section. `work` must be short, wait for nothing and drop no hold. Announcers hear of
    /// the changes with the next [`Inventory::wake`](crate::inventory::Inventory::wake).
    pub fn commit<R>(&self, work: impl FnOnce(&mut Commit<'_>) -> R) -> R {
        let mut inner = self.memory.inner.lock();
        work(&mut Commit { memory: &self.memory, inner: &mut inner })
    }
}

impl Commit<'_> {
    /// A tier has written the block that `hold` holds: `note`, which is told its place in memory, puts the block into the tier's
    /// index. False, and `note` is not called, when the block was removed, replaced or found damaged meanwhile: what the tier
    /// has written is void.
    pub fn spilled(&mut self, hold: &Hold, note: impl FnOnce(Place)) -> bool {
        let slot = hold.name().slot;
        let Some(entry) = self.inner.slots.get(slot as usize) else { return false };
        if entry.state != SlotState::Sealed || self.memory.name(entry.generation) != hold.copy() {
            return false;
        }
        let Some((_, described)) = load_sealed(self.memory.header(slot)) else { return false };
        note(self.memory.place_of(self.inner, slot, &described));
        true
    }

    /// A tier changes what its index says of a block, in `change`. The journal has what that changes for the node.
    pub fn change<R>(&mut self, id: &BlockId, change: impl FnOnce() -> R) -> R {
        let before = self.memory.fastest(self.inner, id);
        let changed = change();
        let after = self.memory.fastest(self.inner, id);
        if after != before {
            self.inner.journal.push(Change::to(*id, after));
        }
        changed
    }
}
