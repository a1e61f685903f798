//! Nodes that may take a block, from best to worst.

use crate::catalogs::NodeState;
use crate::core::Core;
use crate::peers::Peer;
use std::sync::Arc;
use tidepool_policy::placement::{Candidate, rank};
use tidepool_types::{BlockId, Deadline, NodeName};

/// The nodes that may take the block `id`. Takes a fresh look around if there are fewer than `wanted`, or not all that are
/// preferred: they may have joined a moment ago.
pub(super) fn find(core: &Core, prefer: &[NodeName], wanted: usize, id: BlockId, deadline: Deadline) -> Vec<Arc<Peer>> {
    let found = ranked(core, prefer, id, deadline);
    let is_missing = |name: &NodeName| found.iter().all(|peer| peer.key.name != *name);
    let lacking = found.len() < wanted.max(1) || prefer.iter().any(is_missing);
    if lacking && core.look_again(deadline) { ranked(core, prefer, id, deadline) } else { found }
}

/// The nodes that answer, ranked by the placement policy for the block `id`.
fn ranked(core: &Core, prefer: &[NodeName], id: BlockId, deadline: Deadline) -> Vec<Arc<Peer>> {
    let table = core.peers.table();
    let alive = table.members.iter().filter(|member| member.node.state == NodeState::Alive);
    let mut peers: Vec<(Arc<Peer>, u64)> = Vec::new();
    for member in alive {
        if let Some(peer) = core.peers.reach(&member.node, deadline) {
            peers.push((peer, member.capacity_bytes.saturating_sub(member.used_bytes)));
        }
    }
    // Nodes on this host that no catalog knows take blocks too.
    for peer in table.locals.iter().filter(|peer| table.member(&peer.key).is_none()) {
        peers.push((Arc::clone(peer), 0));
    }
    peers.retain(|(peer, _)| !peer.is_down());
    let candidate = |(index, (peer, free)): (usize, &(Arc<Peer>, u64))| Candidate {
        index,
        preferred: prefer.iter().position(|name| peer.key.name == *name),
        full: peer.fullness.is_full(),
        local: peer.memory().is_some(),
        free: *free,
    };
    let candidates = peers.iter().enumerate().map(candidate).collect();
    rank(candidates, id.words()[0]).into_iter().map(|index| Arc::clone(&peers[index].0)).collect()
}
