//! Reads under way over TCP: to all nodes at once, so that those that keep silent cost one time-out together.
//!
//! Nodes that this client has a connection to are asked from the caller's thread. The others are connected to on threads of
//! their own; whoever is connected is asked at once.

use super::read::{Miss, Read, Verdict, read_of};
use super::remote::Group;
use crate::bounded::Lent;
use crate::core::Core;
use crate::counters::add;
use crate::peers::SILENCE;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};
use tidepool_transfer::ops::{Completion, Refused};
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::Deadline;

/// Nodes connected to at once.
const CONNECTS_AT_ONCE: usize = 64;
/// How long one flight is waited for while others are under way.
const TURN: Duration = Duration::from_millis(10);

/// Has every group's node asked for its reads, and waits for all of them. Only then is the callers' memory theirs again.
pub(super) fn fly(core: &Core, groups: &[&Group], reads: &mut [Read], deadline: Deadline) {
    let (mut flights, mut unconnected) = (Flights::default(), Vec::new());
    for group in groups {
        match group.peer.idle_transport() {
            Some(transport) => flights.start(group, transport, reads, deadline),
            None => unconnected.push(*group),
        }
    }
    match &unconnected[..] {
        [] => {}
        [group] if flights.0.is_empty() => flights.connected(group, connect(group, deadline), reads, deadline),
        _ => return fly_and_connect(core, flights, &unconnected, reads, deadline),
    }
    while !flights.0.is_empty() {
        flights.advance(core, reads, deadline, true);
    }
}

/// As [`fly`], while other nodes are still being connected to.
fn fly_and_connect<'a>(
    core: &Core,
    mut flights: Flights<'a>,
    unconnected: &[&'a Group],
    reads: &mut [Read],
    deadline: Deadline,
) {
    let (sender, connected) = sync_channel(unconnected.len());
    let next = AtomicUsize::new(0);
    let work = |sender: SyncSender<_>| {
        while let Some(group) = unconnected.get(next.fetch_add(1, Ordering::Relaxed)) {
            // There is room for all, and the receiver outlives this.
            let _ = sender.send((*group, connect(group, deadline)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..unconnected.len().min(CONNECTS_AT_ONCE) {
            let (sender, work) = (sender.clone(), &work);
            // Without a thread the others have more to do.
            let _ = std::thread::Builder::new().spawn_scoped(scope, move || work(sender));
        }
        drop(sender);
        let mut connecting = true;
        while connecting || !flights.0.is_empty() {
            let next = match flights.0.is_empty() {
                true => connected.recv().map_err(|_| TryRecvError::Disconnected),
                false => connected.try_recv(),
            };
            match next {
                Ok((group, transport)) => flights.connected(group, transport, reads, deadline),
                Err(error) => {
                    connecting &= error != TryRecvError::Disconnected;
                    flights.advance(core, reads, deadline, !connecting);
                }
            }
        }
    });
}

/// A transport that is a flight's own for as long as it flies.
type OwnTransport<'a> = Lent<'a, Box<dyn Transport>>;

fn connect<'a>(group: &'a Group, deadline: Deadline) -> Option<OwnTransport<'a>> {
    group.peer.transport(deadline).ok()
}

/// What is under way.
#[derive(Default)]
struct Flights<'a>(Vec<Flight<'a>>);

impl<'a> Flights<'a> {
    fn connected(
        &mut self,
        group: &'a Group,
        transport: Option<OwnTransport<'a>>,
        reads: &mut [Read],
        deadline: Deadline,
    ) {
        match transport {
            Some(transport) => self.start(group, transport, reads, deadline),
            None => group.reads.iter().for_each(|&read| reads[read].note(Miss::Unavailable)),
        }
    }

    fn start(&mut self, group: &'a Group, transport: OwnTransport<'a>, reads: &mut [Read], deadline: Deadline) {
        let waiting = group.reads.clone();
        let mut flight = Flight { group, transport, under_way: 0, waiting, heard: Instant::now(), cancelled: false };
        flight.submit(reads, deadline);
        self.0.push(flight);
    }

    /// Takes in what has arrived. With nothing else to look after (`last`), one flight alone is waited for longer.
    fn advance(&mut self, core: &Core, reads: &mut [Read], deadline: Deadline, last: bool) {
        let alone = last && self.0.len() == 1;
        let patience = if alone { SILENCE } else { TURN };
        // All of them together: the first that keeps silent takes the time, the others are only looked at.
        let until = Deadline::after(patience);
        let flights = std::mem::take(&mut self.0).into_iter();
        self.0 = flights.filter_map(|flight| flight.advance(core, reads, deadline, until, alone)).collect();
    }
}

/// Reads under way to one node.
struct Flight<'a> {
    group: &'a Group,
    /// Dropped on a panic, which waits until nothing touches the callers' memory any more.
    transport: OwnTransport<'a>,
    under_way: usize,
    waiting: Vec<usize>,
    /// When the last read completed.
    heard: Instant,
    cancelled: bool,
}

impl Flight<'_> {
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

    /// Takes in what arrives before `until`. `None` when all reads have completed.
    fn advance(
        mut self,
        core: &Core,
        reads: &mut [Read],
        deadline: Deadline,
        until: Deadline,
        alone: bool,
    ) -> Option<Self> {
        let mut done = Vec::new();
        // Waking for every frame would take time from the threads that receive; but what waits for room goes out early.
        let least = if self.waiting.is_empty() && alone { self.under_way } else { 1 };
        match self.transport.get().poll_many(&mut done, least, until) {
            0 if self.heard.elapsed() >= SILENCE => self.doubt(reads, deadline),
            0 => {}
            _ => self.heard = Instant::now(),
        }
        done.drain(..).for_each(|completion| self.settle(core, reads, completion));
        if !self.waiting.is_empty() && !self.cancelled {
            self.submit(reads, deadline);
        }
        if self.under_way > 0 {
            return Some(self);
        }
        self.waiting.iter().for_each(|&index| reads[index].note(Miss::Unavailable));
        match self.transport.get().health() {
            Health::Down => self.group.peer.set_down(),
            Health::Up | Health::Degraded => self.transport.give_back(),
        }
        None
    }

    /// The node keeps silent. Once others find so too, or time is up, its reads are given up.
    fn doubt(&mut self, reads: &[Read], deadline: Deadline) {
        let peer = &self.group.peer;
        peer.set_suspect();
        if !self.cancelled && (peer.is_down() || deadline.has_passed()) {
            self.cancelled = true;
            let wanted = self.group.reads.iter().filter(|&&index| reads[index].is_wanted());
            wanted.for_each(|&index| self.transport.get().cancel(index as u64));
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
            Verdict::Failed => self.group.peer.set_down(),
            Verdict::Late => self.group.peer.set_suspect(),
            Verdict::Other => {}
        }
    }
}
