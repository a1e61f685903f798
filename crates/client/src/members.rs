//! The nodes of the pool, as callers see them.

use crate::catalogs::{Forgotten, Member, NodeState};
use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::for_catalogs;
use crate::peers::{NodeKey, Peer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidepool_transfer::conn::ConnError;
use tidepool_types::{Deadline, Epoch, NodeName, Span};
use tidepool_wire::message::{Reason, Refusal, Reply, Request};

/// A node of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolNode {
    /// Its name.
    pub name: NodeName,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Where it serves the data protocol, `host:port`; `None` when it is known from its socket only.
    pub data_address: Option<String>,
    /// Its Unix socket on its own host.
    pub socket: Option<PathBuf>,
    /// What the catalogs think of it; `None` when they do not know it, or when none of them answers.
    pub state: Option<NodeState>,
    /// The version of its program; `None` when it does not say, or when the catalogs do not know it.
    pub build: Option<String>,
    /// Bytes that it has for blocks; zero when the catalogs do not know it.
    pub capacity_bytes: u64,
    /// Bytes of these in use.
    pub used_bytes: u64,
    /// Whether this client has its memory mapped.
    pub mapped: bool,
    /// How long ago a catalog last heard from it; `None` when they do not know it.
    pub silent: Option<Duration>,
    /// Whether it stopped on purpose: it is dead, and holds nothing any more.
    pub left: bool,
    /// Where another live node serves that claims the same name: catalogs refuse it, and nobody finds what it holds.
    pub rival: Option<String>,
}

impl PoolNode {
    fn announced(member: &Member, mapped: bool) -> Self {
        let node = member.node.clone();
        Self {
            name: node.name,
            epoch: node.epoch,
            data_address: Some(node.data_address),
            socket: node.socket,
            state: Some(node.state),
            build: Some(member.build.clone()).filter(|build| !build.is_empty()),
            capacity_bytes: member.capacity_bytes,
            used_bytes: member.used_bytes,
            mapped,
            silent: Some(member.silent),
            left: member.left,
            rival: member.rival.clone(),
        }
    }

    fn unannounced(peer: &Peer) -> Self {
        let NodeKey { name, epoch } = peer.key.clone();
        let socket = peer.memory().map(|memory| memory.socket_path.clone());
        Self {
            name,
            epoch,
            data_address: None,
            socket,
            state: None,
            build: None,
            capacity_bytes: 0,
            used_bytes: 0,
            mapped: true,
            silent: None,
            left: false,
            rival: None,
        }
    }
}

impl Client {
    /// The nodes that the catalogs know, asked now, and those on this host that they do not know. When no catalog answers,
    /// those that were known last.
    #[must_use]
    pub fn members(&self) -> Vec<PoolNode> {
        let core = self.core();
        let answered = core.refresh_members(for_catalogs(self.deadline()));
        let table = core.peers.table();
        let is_mapped = |key: &NodeKey| table.locals.iter().any(|peer| peer.key == *key);
        let announced = |member: &Member| {
            let node = PoolNode::announced(member, is_mapped(&NodeKey::of(&member.node)));
            // What the catalogs said a while ago says nothing about now.
            PoolNode { state: node.state.filter(|_| answered), ..node }
        };
        let mut nodes: Vec<PoolNode> = table.members.iter().map(announced).collect();
        let others = table.locals.iter().filter(|peer| table.member(&peer.key).is_none());
        nodes.extend(others.map(|peer| PoolNode::unannounced(peer)));
        nodes
    }

    /// Whether a catalog answers, or a node of this host has been found.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.catalog_answers() || !self.core().peers.table().locals.is_empty()
    }

    /// Whether a catalog answers.
    #[must_use]
    pub fn catalog_answers(&self) -> bool {
        self.core().refresh_members(self.deadline())
    }

    /// Nodes of this host whose sockets are there and do not answer, as of the last look around.
    #[must_use]
    pub fn unheard(&self) -> Vec<NodeName> {
        self.core().peers.unheard()
    }

    /// A node's numbers, under the names of its metrics.
    pub fn node_stat(&self, node: &NodeName) -> Result<Vec<(String, u64)>, NodeError> {
        let deadline = self.deadline();
        let peer = self.until(deadline).peer_named(node)?;
        match ask(&peer, &Request::Stat, deadline)? {
            Reply::Stat(numbers) => Ok(numbers),
            _ => Err(NodeError::Unreachable(peer.key.name.clone())),
        }
    }

    /// Has the catalogs forget a dead node that will not come back: removals then neither ask nor name it. Should it come
    /// back in that life after all, catalogs refuse it until it is restarted.
    pub fn forget(&self, node: &NodeName) -> Result<Forgotten, NodeError> {
        let deadline = self.deadline();
        let core = self.core();
        let census = core.catalogs.census(for_catalogs(deadline));
        let of_that_name = || census.members.iter().filter(|member| member.node.name == *node);
        if let Some(member) = of_that_name().find(|member| member.node.state != NodeState::Dead) {
            let state = if member.node.state == NodeState::Alive { "alive" } else { "suspect" };
            return Err(NodeError::NotDead { node: node.clone(), state });
        }
        let lives: Vec<NodeKey> = of_that_name().map(|member| NodeKey::of(&member.node)).collect();
        if census.known_for.is_none() {
            return Err(NodeError::NoCatalog(node.clone()));
        }
        // Several where catalogs know different lives: each is to be refused by all of them.
        let forgotten = lives.iter().map(|life| core.catalogs.forget(life, deadline));
        let forgotten = forgotten.reduce(|all, next| Forgotten {
            by: all.by.max(next.by),
            unanswered: next.unanswered,
            refused: all.refused.or(next.refused),
        });
        match forgotten {
            None => Err(NodeError::UnknownNode(node.clone())),
            Some(Forgotten { refused: Some(message), .. }) => Err(NodeError::Refused { node: node.clone(), message }),
            Some(forgotten) => Ok(forgotten),
        }
    }

    /// The node of that name.
    pub(crate) fn peer_named(&self, name: &NodeName) -> Result<Arc<Peer>, NodeError> {
        let core = self.core();
        if let Some(peer) = core.peers.table().named(name) {
            return Ok(Arc::clone(peer));
        }
        // It may have joined since the last look around.
        let answered = core.refresh_members(for_catalogs(self.deadline()));
        if !answered && core.peers.unheard().contains(name) {
            return Err(NodeError::Unreachable(name.clone()));
        }
        let table = core.peers.table();
        let unknown = || match table.members.iter().find(|member| member.node.name == *name) {
            Some(member) => NodeError::Dead {
                node: name.clone(),
                address: member.node.data_address.clone(),
                silent: Span(Duration::from_secs(member.silent.as_secs().max(1))),
                left: member.left,
            },
            None if !answered && !core.config.catalogs.is_empty() => NodeError::NoCatalog(name.clone()),
            None => NodeError::UnknownNode(name.clone()),
        };
        table.named(name).cloned().ok_or_else(unknown)
    }
}

/// Asks a node, and says which node it was if that fails. For requests that may be made twice: one that was damaged on its
/// way is made again.
pub(crate) fn ask(peer: &Peer, request: &Request, deadline: Deadline) -> Result<Reply, NodeError> {
    let was_damaged = |refusal: &Refusal| matches!(refusal.reason, Reason::Malformed | Reason::Version);
    let answer = match peer.call(request, deadline) {
        Err(ConnError::Refused(refusal)) if was_damaged(&refusal) => peer.call(request, deadline),
        answer => answer,
    };
    answer.map_err(|error| match error {
        ConnError::Refused(refusal) if refusal.reason == Reason::Invalid => NodeError::Invalid(refusal.message),
        ConnError::Refused(refusal) => NodeError::Refused { node: peer.key.name.clone(), message: refusal.message },
        ConnError::WrongEpoch(_) => NodeError::Ended(peer.key.name.clone()),
        _ => NodeError::Unreachable(peer.key.name.clone()),
    })
}
