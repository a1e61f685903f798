//! A tier below memory, as the holdings see it.
//!
//! Memory is a node's first tier. Its lock orders every change of the holdings and numbers it. A slower tier keeps its own
//! index behind a lock of its own, which is only ever taken inside the lock of the holdings. What the index says changes in two
//! ways: the tier commits a change of its own ([`Commit`](crate::Commit)), or it is told to remove a block. All I/O is done
//! outside both locks: what has been written becomes true with a commit.
//!
//! All tiers of a node have the same version of a block: a newer one takes the place of what every tier has.

use std::sync::Arc;
use tidepool_types::{BlockId, CopyName, Tier, Version};

/// Where one tier has a copy of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The tier.
    pub tier: Tier,
    /// The copy. A block that is spilled keeps the name that it had in memory: the bytes are the same.
    pub copy: CopyName,
    /// Bytes of the block.
    pub len: u64,
    /// The block's version, if it was given one.
    pub version: Option<Version>,
}

/// What a slower tier answers when memory is about to evict a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evicting {
    /// The tier does not have the block and is not about to: evicted, it is gone.
    Go,
    /// The tier has the block: evicted from memory, it is there.
    Moved,
    /// The tier is about to have the block: another one is evicted, if there is one.
    Busy,
}

/// A tier below memory.
///
/// Every method is called under the lock of the holdings, so that none may wait: not for the tier's I/O, and not for the
/// holdings. A method takes the lock of the tier's index for a moment and nothing else.
pub trait SlowerTier: Send + Sync {
    /// Which tier this is.
    fn tier(&self) -> Tier;

    /// Where the tier has a block.
    fn find(&self, id: &BlockId) -> Option<Place>;

    /// Takes a block out of the index. False when it is not in.
    fn remove(&self, id: &BlockId) -> bool;

    /// Appends the entries of the page at `cursor` (zero is the first), looking at no more than `max`; returns where the next
    /// page starts, `None` after the last. Cursors stay below 2^56. A block's position stays the same for as long as the tier
    /// has the block: a snapshot must not miss one that is there all the time.
    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Place)>) -> Option<u64>;

    /// What becomes of a block that memory evicts. The journal follows what [`SlowerTier::find`] says, so "moved" means that it
    /// has the block. "Busy" is a wish, not a hold: a block goes all the same when nothing else can, or when very many are
    /// busy. What a tier reads from memory it holds ([`NodeMemory::peek`](crate::NodeMemory::peek)).
    fn evicting(&self, id: &BlockId) -> Evicting {
        if self.find(id).is_some() { Evicting::Moved } else { Evicting::Go }
    }

    /// Whether the tier takes no further reads just now.
    fn is_throttled(&self) -> bool {
        false
    }
}

/// A node's tiers below memory, the fastest first; most nodes have none.
#[derive(Clone, Default)]
pub(crate) struct SlowerTiers(Box<[Arc<dyn SlowerTier>]>);

impl SlowerTiers {
    pub(crate) fn new(mut tiers: Vec<Arc<dyn SlowerTier>>) -> Self {
        tiers.sort_by_key(|tier| tier.tier());
        Self(tiers.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tier `level` steps below the first of these.
    pub(crate) fn get(&self, level: usize) -> Option<&dyn SlowerTier> {
        self.0.get(level).map(|tier| &**tier)
    }

    /// The fastest of these that has a block.
    pub(crate) fn find(&self, id: &BlockId) -> Option<(&dyn SlowerTier, Place)> {
        self.0.iter().find_map(|tier| Some((&**tier, tier.find(id)?)))
    }

    /// The place of a block in the fastest of these that has it.
    pub(crate) fn place(&self, id: &BlockId) -> Option<Place> {
        self.find(id).map(|(_, place)| place)
    }

    /// Takes a block out of all of these. False when none has it.
    pub(crate) fn remove(&self, id: &BlockId) -> bool {
        // All are told, whatever the first one says.
        self.0.iter().filter(|tier| tier.remove(id)).count() > 0
    }

    /// Whether one of these is about to have a block.
    pub(crate) fn are_busy(&self, id: &BlockId) -> bool {
        self.0.iter().any(|tier| tier.evicting(id) == Evicting::Busy)
    }
}
