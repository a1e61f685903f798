//! What a node tells the catalogs: a numbered journal of changes, and pages of what it holds.
//!
//! A node announces the fastest tier that has a block. A block that moves between tiers is one change: its addition in the other
//! tier. A change gets its number in the same critical section as the change itself, so an add and a remove of one id never
//! swap. A page is read in one critical section too and names the number it reflects: a catalog that has applied all
//! changes up to that number, then the page, then later changes, is exact. (Pages walk memory's slots and then the places of each
//! slower tier. A block that moves behind the walk does so by changes that are numbered after the page.)

use std::time::Duration;
use tidepool_types::{BlockId, Tier};

/// One change to what a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The node holds the block from now on, and this is the fastest tier that has it.
    Added(BlockId, Tier),
    /// The node no longer holds the block.
    Removed(BlockId),
}

impl Change {
    /// The change after which `fastest` is the fastest tier that has the block.
    pub(crate) fn to(id: BlockId, fastest: Option<Tier>) -> Self {
        fastest.map_or(Self::Removed(id), |tier| Self::Added(id, tier))
    }
}

/// The end of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEnd {
    /// The number of the latest change that the page reflects.
    pub as_of: u64,
    /// Where the next page starts; `None` after the last.
    pub next: Option<u64>,
}

/// The journal no longer reaches back to the number asked for: send a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun;

/// A node's holdings as its announcers see them.
pub trait Inventory: Send + Sync {
    /// The number of the latest change; zero before the first.
    fn latest(&self) -> u64;

    /// Appends the changes numbered `after + 1` and up, at most `max` of them, in order and without gaps.
    fn changes(&self, after: u64, max: usize, out: &mut Vec<Change>) -> Result<(), Overrun>;

    /// Appends what is held in the page at `cursor` (zero is the first), looking at no more than `max` places.
    fn page(&self, cursor: u64, max: usize, out: &mut Vec<(BlockId, Tier)>) -> PageEnd;

    /// Waits until there is a change past `after`, or for `timeout`; returns the latest number. May sleep on through changes
    /// until the next [`Inventory::wake`].
    fn wait(&self, after: u64, timeout: Duration) -> u64;

    /// Wakes those who wait for changes: a batch of them is complete. To be woken by each change would make every block of
    /// a batch a message of its own.
    fn wake(&self);
}
