//! Looking blocks up in every tier.

use super::Holdings;
use crate::node_memory::{Hold, Inner};
use crate::tier::Place;
use tidepool_types::{BlockId, CopyName};

/// What a read of a block comes to.
pub enum Reading {
    /// Memory has the block, and holds it there.
    Here(Hold),
    /// A slower tier has it.
    Slower(Place),
    /// The block is on its way into memory, from a slower tier or another node: ask again soon. Nodes without slower tiers do
    /// not say so.
    BeingWritten,
    /// The tier that has it takes no further reads just now.
    Throttled,
    /// The node does not have the block, or not that copy of it.
    Miss,
}

impl Holdings {
    /// Reads a block, which counts as a use of it; or only the copy of that name, which goes on with such a use.
    #[must_use]
    pub fn read(&self, id: &BlockId, copy: Option<CopyName>) -> Reading {
        let mut inner = self.memory.inner.lock();
        let hold = self.memory.hold_one(&mut inner, id, copy);
        self.reading(&inner, id, copy, hold)
    }

    /// As [`Holdings::read`] for several blocks, whose look-ups overlap.
    #[must_use]
    pub fn read_all(&self, wanted: &[(BlockId, Option<CopyName>)]) -> Vec<Reading> {
        self.memory.hold_each(wanted, |inner, (id, copy), hold| self.reading(inner, id, *copy, hold))
    }

    fn reading(&self, inner: &Inner, id: &BlockId, copy: Option<CopyName>, hold: Option<Hold>) -> Reading {
        if let Some(hold) = hold {
            return Reading::Here(hold);
        }
        // Of a node without slower tiers nobody asks again: what is not here is read elsewhere.
        if self.memory.slower.is_empty() {
            return Reading::Miss;
        }
        if copy.is_none() && inner.is_incoming(id) {
            return Reading::BeingWritten;
        }
        match self.memory.slower.find(id) {
            Some((_, place)) if copy.is_some_and(|copy| copy != place.copy) => Reading::Miss,
            Some((tier, _)) if tier.is_throttled() => Reading::Throttled,
            Some((_, place)) => Reading::Slower(place),
            None => Reading::Miss,
        }
    }

    /// Where `ids` are held, in the fastest tier each. Counts as a use of those in memory, from the last to the first.
    #[must_use]
    pub fn confirm(&self, ids: &[BlockId]) -> Vec<Option<Place>> {
        let memory = &*self.memory;
        memory.confirm_each(ids, &[], |inner, id, found| match found {
            Some((slot, described)) => Some(memory.place_of(inner, slot, &described)),
            None => memory.slower.place(id),
        })
    }
}
