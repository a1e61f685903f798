//! A block's copies: where they are, and having more of them or having them elsewhere.

use crate::catalogs::{Lookup, Node, NodeState};
use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::{fan_out, for_catalogs};
use crate::members::ask;
use crate::peers::{NodeKey, Peer};
use crate::put::node_wait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, Epoch, InvalidInput, NodeName, Tier};
use tidepool_wire::message::{BATCH_KEYS, Pull, PullOutcome, Reply, Request};

/// One copy of a block, as its owner describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockCopy {
    /// The owner.
    pub node: NodeName,
    /// The copy's name.
    pub copy: CopyName,
    /// Where the owner has it.
    pub tier: Tier,
    /// The block's length.
    pub len: u64,
    /// Who wrote it.
    pub writer: ClientId,
    /// Views and sends that hold it in place.
    pub views: u32,
}

/// Where a block is, as far as could be found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// Its copies.
    pub copies: Vec<BlockCopy>,
    /// Nodes that may hold more and could not be asked, or did not answer.
    pub unanswered: Vec<NodeName>,
    /// Whether a catalog answered. If not, only this host's nodes and those known before were asked.
    pub catalog_answered: bool,
}

/// Who may hold a block.
struct Holders {
    peers: Vec<Arc<Peer>>,
    /// Nodes to which there is no way.
    out_of_reach: Vec<NodeName>,
    catalog_answered: bool,
}

impl Client {
    /// Every copy of a block that can be found. Looking does not count as a use.
    pub fn describe(&self, key: impl AsRef<[u8]>) -> Result<Vec<BlockCopy>, InvalidInput> {
        Ok(self.whereabouts(key)?.copies)
    }

    /// The same, with who could not be asked.
    pub fn whereabouts(&self, key: impl AsRef<[u8]>) -> Result<Whereabouts, InvalidInput> {
        let deadline = self.deadline();
        let id = self.core().id_of(key.as_ref())?;
        let request = |peer| (peer, Request::Describe(id));
        let Holders { peers, out_of_reach: mut unanswered, catalog_answered } = self.holders_of(id, deadline);
        let questions: Vec<_> = peers.into_iter().map(request).collect();
        let mut copies = Vec::new();
        for ((peer, _), answer) in questions.iter().zip(fan_out(&questions, deadline)) {
            let keys = match answer {
                Ok(Reply::Keys(keys)) => keys,
                Err(NodeError::Ended(_)) if !self.is_alive(&peer.key) => continue,
                _ => {
                    unanswered.push(peer.key.name.clone());
                    continue;
                }
            };
            let tiers = keys.tiers.into_iter().chain(std::iter::repeat(Tier::Dram));
            copies.extend(keys.entries.into_iter().zip(tiers).map(|(entry, tier)| BlockCopy {
                node: peer.key.name.clone(),
                copy: entry.copy,
                tier,
                len: entry.len,
                writer: entry.writer,
                views: entry.views,
            }));
        }
        Ok(Whereabouts { copies, unanswered, catalog_answered })
    }

    /// Has `node` copy a block from a node that holds it. A copy that is there already is a success.
    pub fn copy_to(&self, key: impl AsRef<[u8]>, node: &NodeName) -> Result<(), NodeError> {
        self.transfer(key.as_ref(), node, None, false)
    }

    /// Has a node of this host copy blocks that only other hosts hold, as far as the catalogs know, so that whoever reads them
    /// next on this host finds them in memory. Room is made for them as for any put. Returns how many were copied.
    pub fn copy_here<K: AsRef<[u8]>>(&self, keys: &[K]) -> usize {
        let (core, deadline) = (self.core(), self.deadline());
        let table = core.peers.table();
        let memories = || table.locals.iter().filter_map(|peer| peer.memory());
        let is_here = |id: &BlockId| memories().any(|memory| memory.mapping.find(id).is_some());
        let Some(target) = table.locals.iter().find(|peer| peer.memory().is_some() && !peer.is_down()) else {
            return 0;
        };
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let ids = keys.iter().zip(core.id_of_each(&keys)).filter_map(|(key, id)| Some((*key, id.ok()?)));
        let (keys, ids): (Vec<&[u8]>, Vec<BlockId>) = ids.filter(|(_, id)| !is_here(id)).unzip();
        let mut located = core.catalogs.lookup(&ids, for_catalogs(deadline)).located;
        located.spread(&ids, core.id);
        let mut sources: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            if let Some(holder) = located.holders(index).first() {
                sources.entry(holder.node).or_default().push(key.to_vec());
            }
        }
        let copied = sources.into_iter().map(|(source, keys)| {
            let Node { data_address, epoch, .. } = &located.nodes()[usize::from(source)];
            let pieces = keys.chunks(BATCH_KEYS).map(<[_]>::to_vec);
            let outcomes =
                pieces.map_while(|keys| pull(target, (data_address.clone(), *epoch), false, keys, deadline).ok());
            outcomes.flatten().filter(|outcome| *outcome == PullOutcome::Copied).count()
        });
        copied.sum()
    }

    /// Has `node` copy a block, after which the copy that it came from is removed: `source`'s, or any. It goes where there is
    /// room for it: nothing is evicted for a move.
    pub fn move_to(&self, key: impl AsRef<[u8]>, source: Option<&NodeName>, node: &NodeName) -> Result<(), NodeError> {
        self.transfer(key.as_ref(), node, source, true)
    }

    /// The nodes that hold a block and have just said so. Nothing is leased.
    pub fn holders(&self, key: impl AsRef<[u8]>) -> Result<Vec<NodeName>, InvalidInput> {
        let id = self.core().id_of(key.as_ref())?;
        let (holders, _) = self.confirmed_holders(id, self.deadline());
        Ok(holders.iter().map(|peer| peer.key.name.clone()).collect())
    }

    /// Has `node` take no new blocks for `period`, from anybody: to go on, say it again before that, and zero to end it.
    /// Returns how many blocks are still on their way in.
    pub fn drain(&self, node: &NodeName, period: Duration) -> Result<u64, NodeError> {
        let (deadline, target) = (self.deadline(), self.peer_named(node)?);
        let millis = u32::try_from(period.as_millis()).unwrap_or(u32::MAX);
        match ask(&target, &Request::Drain(millis), deadline)? {
            Reply::Count(coming) => Ok(coming),
            _ => Err(NodeError::Unreachable(node.clone())),
        }
    }

    fn transfer(
        &self,
        key: &[u8],
        node: &NodeName,
        source: Option<&NodeName>,
        remove_source: bool,
    ) -> Result<(), NodeError> {
        let deadline = self.deadline();
        let id = self.core().id_of(key)?;
        let target = self.peer_named(node)?;
        let (mut holders, silent) = self.confirmed_holders(id, deadline);
        if let Some(source) = source {
            holders.retain(|holder| holder.key.name == *source);
        }
        let mut sources = holders.iter().filter(|holder| holder.key != target.key).peekable();
        if sources.peek().is_none() {
            // Nobody else has it: it is where it should be, or nowhere, or with a node that did not answer.
            let nowhere = || silent.into_iter().next().map_or(NodeError::NotFound, NodeError::Unreachable);
            return if holders.is_empty() { Err(nowhere()) } else { Ok(()) };
        }
        let mut failure = NodeError::NotFound;
        for source in sources {
            match self.pull_one(key, source, &target, remove_source, deadline) {
                Ok(()) => return Ok(()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn pull_one(
        &self,
        key: &[u8],
        source: &Peer,
        target: &Peer,
        remove_source: bool,
        deadline: Deadline,
    ) -> Result<(), NodeError> {
        let from = (self.address_of(&source.key, deadline)?, source.key.epoch);
        match pull(target, from, remove_source, vec![key.to_vec()], deadline)?.first() {
            Some(PullOutcome::Copied | PullOutcome::Held | PullOutcome::Joined) => Ok(()),
            Some(PullOutcome::Missing) | None => Err(NodeError::NotFound),
            Some(PullOutcome::NoSpace) => Err(NodeError::NoSpace(target.key.name.clone())),
            Some(PullOutcome::Unavailable) => Err(NodeError::Unreachable(source.key.name.clone())),
        }
    }

    /// Where other nodes reach a node.
    fn address_of(&self, key: &NodeKey, deadline: Deadline) -> Result<String, NodeError> {
        let core = self.core();
        if let Some(member) = core.peers.table().member(key) {
            return Ok(member.node.data_address.clone());
        }
        core.refresh_members(deadline);
        let table = core.peers.table();
        let address = table.member(key).map(|member| member.node.data_address.clone());
        address.ok_or_else(|| NodeError::NoAddress(key.name.clone()))
    }

    /// Nodes that may hold a block: this host's that do, and those that a catalog names; or all of them, when no catalog is
    /// sure that it has named every holder.
    fn holders_of(&self, id: BlockId, deadline: Deadline) -> Holders {
        let core = self.core();
        let table = core.peers.table();
        let holds = |peer: &&Arc<Peer>| peer.memory().is_some_and(|memory| memory.mapping.find(&id).is_some());
        let mut peers: Vec<Arc<Peer>> = table.locals.iter().filter(holds).cloned().collect();
        let Lookup { located, complete, answered, .. } = core.catalogs.lookup(&[id], for_catalogs(deadline));
        if !complete || located.may_have_more(0) {
            let mut out_of_reach: Vec<NodeName> = table.unreached().cloned().collect();
            if !answered {
                out_of_reach.extend(core.peers.unheard());
            }
            let peers = table.reachable().cloned().collect();
            return Holders { peers, out_of_reach, catalog_answered: answered };
        }
        let mut out_of_reach = Vec::new();
        for holder in located.holders(0) {
            let node = &located.nodes()[usize::from(holder.node)];
            match core.peers.reach(node, deadline) {
                Some(peer) if peers.iter().any(|known| Arc::ptr_eq(known, &peer)) => {}
                Some(peer) => peers.push(peer),
                None => out_of_reach.push(node.name.clone()),
            }
        }
        Holders { peers, out_of_reach, catalog_answered: answered }
    }

    /// Whether catalogs hold a node for alive: then a refused connection does not mean that it has ended.
    fn is_alive(&self, key: &NodeKey) -> bool {
        self.core().peers.table().member(key).is_some_and(|member| member.node.state == NodeState::Alive)
    }

    /// Nodes that hold a block and have just said so, and those that may hold it and did not answer.
    fn confirmed_holders(&self, id: BlockId, deadline: Deadline) -> (Vec<Arc<Peer>>, Vec<NodeName>) {
        let question = |peer| (peer, Request::Confirm(vec![id].into()));
        let Holders { peers, out_of_reach: mut silent, .. } = self.holders_of(id, deadline);
        let questions: Vec<_> = peers.into_iter().map(question).collect();
        let answers = fan_out(&questions, deadline);
        let mut confirmed = Vec::new();
        for ((peer, _), answer) in questions.into_iter().zip(answers) {
            match answer {
                Ok(Reply::Found(found)) if found.copies.first().is_some_and(Option::is_some) => confirmed.push(peer),
                Ok(Reply::Found(_)) => {}
                Err(NodeError::Ended(_)) if !self.is_alive(&peer.key) => {}
                _ => silent.push(peer.key.name.clone()),
            }
        }
        (confirmed, silent)
    }
}

/// Has `target` copy blocks, no more than a batch, from the node at an address, in that incarnation.
pub(crate) fn pull(
    target: &Peer,
    (source, epoch): (String, Epoch),
    remove_source: bool,
    keys: Vec<Vec<u8>>,
    deadline: Deadline,
) -> Result<Vec<PullOutcome>, NodeError> {
    let wait_millis = node_wait(deadline);
    match ask(target, &Request::Pull(Pull { wait_millis, source, epoch, remove_source, keys }), deadline)? {
        Reply::Pulled(outcomes) => Ok(outcomes),
        _ => Err(NodeError::Unreachable(target.key.name.clone())),
    }
}
