//! What catalogs answer, as values: checked, and put together when more than one was asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidepool_policy::replica;
use tidepool_schema::{self as wire, HOLDER_LEN, MAX_HOLDERS};
use tidepool_types::{BlockId, ClientId, Epoch, NodeName, Tier};

/// What a catalog thinks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// Heard of lately.
    Alive,
    /// Silent for a moment: may still serve, must not be chosen for writes.
    Suspect,
    /// Silent for long, or gone.
    Dead,
}

/// A node as an answer names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Where it serves the data protocol, `host:port`.
    pub data_address: String,
    /// The same on its own host.
    pub socket: Option<PathBuf>,
    /// What the catalog thinks of it.
    pub state: NodeState,
    /// What it believes its host is called.
    pub host_hint: String,
}

/// A node in one of its lives.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey {
    /// The node's name, the same in all its lives.
    pub name: NodeName,
    /// The life.
    pub epoch: Epoch,
}

impl NodeKey {
    /// The life that `node` is in.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self { name: node.name.clone(), epoch: node.epoch }
    }

    /// `None` when no node can be called that.
    pub(super) fn from_wire(incarnation: wire::Incarnation) -> Option<Self> {
        Some(Self { name: NodeName::new(incarnation.name).ok()?, epoch: Epoch(incarnation.epoch) })
    }
}

impl Node {
    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.epoch == other.epoch
    }

    /// `None` when no node can be like that.
    pub(super) fn from_wire(node: wire::Node) -> Option<Self> {
        Some(Self {
            state: state(node.state())?,
            name: NodeName::new(node.name).ok()?,
            epoch: Epoch(node.epoch),
            data_address: node.data_address,
            socket: socket(node.socket_path),
            host_hint: node.host_hint,
        })
    }
}

fn state(state: wire::NodeState) -> Option<NodeState> {
    match state {
        wire::NodeState::Alive => Some(NodeState::Alive),
        wire::NodeState::Suspect => Some(NodeState::Suspect),
        wire::NodeState::Dead => Some(NodeState::Dead),
        wire::NodeState::Unspecified => None,
    }
}

fn socket(path: String) -> Option<PathBuf> {
    (!path.is_empty()).then(|| path.into())
}

/// A node that holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its index in the answer's nodes.
    pub node: u16,
    /// Where it keeps the block.
    pub tier: Tier,
}

/// For a row of ids, who holds each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    nodes: Arc<[Node]>,
    holders: Vec<Holder>,
    /// Where in `holders` each id's end.
    ends: Vec<u32>,
}

impl Located {
    /// Nobody is known to hold any of `ids` ids.
    pub(super) fn nowhere(ids: usize) -> Self {
        Self { nodes: Arc::new([]), holders: Vec::new(), ends: vec![0; ids] }
    }

    /// Reads the fields of an answer about `ids` ids; `None` when they contradict each other.
    pub(super) fn from_wire(ids: usize, counts: &[u8], holders: &[u8], nodes: Vec<wire::Node>) -> Option<Self> {
        let nodes: Arc<[Node]> = nodes.into_iter().map(Node::from_wire).collect::<Option<_>>()?;
        let (packed, rest) = holders.as_chunks::<HOLDER_LEN>();
        let mut total = 0u32;
        let ends: Vec<u32> = counts.iter().map(|count| (total += u32::from(*count), total).1).collect();
        if ends.len() != ids || total as usize != packed.len() || !rest.is_empty() {
            return None;
        }
        let holder = |[low, high, tier, _]: &[u8; HOLDER_LEN]| {
            let node = u16::from_le_bytes([*low, *high]);
            Some(Holder { node, tier: Tier::try_from(*tier).ok()? }).filter(|_| usize::from(node) < nodes.len())
        };
        let holders = packed.iter().map(holder).collect::<Option<_>>()?;
        Some(Self { nodes, holders, ends })
    }

    /// How many ids the answer is about.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the answer is about no ids.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The nodes that [`Holder::node`] counts.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The holders of the id at `index`, the best first; empty when none is known.
    #[must_use]
    pub fn holders(&self, index: usize) -> &[Holder] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.holders[start as usize..self.ends[index] as usize]
    }

    /// Whether a holder of the id at `index` is known.
    #[must_use]
    pub fn is_found(&self, index: usize) -> bool {
        !self.holders(index).is_empty()
    }

    /// Whether the id at `index` may have more holders than are listed: an answer has room for so many only.
    #[must_use]
    pub fn may_have_more(&self, index: usize) -> bool {
        self.holders(index).len() >= MAX_HOLDERS
    }

    /// Has `reader` start with a copy of its own among those of equal standing, so that readers of one block share its
    /// holders. `ids` are the ids that the answer is about.
    pub(crate) fn spread(&mut self, ids: &[BlockId], reader: ClientId) {
        let mut start = 0;
        for (id, &end) in ids.iter().zip(&self.ends) {
            let end = end as usize;
            let standing = |holder: &Holder| (self.nodes[usize::from(holder.node)].state, holder.tier);
            for equals in self.holders[start..end].chunk_by_mut(|a, b| standing(a) == standing(b)) {
                equals.rotate_left(replica::first(reader.0, id.words()[0], equals.len()));
            }
            start = end;
        }
    }

    /// Both answers together: holders of `self` first, then those that only `other` knows.
    pub(super) fn merged(self, other: &Self) -> Self {
        let mut nodes = self.nodes.to_vec();
        let number = |node: &Node| match nodes.iter().position(|known| known.is_same(node)) {
            Some(known) => known as u16,
            None => {
                nodes.push(node.clone());
                (nodes.len() - 1) as u16
            }
        };
        let numbers: Vec<u16> = other.nodes.iter().map(number).collect();
        let (mut holders, mut ends) = (Vec::with_capacity(self.holders.len()), Vec::with_capacity(self.len()));
        for id in 0..self.len() {
            let own = self.holders(id);
            holders.extend_from_slice(own);
            for holder in other.holders(id) {
                let holder = Holder { node: numbers[usize::from(holder.node)], tier: holder.tier };
                if own.iter().all(|known| known.node != holder.node) {
                    holders.push(holder);
                }
            }
            ends.push(holders.len() as u32);
        }
        Self { nodes: nodes.into(), holders, ends }
    }

    /// The ids of `other` after those of `self`.
    pub(super) fn followed_by(self, other: &Self) -> Self {
        let (before, after) = (self.len(), other.len());
        let padded = |located: &Self, front: usize, back: usize| {
            let last = located.ends.last().copied().unwrap_or(0);
            let ends = std::iter::repeat_n(0, front).chain(located.ends.iter().copied());
            let ends = ends.chain(std::iter::repeat_n(last, back)).collect();
            Self { nodes: located.nodes.clone(), holders: located.holders.clone(), ends }
        };
        padded(&self, 0, after).merged(&padded(other, before, 0))
    }

    /// The row cut into rows of these lengths, which add up to its own.
    pub(super) fn split(self, lengths: &[u32]) -> Vec<Self> {
        let mut first = 0;
        let cut = |length: &u32| {
            let ids = first..first + *length as usize;
            first = ids.end;
            let start = ids.start.checked_sub(1).map_or(0, |before| self.ends[before]);
            let ends: Vec<u32> = self.ends[ids].iter().map(|end| end - start).collect();
            let holders = start as usize..start as usize + ends.last().copied().unwrap_or(0) as usize;
            Self { nodes: self.nodes.clone(), holders: self.holders[holders].to_vec(), ends }
        };
        lengths.iter().map(cut).collect()
    }
}

/// A node as the member list describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: Node,
    /// The version of its program; empty when it does not say.
    pub build: String,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// The catalog's number for its stream.
    pub stream: u64,
    /// Whether the catalog knows all that it holds.
    pub caught_up: bool,
    /// How long ago the catalog last heard from it.
    pub silent: Duration,
    /// Whether it said goodbye: what it held is gone.
    pub left: bool,
    /// Where another live node serves that claims the same name, and is refused because of it.
    pub rival: Option<String>,
}

impl Member {
    pub(super) fn from_wire(member: wire::Member) -> Option<Self> {
        let state = state(member.state())?;
        let info = member.node?;
        Some(Self {
            node: Node {
                name: NodeName::new(info.name).ok()?,
                epoch: Epoch(info.epoch),
                data_address: info.data_address,
                socket: socket(info.socket_path),
                state,
                host_hint: info.host_hint,
            },
            build: info.build,
            capacity_bytes: info.capacity_bytes,
            used_bytes: info.used_bytes,
            stream: member.stream,
            caught_up: member.caught_up,
            silent: Duration::from_millis(member.silent_millis),
            left: member.left,
            rival: Some(member.rival_address).filter(|address| !address.is_empty()),
        })
    }
}
