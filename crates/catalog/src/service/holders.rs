//! Turns what the index remembers into what an answer says: valid holders only, the best first, nodes by number.

use crate::index::{Found, Holder, Index};
use crate::members::View;
use crate::members::state::NodeState;
use tidepool_schema::{HOLDER_LEN, MAX_HOLDERS, Node};
use tidepool_types::{BlockId, Tier};

/// Whether a valid stream holds the block.
#[inline]
pub(super) fn is_held(found: &Found, id: &[u8; BlockId::LEN], index: &Index, view: &View) -> bool {
    !found.is_nothing()
        && (found.inline().any(|holder| view.owner(holder).is_some())
            || (found.has_more() && all(id, index).iter().any(|holder| view.owner(*holder).is_some())))
}

fn all(id: &[u8; BlockId::LEN], index: &Index) -> Vec<Holder> {
    index.holders(BlockId::from_bytes(*id))
}

/// The holders of a row of ids, as the fields of an answer.
pub(super) struct HolderFields<'a> {
    index: &'a Index,
    view: &'a View,
    pub(super) counts: Vec<u8>,
    pub(super) holders: Vec<u8>,
    pub(super) nodes: Vec<Node>,
    /// By member of the view: its number in `nodes`.
    numbers: Vec<Option<u16>>,
    // Reused from id to id.
    row: Vec<(NodeState, Tier, u16)>,
}

impl<'a> HolderFields<'a> {
    pub(super) fn new(index: &'a Index, view: &'a View, ids: usize) -> Self {
        Self {
            index,
            view,
            counts: Vec::with_capacity(ids),
            holders: Vec::with_capacity(ids * HOLDER_LEN),
            nodes: Vec::new(),
            numbers: vec![None; view.members.len()],
            row: Vec::new(),
        }
    }

    /// Appends the holders of one id, or nothing and false when there are none.
    pub(super) fn push_if_held(&mut self, found: &Found, id: &[u8; BlockId::LEN]) -> bool {
        self.push(found, id);
        if self.row.is_empty() {
            self.counts.pop();
        }
        !self.row.is_empty()
    }

    /// Appends the holders of one id, be they none.
    pub(super) fn push(&mut self, found: &Found, id: &[u8; BlockId::LEN]) {
        self.row.clear();
        if found.has_more() {
            all(id, self.index).into_iter().for_each(|holder| self.add(holder));
        } else {
            found.inline().for_each(|holder| self.add(holder));
        }
        // Alive before suspect, fast tiers before slow ones.
        self.row.sort_unstable();
        self.row.truncate(MAX_HOLDERS);
        for n in 0..self.row.len() {
            let (_, tier, member) = self.row[n];
            let [low, high] = self.number(member).to_le_bytes();
            self.holders.extend_from_slice(&[low, high, tier as u8, 0]);
        }
        self.counts.push(self.row.len() as u8);
    }

    fn add(&mut self, holder: Holder) {
        if let Some(member) = self.view.owner(holder) {
            self.row.push((self.view.members[usize::from(member)].state, holder.tier, member));
        }
    }

    fn number(&mut self, member: u16) -> u16 {
        let member = usize::from(member);
        *self.numbers[member].get_or_insert_with(|| {
            self.nodes.push(self.view.members[member].node());
            (self.nodes.len() - 1) as u16
        })
    }
}
