//! Which nodes may hold something: whom a removal asks, and whom its answer names when they do not answer.

use crate::catalogs::{Member, Node, NodeKey, NodeState};
use crate::client::Client;
use crate::core::Core;
use crate::fan_out::for_catalogs;
use crate::peers::{Peer, Table};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use tidepool_types::{Deadline, NodeName};

/// See the file's head.
pub(crate) struct Known {
    /// The nodes, living ones first, without those that said goodbye and those of which a newer life is known.
    pub(crate) nodes: Vec<Node>,
    /// Nodes that cannot be asked: another node with the same name is the one that catalogs name, or no catalog knows the node
    /// and its socket on this host does not answer.
    pub(crate) out_of_reach: Vec<NodeName>,
    /// Nodes that said goodbye.
    pub(crate) left: BTreeSet<NodeName>,
    /// Every node that was heard of since then is among these. `None` when no catalog answered.
    pub(crate) since: Option<SystemTime>,
}

impl Core {
    /// Every node that any catalog knows, or that one has named to this client in the last ten minutes.
    pub(crate) fn known(&self, deadline: Deadline) -> Known {
        let census = self.catalogs.census(for_catalogs(deadline));
        self.peers.note_census(&census);
        #[expect(clippy::disallowed_methods, reason = "people and other hosts compare it with their own clocks")]
        let now = SystemTime::now();
        let since = census.known_for.and_then(|span| now.checked_sub(span));
        let names = |wanted: fn(&&Member) -> bool| census.members.iter().filter(wanted).map(|m| m.node.name.clone());
        let mut out_of_reach: Vec<NodeName> = names(|member| member.rival.is_some()).collect();
        let left: BTreeSet<NodeName> = names(|member| member.left).collect();
        let mut nodes = self.peers.table().seen();
        // Those that answer are not to wait for those that do not.
        nodes.sort_by_key(|node| node.state);
        let is_known = |name: &NodeName| left.contains(name) || nodes.iter().any(|node| node.name == *name);
        out_of_reach.extend(self.peers.unheard().into_iter().filter(|name| !is_known(name)));
        Known { nodes, out_of_reach, left, since }
    }
}

impl Known {
    /// The nodes that are not mapped here.
    pub(crate) fn elsewhere(&self, table: &Table) -> Vec<Node> {
        let is_here = |node: &&Node| table.locals.iter().any(|local| local.key == NodeKey::of(node));
        self.nodes.iter().filter(|node| !is_here(node)).cloned().collect()
    }

    /// Whether a catalog has just heard from the node: then a refused connection says nothing of it, but something of the way
    /// to it.
    pub(crate) fn is_alive(&self, key: &NodeKey) -> bool {
        self.nodes.iter().any(|node| node.state == NodeState::Alive && NodeKey::of(node) == *key)
    }

    /// Every life of a node of that name.
    pub(crate) fn named(&self, name: &NodeName) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.name == *name)
    }
}

impl Client {
    /// The ways to this host's nodes and to all of `known`, and the names of the nodes to which there is none.
    pub(crate) fn everyone(&self, known: &Known, deadline: Deadline) -> (Vec<Arc<Peer>>, Vec<NodeName>) {
        let peers = &self.core().peers;
        let table = peers.table();
        let elsewhere = known.elsewhere(&table);
        let (mut everyone, mut unreached) = (table.locals.clone(), known.out_of_reach.clone());
        for (node, peer) in elsewhere.iter().zip(peers.reach_all(&elsewhere, deadline)) {
            match peer {
                Some(peer) => everyone.push(peer),
                None => unreached.push(node.name.clone()),
            }
        }
        (everyone, unreached)
    }
}
