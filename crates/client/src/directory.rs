//! Where blocks are and which nodes there are, as somebody else knows it: the catalogs, or nobody.
//!
//! Every answer is a hint. `None` means that nobody answered in time, which is not the same as "no".

use crate::members::Member;
use tidepool_types::{BlockId, Deadline, Tier};

/// Whom a client asks for what it cannot see itself.
pub(crate) trait Directory: Send + Sync {
    /// Who holds each of `ids`.
    fn holders(&self, ids: &[BlockId], deadline: Deadline) -> Option<Holders>;

    /// Which of `ids` the pool holds.
    fn exists(&self, ids: &[BlockId], deadline: Deadline) -> Option<Vec<bool>>;

    /// For each chain, who holds the blocks of its longest run from the start.
    fn match_prefix(&self, chains: &[&[BlockId]], deadline: Deadline) -> Option<Vec<Holders>>;

    /// The nodes of the pool.
    fn members(&self, deadline: Deadline) -> Option<Vec<Member>>;
}

/// For each of a list of blocks, the nodes that hold it, best first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holders {
    /// The nodes that are named below.
    pub(crate) nodes: std::sync::Arc<Vec<Member>>,
    /// Holders of all blocks, one block after the other: an index into `nodes`, and the tier.
    holders: Vec<(u16, Tier)>,
    /// Where each block's holders end.
    ends: Vec<u32>,
}

impl Holders {
    pub(crate) fn new(nodes: std::sync::Arc<Vec<Member>>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// Adds the next block's holders.
    pub(crate) fn push(&mut self, holders: impl IntoIterator<Item = (u16, Tier)>) {
        self.holders.extend(holders);
        self.ends.push(self.holders.len() as u32);
    }

    /// Blocks described.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The holders of block `index`.
    pub(crate) fn of(&self, index: usize) -> &[(u16, Tier)] {
        let start = index.checked_sub(1).map_or(0, |previous| self.ends[previous]);
        self.ends.get(index).map_or(&[], |end| &self.holders[start as usize..*end as usize])
    }
}

/// Nobody to ask: a client without catalogs sees the nodes of its own host only.
pub(crate) struct NoCatalogs;

impl Directory for NoCatalogs {
    fn holders(&self, ids: &[BlockId], _: Deadline) -> Option<Holders> {
        let mut none = Holders::default();
        ids.iter().for_each(|_| none.push([]));
        Some(none)
    }

    fn exists(&self, ids: &[BlockId], _: Deadline) -> Option<Vec<bool>> {
        Some(vec![false; ids.len()])
    }

    fn match_prefix(&self, chains: &[&[BlockId]], _: Deadline) -> Option<Vec<Holders>> {
        Some(vec![Holders::default(); chains.len()])
    }

    fn members(&self, _: Deadline) -> Option<Vec<Member>> {
        Some(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_own_holders() {
        let mut holders = Holders::default();
        holders.push([(3, Tier::Dram), (1, Tier::Disk)]);
        holders.push([]);
        holders.push([(0, Tier::Dram)]);
        assert_eq!(holders.len(), 3);
        assert_eq!(holders.of(0), [(3, Tier::Dram), (1, Tier::Disk)]);
        assert!(holders.of(1).is_empty());
        assert_eq!(holders.of(2), [(0, Tier::Dram)]);
        assert!(holders.of(3).is_empty());
    }
}
