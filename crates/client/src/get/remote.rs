//! Reads from wherever the catalogs say: grouped by owner, all owners at once, replica after replica.

use super::local;
use super::read::{Miss, Read, Verdict, read_of};
use crate::bounded::Taken;
use crate::catalogs::Located;
use crate::core::Core;
use crate::counters::add;
use crate::peers::{Peer, Reach, SILENCE};
use std::sync::Arc;
use tidepool_transfer::fault::Faulty;
use tidepool_transfer::ops::{Completion, Refused};
use tidepool_transfer::tcp::TcpTransport;
use tidepool_transfer::transport::{Health, Transport as _};
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
    let holders = answer.located;
    if !answer.complete {
        let unsure = wanted.iter().enumerate().filter(|(asked, _)| !holders.is_found(*asked));
        unsure.for_each(|(_, &index)| reads[index].note(Miss::NoCatalog));
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
        let group = Group { peer: Arc::clone(peer), reads: wanted };
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

/// Reads that one node is asked for.
struct Group {
    peer: Arc<Peer>,
    reads: Vec<usize>,
}

/// Sends each seeker to its next holder that can be reached. Those that have none left are done.
fn group(
    core: &Core,
    holders: &Located,
    seekers: &mut Vec<Seeker>,
    reads: &mut [Read],
    deadline: Deadline,
) -> Vec<Group> {
    let mut peers: Vec<Option<Option<Arc<Peer>>>> = vec![None; holders.nodes().len()];
    let mut reach = |node: u16| {
        let node = usize::from(node);
        let known = peers[node].get_or_insert_with(|| core.peers.reach(&holders.nodes()[node], deadline));
        // A stopped owner on this host can still be read from: its memory needs no answer.
        known.clone().filter(|peer| !peer.is_down() || peer.memory().is_some())
    };
    let mut groups: Vec<Group> = Vec::new();
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
        match groups.iter_mut().find(|group| Arc::ptr_eq(&group.peer, &peer)) {
            Some(group) => group.reads.push(seeker.read),
            None => groups.push(Group { peer, reads: vec![seeker.read] }),
        }
        true
    });
    groups
}

fn read_groups(core: &Core, groups: &[Group], reads: &mut [Read], deadline: Deadline) {
    let mut flights = Vec::new();
    for group in groups {
        match &group.peer.reach {
            Reach::Network(_) => flights.extend(Flight::start(group, reads, deadline)),
            Reach::Memory(memory) => {
                let mut picked = vec![false; reads.len()];
                group.reads.iter().for_each(|&read| picked[read] = true);
                local::read_from(core, memory, reads, deadline, |index, _| picked[index]);
            }
        }
    }
    flights.into_iter().for_each(|flight| flight.finish(core, reads, deadline));
}

/// Reads under way to one node.
struct Flight<'a> {
    peer: &'a Peer,
    /// Dropped on a panic, which waits until nothing touches the callers' memory any more.
    transport: Taken<'a, Faulty<TcpTransport>>,
    group: &'a [usize],
    under_way: usize,
    waiting: Vec<usize>,
}

impl<'a> Flight<'a> {
    fn start(group: &'a Group, reads: &mut [Read], deadline: Deadline) -> Option<Self> {
        let Ok(transport) = group.peer.transport(deadline) else {
            group.reads.iter().for_each(|&read| reads[read].note(Miss::Unavailable));
            return None;
        };
        let waiting = group.reads.clone();
        let mut flight = Self { peer: &group.peer, transport, group: &group.reads, under_way: 0, waiting };
        flight.submit(reads, deadline);
        Some(flight)
    }

    /// Starts as many of the waiting reads as the transport takes.
    fn submit(&mut self, reads: &mut [Read], deadline: Deadline) {
        let waiting = std::mem::take(&mut self.waiting);
        let ops = waiting.iter().map(|&index| reads[index].op(index)).collect();
        let answers = self.transport.get().submit(ops, deadline);
        for (index, answer) in waiting.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.under_way += 1,
                Err(Refused::Full) => self.waiting.push(index),
                Err(Refused::Closed) => reads[index].note(Miss::Unavailable),
            }
        }
    }

    /// Waits for every read. Only when all have completed is the callers' memory theirs again.
    fn finish(mut self, core: &Core, reads: &mut [Read], deadline: Deadline) {
        let mut done = Vec::new();
        let mut cancelled = false;
        while self.under_way > 0 {
            if self.transport.get().poll(&mut done, Deadline::after(SILENCE)) == 0 && !cancelled {
                self.peer.set_suspect();
                if self.peer.is_down() || deadline.has_passed() {
                    cancelled = true;
                    let wanted = self.group.iter().filter(|&&index| reads[index].is_wanted());
                    wanted.for_each(|&index| self.transport.get().cancel(index as u64));
                }
            }
            done.drain(..).for_each(|completion| self.settle(core, reads, completion));
            if !self.waiting.is_empty() && !cancelled {
                self.submit(reads, deadline);
            }
        }
        self.waiting.iter().for_each(|&index| reads[index].note(Miss::Unavailable));
        match self.transport.get().health() {
            Health::Down => self.peer.set_down(),
            Health::Up | Health::Degraded => self.transport.give_back(),
        }
    }

    fn settle(&mut self, core: &Core, reads: &mut [Read], completion: Completion) {
        self.under_way -= 1;
        let Some(read) = read_of(reads, &completion) else { return };
        let counters = &core.counters;
        match read.settle(completion.outcome) {
            Verdict::Hit(hit) => {
                add(&counters.hits_tcp, 1);
                add(&counters.bytes_read_tcp, hit.bytes);
                add(&counters.foreign_hits, u64::from(hit.writer != core.id));
            }
            Verdict::LostRace => add(&counters.lost_races, 1),
            Verdict::Corrupt(_) => add(&counters.corrupt_copies, 1),
            Verdict::Failed => self.peer.set_down(),
            Verdict::Late => self.peer.set_suspect(),
            Verdict::Other => {}
        }
    }
}
