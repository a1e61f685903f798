//! The connections that a catalog has open, bounded in number.
//!
//! A connection that has asked nothing yet holds its place only for as long as nobody else wants it: sockets that are opened
//! and then kept silent cannot lock nodes and clients out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidepool_locks::Mutex;
use tokio::sync::oneshot;

/// Open connections, oldest first.
pub(crate) struct Guests {
    limit: usize,
    /// Short sections.
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    guests: BTreeMap<u64, Guest>,
}

struct Guest {
    voice: Voice,
    /// Dropped to have the connection end.
    _stay: oneshot::Sender<()>,
}

/// Whether a connection has asked anything. Every request of the connection carries it.
#[derive(Clone, Default)]
pub(crate) struct Voice(Arc<AtomicBool>);

impl Voice {
    /// The connection has asked something: its place is its own.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection's place; given back when dropped.
pub(crate) struct Seat {
    guests: Arc<Guests>,
    number: u64,
    pub(crate) voice: Voice,
    /// Resolves when the connection must make way.
    pub(crate) end: oneshot::Receiver<()>,
}

impl Guests {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// A place for a connection that has just been accepted, and whether the oldest silent one had to go for it. `None`: all
    /// places are taken by connections that have asked something.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<(Seat, bool)> {
        let mut open = self.open.lock();
        let full = open.guests.len() >= self.limit;
        if full {
            let silent = open.guests.iter().find(|(_, guest)| !guest.voice.is_raised()).map(|(number, _)| *number)?;
            open.guests.remove(&silent);
        }
        open.last += 1;
        let number = open.last;
        let (stay, end) = oneshot::channel();
        let voice = Voice::default();
        open.guests.insert(number, Guest { voice: voice.clone(), _stay: stay });
        Some((Seat { guests: Arc::clone(self), number, voice, end }, full))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.guests.open.lock().guests.remove(&self.number);
    }
}
