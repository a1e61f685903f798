//! Reads from wherever the catalogs say: grouped by owner, all owners at once, replica after replica. Of replicas that are
//! equally good each client starts with one of its own, so that many readers of one block share its holders.

use super::local;
use super::read::{Miss, Read, Verdict};
use crate::catalogs::Located;
use crate::core::Core;
use crate::counters::add;
use crate::peers::{Peer, Way};
use std::sync::Arc;
use tidepool_transfer::fetch::{self, Group, Reads};
use tidepool_transfer::ops::{Done, Failure, ReadOp};
use tidepool_types::Deadline;

/// Reads that this host's nodes do not hold.
pub(super) fn read(core: &Core, reads: &mut [Read], deadline: Deadline) {
    ask_only_remote(core, reads, deadline);
    let wanted: Vec<usize> = (0..reads.len()).filter(|&index| reads[index].is_wanted()).collect();
    if wanted.is_empty() {
        return;
    }
    let ids: Vec<_> = wanted.iter().map(|&index| reads[index].id).collect();
    let answer = core.catalogs.lookup(&ids, deadline);
    let mut holders = answer.located;
    holders.spread(&ids, core.id);
    if !answer.complete {
        let unsure = wanted.iter().enumerate().filter(|(asked, _)| !holders.is_found(*asked));
        let miss = if answer.answered { Miss::Unsure } else { Miss::NoCatalog };
        unsure.for_each(|(_, &index)| reads[index].note(miss));
    }
    let mut seekers: Vec<Seeker> =
        wanted.into_iter().enumerate().map(|(asked, read)| Seeker { read, asked, next: 0 }).collect();
    let mut first = true;
    while !seekers.is_empty() && !deadline.has_passed() {
        let groups = group(core, &holders, &mut seekers, reads, deadline);
        if groups.is_empty() {
            return;
        }
        if !first {
            add(&core.counters.retries, groups.iter().map(|group| group.reads.len() as u64).sum());
        }
        first = false;
        // While another replica could still be asked, one that keeps silent must leave time for it.
        let more = seekers.iter().any(|seeker| seeker.next < holders.holders(seeker.asked).len());
        let until = if more { deadline.capped(deadline.remaining() / 2) } else { deadline };
        read_groups(core, &groups, reads, until);
        seekers.retain(|seeker| reads[seeker.read].is_wanted());
    }
}

/// A pool with one node beside this host's needs no catalog for a hit: that node knows what it holds. What it does not
/// hold is looked up as ever, since another node may have joined.
fn ask_only_remote(core: &Core, reads: &mut [Read], deadline: Deadline) {
    let table = core.peers.table();
    if let Some(peer) = table.only_remote() {
        let wanted = (0..reads.len()).filter(|&index| reads[index].is_wanted()).collect();
        let group = Group { source: Arc::clone(peer), reads: wanted };
        read_groups(core, &[group], reads, deadline.capped(deadline.remaining() / 2));
    }
}

/// A read on its way from holder to holder.
struct Seeker {
    read: usize,
    /// Its place in what the catalog was asked.
    asked: usize,
    /// The next holder to try.
    next: usize,
}

/// Sends each seeker to its next holder that can be reached. Those that have none left are done.
fn group(
    core: &Core,
    holders: &Located,
    seekers: &mut Vec<Seeker>,
    reads: &mut [Read],
    deadline: Deadline,
) -> Vec<Group<Arc<Peer>>> {
    let mut peers: Vec<Option<Option<Arc<Peer>>>> = vec![None; holders.nodes().len()];
    let mut reach = |node: u16| {
        let node = usize::from(node);
        let known = peers[node].get_or_insert_with(|| core.peers.reach(&holders.nodes()[node], deadline));
        // A stopped owner on this host can still be read from: its memory needs no answer.
        known.clone().filter(|peer| !peer.is_down() || peer.memory().is_some())
    };
    let mut groups: Vec<Group<Arc<Peer>>> = Vec::new();
    seekers.retain_mut(|seeker| {
        let rest = &holders.holders(seeker.asked)[seeker.next..];
        let found = rest.iter().enumerate().find_map(|(skipped, holder)| Some((skipped, reach(holder.node)?)));
        let Some((skipped, peer)) = found else {
            if !rest.is_empty() {
                reads[seeker.read].note(Miss::Unavailable);
            }
            return false;
        };
        seeker.next += skipped + 1;
        match groups.iter_mut().find(|group| Arc::ptr_eq(&group.source, &peer)) {
            Some(group) => group.reads.push(seeker.read),
            None => groups.push(Group { source: peer, reads: vec![seeker.read] }),
        }
        true
    });
    groups
}

fn read_groups(core: &Core, groups: &[Group<Arc<Peer>>], reads: &mut [Read], deadline: Deadline) {
    let mut remote = Vec::new();
    for Group { source: peer, reads: wanted } in groups {
        match &peer.way {
            Way::Network(_) => remote.push(Group { source: &**peer, reads: wanted.clone() }),
            Way::Memory(memory) => {
                let mut picked = vec![false; reads.len()];
                wanted.iter().for_each(|&read| picked[read] = true);
                local::read_from(core, (peer, memory), reads, deadline, |index, _| picked[index]);
            }
        }
    }
    fetch::fetch(&remote, &mut Fetched { core, reads }, deadline);
}

/// The reads of a batch as a fetch sees them.
struct Fetched<'a> {
    core: &'a Core,
    reads: &'a mut [Read],
}

impl Reads for Fetched<'_> {
    fn op(&mut self, read: usize) -> ReadOp {
        self.reads[read].op(read)
    }

    fn settle(&mut self, read: usize, outcome: Result<Done, Failure>) {
        let Some(read) = self.reads.get_mut(read) else { return };
        let counters = &self.core.counters;
        match read.settle(outcome) {
            Verdict::Hit(hit) => {
                add(&counters.hits_tcp, 1);
                add(&counters.bytes_read_tcp, hit.bytes);
                add(&counters.foreign_hits, u64::from(hit.writer != self.core.id));
            }
            Verdict::LostRace => add(&counters.lost_races, 1),
            Verdict::Corrupt(_) => add(&counters.corrupt_copies, 1),
            Verdict::Other => {}
        }
    }

    fn go_on(&self) -> bool {
        true
    }
}
