//! Fetches blocks from several nodes at once, with many blocks in flight, over transports that are kept between fetches.
//!
//! All nodes are asked at the same time, so that those that keep silent cost one time-out together. Nodes with an idle
//! transport are asked from the caller's thread. The others are connected to on threads of their own, and each is asked as
//! soon as it is connected. A client's get and a node's pull both fetch here; which node holds which block, and what becomes
//! of a block that has come, is theirs ([`Source`], [`Reads`]).

mod flight;

use crate::conn::ConnError;
use crate::lent::Lent;
use crate::ops::{Done, Failure, ReadOp};
use crate::transport::Transport;
use flight::Flight;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use tidepool_types::Deadline;

/// Nodes connected to at once.
const CONNECTS_AT_ONCE: usize = 64;
/// How long one flight is waited for while others are under way.
const TURN: Duration = Duration::from_millis(10);
/// A node that has let a flight wait for so long has it told so: see [`Source::is_silent`].
pub const SILENCE: Duration = Duration::from_millis(300);

/// A transport that is a flight's own for as long as it flies.
pub type OwnTransport<'a> = Lent<'a, Box<dyn Transport>>;

/// A node that blocks are fetched from.
pub trait Source: Sync {
    /// A transport to the node that is connected and unused, if there is one.
    fn idle_transport(&self) -> Option<OwnTransport<'_>>;

    /// A transport to the node, connected anew if need be.
    fn transport(&self, until: Deadline) -> Result<OwnTransport<'_>, ConnError>;

    /// The node broke off, or does not answer as it should.
    fn has_failed(&self);

    /// The node has kept this fetch waiting for [`SILENCE`], or past its deadline.
    fn is_late(&self);

    /// Whether the node, of which nothing has come `for_so_long`, is waited for no longer.
    fn is_silent(&self, for_so_long: Duration) -> bool;
}

/// The reads of a fetch, by number.
pub trait Reads {
    /// The operation of a read; its token is the read's number. The memory of its destination is the transport's until the
    /// read is settled.
    fn op(&mut self, read: usize) -> ReadOp;

    /// What has become of a read.
    fn settle(&mut self, read: usize, outcome: Result<Done, Failure>);

    /// Whether the fetch is to go on. After a no, every read that is under way is cancelled and settled.
    fn go_on(&self) -> bool;
}

/// The reads that one node is asked for.
#[derive(Debug)]
pub struct Group<S> {
    /// The node.
    pub source: S,
    /// Numbers of its reads.
    pub reads: Vec<usize>,
}

/// Has each group's node asked for its reads, and waits until all are settled. Only then is their memory the caller's again.
pub fn fetch<S: Source>(groups: &[Group<&S>], reads: &mut impl Reads, deadline: Deadline) {
    let mut flights = Flights { under_way: Vec::new(), deadline };
    let mut unconnected = Vec::new();
    for group in groups {
        match group.source.idle_transport() {
            Some(transport) => flights.start(group, transport, reads),
            None => unconnected.push(group),
        }
    }
    match &unconnected[..] {
        [] => {}
        [group] if flights.under_way.is_empty() => flights.connected(group, connect(group, deadline), reads),
        _ => return flights.finish_and_connect(&unconnected, reads),
    }
    while !flights.under_way.is_empty() {
        flights.advance(reads, true);
    }
}

fn connect<'a, S: Source>(group: &Group<&'a S>, deadline: Deadline) -> Option<OwnTransport<'a>> {
    group.source.transport(deadline).ok()
}

/// What is under way.
struct Flights<'a, S> {
    under_way: Vec<Flight<'a, S>>,
    deadline: Deadline,
}

impl<'a, S: Source> Flights<'a, S> {
    /// Waits for the flights, while other nodes are being connected to.
    fn finish_and_connect(mut self, unconnected: &[&'a Group<&'a S>], reads: &mut impl Reads) {
        let deadline = self.deadline;
        let (sender, connected) = sync_channel(unconnected.len());
        let next = AtomicUsize::new(0);
        let work = |sender: SyncSender<_>| {
            while let Some(group) = unconnected.get(next.fetch_add(1, Ordering::Relaxed)) {
                // There is room for all, and the receiver outlives this.
                let _ = sender.send((*group, connect(group, deadline)));
            }
        };
        std::thread::scope(|scope| {
            let mut threads = 0;
            for _ in 0..unconnected.len().min(CONNECTS_AT_ONCE) {
                let (sender, work) = (sender.clone(), &work);
                // Without a thread the others have more to do.
                threads += usize::from(std::thread::Builder::new().spawn_scoped(scope, move || work(sender)).is_ok());
            }
            if threads == 0 {
                work(sender.clone());
            }
            drop(sender);
            let mut connecting = true;
            while connecting || !self.under_way.is_empty() {
                let next = match self.under_way.is_empty() {
                    true => connected.recv().map_err(|_| TryRecvError::Disconnected),
                    false => connected.try_recv(),
                };
                match next {
                    Ok((group, transport)) => self.connected(group, transport, reads),
                    Err(error) => {
                        connecting &= error != TryRecvError::Disconnected;
                        self.advance(reads, !connecting);
                    }
                }
            }
        });
    }

    fn connected(&mut self, group: &'a Group<&'a S>, transport: Option<OwnTransport<'a>>, reads: &mut impl Reads) {
        match transport {
            Some(transport) => self.start(group, transport, reads),
            None => group.reads.iter().for_each(|&read| reads.settle(read, Err(Failure::Unavailable))),
        }
    }

    fn start(&mut self, group: &'a Group<&'a S>, transport: OwnTransport<'a>, reads: &mut impl Reads) {
        self.under_way.push(Flight::start(group, transport, reads, self.deadline));
    }

    /// Takes in what has arrived. With nothing else to look after (`last`), one flight alone is waited for longer.
    fn advance(&mut self, reads: &mut impl Reads, last: bool) {
        let alone = last && self.under_way.len() == 1;
        // All of them together: the first that keeps silent takes the time, the others are only looked at.
        let until = Deadline::after(if alone { SILENCE } else { TURN });
        let flights = std::mem::take(&mut self.under_way).into_iter();
        self.under_way = flights.filter_map(|flight| flight.advance(reads, self.deadline, until, alone)).collect();
    }
}
