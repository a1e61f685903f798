//! Whether a block is held already: this host's indexes and the catalogs say who may hold it, and the holder confirms.

use super::Job;
use crate::catalogs::Located;
use crate::core::Core;
use crate::fan_out::{at_once, for_catalogs};
use crate::peers::{NodeKey, Peer};
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::{BlockId, CopyName, Deadline};
use tidepool_wire::message::{Ids, Reply, Request, Run};

/// How long a holder may take to confirm a batch. Without an answer the block is put as if it were absent.
const CONFIRM: Duration = Duration::from_millis(250);

/// Looks into the indexes of this host's nodes. What is there the node confirms: another writer may have sealed it a
/// moment ago, and the answer to this put must not come before the catalogs know of it.
pub(super) fn find_here(core: &Core, jobs: &mut [Job<'_>], deadline: Deadline) {
    let mut jobs: Vec<&mut Job<'_>> = jobs.iter_mut().collect();
    for (peer, memory) in core.peers.table().locals.iter().filter_map(|peer| Some((peer, peer.memory()?))) {
        jobs.iter().for_each(|job| memory.mapping.prefetch_index(&job.id));
        let held = |index: &usize| jobs[*index].lacks_copies() && memory.mapping.find(&jobs[*index].id).is_some();
        let held: Vec<usize> = (0..jobs.len()).filter(held).collect();
        if !held.is_empty() {
            let found = confirm(peer, &held, &jobs, deadline);
            note_holder(peer, &held, found, &mut jobs);
        }
    }
}

/// Asks the catalogs who else holds the blocks, and has them confirm it.
pub(super) fn find_elsewhere(core: &Core, jobs: &mut [&mut Job<'_>], deadline: Deadline) {
    let open: Vec<usize> = (0..jobs.len()).filter(|&index| jobs[index].lacks_copies()).collect();
    if open.is_empty() {
        return;
    }
    let ids: Vec<BlockId> = open.iter().map(|&index| jobs[index].id).collect();
    let located = core.catalogs.lookup(&ids, for_catalogs(deadline)).located;
    let named = named_holders(core, &located, jobs, &open, deadline);
    let confirmed = at_once(&named, |(peer, asked)| confirm(peer, asked, jobs, deadline));
    for ((peer, asked), found) in named.iter().zip(confirmed) {
        note_holder(peer, asked, found.unwrap_or_default(), jobs);
    }
}

/// The nodes that a catalog names, each with the blocks that it should hold.
fn named_holders(
    core: &Core,
    located: &Located,
    jobs: &[&mut Job<'_>],
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
fn confirm(peer: &Peer, asked: &[usize], jobs: &[&mut Job<'_>], deadline: Deadline) -> Vec<Option<(CopyName, u64)>> {
    let request = |asked: &[usize]| {
        let ids = asked.iter().map(|&index| jobs[index].id).collect();
        Request::Confirm(Ids { ids, runs: Run::of_uses(asked.iter().map(|&index| jobs[index].used)) })
    };
    let read = |reply| if let Reply::Found(found) = reply { Some(found.copies) } else { None };
    peer.call_about(asked, request, || deadline.capped(CONFIRM), read)
}

/// Takes note of what a holder has confirmed.
fn note_holder(peer: &Peer, asked: &[usize], found: Vec<Option<(CopyName, u64)>>, jobs: &mut [&mut Job<'_>]) {
    for (&index, _) in asked.iter().zip(found).filter(|(_, copy)| copy.is_some()) {
        jobs[index].note_holder(&peer.key);
    }
}
