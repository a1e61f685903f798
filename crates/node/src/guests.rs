//! The connections that a node has open, bounded in number.
//!
//! A connection that has not said hello yet holds its place only for as long as nobody else wants it: sockets that are
//! opened and then kept silent cannot lock clients out.

use std::collections::BTreeMap;
use std::sync::Arc;
use tidepool_locks::Mutex;
use tidepool_transfer::conn::Socket;

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
    socket: Arc<Socket>,
    greeted: bool,
}

/// A connection's place; given back when dropped.
pub(crate) struct Seat {
    guests: Arc<Guests>,
    number: u64,
}

/// What admitting a connection came to.
pub(crate) enum Admission {
    /// There is a place for it; true if the oldest silent connection had to go.
    Seat(Seat, bool),
    /// All places are taken by connections that have said hello.
    Full,
}

impl Guests {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// Takes a place for a connection that has just been accepted.
    pub(crate) fn admit(self: &Arc<Self>, socket: &Arc<Socket>) -> Admission {
        let mut open = self.open.lock();
        let full = open.guests.len() >= self.limit;
        if full {
            let Some(silent) = open.guests.iter().find(|(_, guest)| !guest.greeted).map(|(number, _)| *number) else {
                return Admission::Full;
            };
            // Its thread wakes, finds the socket closed and ends.
            open.guests.remove(&silent).inspect(|guest| guest.socket.close());
        }
        open.last += 1;
        let number = open.last;
        open.guests.insert(number, Guest { socket: Arc::clone(socket), greeted: false });
        Admission::Seat(Seat { guests: Arc::clone(self), number }, full)
    }

    /// Closes every connection; true once there is none.
    pub(crate) fn close_all(&self) -> bool {
        let open = self.open.lock();
        open.guests.values().for_each(|guest| guest.socket.close());
        open.guests.is_empty()
    }
}

impl Seat {
    /// The connection has said hello: its place is its own.
    pub(crate) fn greeted(&self) {
        if let Some(guest) = self.guests.open.lock().guests.get_mut(&self.number) {
            guest.greeted = true;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.guests.open.lock().guests.remove(&self.number);
    }
}
