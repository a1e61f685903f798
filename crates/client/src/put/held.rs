//! Whether a block is held already: this host's indexes and the catalogs say who may hold it, and the holder confirms.

use super::Job;
use crate::catalogs::Located;
use crate::core::Core;
use crate::peers::{NodeKey, Peer, Table};
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::{BlockId, Deadline};
use tidepool_wire::message::{Reply, Request};

/// How long a holder may take to confirm. Without an answer the block is put as if it were absent.
const CONFIRM: Duration = Duration::from_millis(250);

/// Notes who holds the blocks already.
pub(super) fn find(core: &Core, jobs: &mut [Job<'_>], deadline: Deadline) {
    let table = core.peers.table();
    find_here(&table, jobs, deadline);
    let open: Vec<usize> = (0..jobs.len()).filter(|&index| jobs[index].lacks_copies()).collect();
    if open.is_empty() {
        return;
    }
    let ids: Vec<BlockId> = open.iter().map(|&index| jobs[index].id).collect();
    let located = core.catalogs.lookup(&ids, deadline).located;
    for (peer, asked) in named_holders(core, &located, jobs, &open, deadline) {
        confirm(&peer, &asked, jobs, deadline.capped(CONFIRM));
    }
}

/// Looks into the indexes of this host's nodes. What is there the node confirms: another writer may have sealed it a
/// moment ago, and the answer to this put must not come before the catalogs know of it.
fn find_here(table: &Table, jobs: &mut [Job<'_>], deadline: Deadline) {
    for (peer, memory) in table.locals.iter().filter_map(|peer| Some((peer, peer.memory()?))) {
        let held = |index: &usize| jobs[*index].lacks_copies() && memory.mapping.find(&jobs[*index].id).is_some();
        let held: Vec<usize> = (0..jobs.len()).filter(held).collect();
        if !held.is_empty() {
            confirm(peer, &held, jobs, deadline.capped(CONFIRM));
        }
    }
}

/// The nodes that a catalog names, each with the blocks that it should hold.
fn named_holders(
    core: &Core,
    located: &Located,
    jobs: &[Job<'_>],
    open: &[usize],
    deadline: Deadline,
) -> Vec<(Arc<Peer>, Vec<usize>)> {
    let mut asked: Vec<Vec<usize>> = vec![Vec::new(); located.nodes().len()];
    for (place, &index) in open.iter().enumerate() {
        for holder in located.holders(place) {
            let node = usize::from(holder.node);
            if !jobs[index].holders.contains(&NodeKey::of(&located.nodes()[node])) {
                asked[node].push(index);
            }
        }
    }
    let named = located.nodes().iter().zip(asked).filter(|(_, asked)| !asked.is_empty());
    let reached = named.filter_map(|(node, asked)| Some((core.peers.reach(node, deadline)?, asked)));
    reached.filter(|(peer, _)| !peer.is_down()).collect()
}

/// Has a holder confirm what a catalog says of it, which counts as a use.
fn confirm(peer: &Peer, asked: &[usize], jobs: &mut [Job<'_>], deadline: Deadline) {
    let ids = asked.iter().map(|&index| jobs[index].id).collect();
    let Ok(Reply::Found(found)) = peer.call(&Request::Confirm(ids), deadline) else { return };
    for (&index, _) in asked.iter().zip(found).filter(|(_, copy)| copy.is_some()) {
        jobs[index].holders.push(peer.key.clone());
    }
}
