//! Seats for the connections that a server has open, bounded in number.
//!
//! A silent connection keeps its seat only until a new connection needs it, so that silent connections cannot lock
//! others out.

use crate::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The seats of one server. `G` is the handle with which the server ends a connection.
#[derive(Debug)]
pub struct Seats<G> {
    limit: usize,
    // Locked when a connection comes or goes.
    taken: Mutex<Taken<G>>,
}

#[derive(Debug)]
struct Taken<G> {
    last: u64,
    /// The most seats taken at once since [`Seats::start_over`].
    most: usize,
    /// Silent connections, the oldest first.
    guests: BTreeMap<u64, (G, Voice)>,
}

/// Whether a connection has spoken. Clones speak for the same connection.
#[derive(Debug, Clone, Default)]
pub struct Voice(Arc<AtomicBool>);

impl Voice {
    /// Notes that the connection has spoken: it keeps its seat from now on.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection's seat; given back when dropped.
#[derive(Debug)]
pub struct Seat<G> {
    seats: Arc<Seats<G>>,
    number: u64,
    voice: Voice,
}

impl<G> Seats<G> {
    /// At most `limit` seats.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, taken: Mutex::new(Taken { last: 0, most: 0, guests: BTreeMap::new() }) })
    }

    /// A seat for a connection that was just accepted, and the oldest silent connection if that one has to go for it.
    /// `None` when every seated connection has spoken.
    pub fn admit(self: &Arc<Self>, guest: G) -> Option<(Seat<G>, Option<G>)> {
        let mut taken = self.taken.lock();
        let mut evicted = None;
        if taken.guests.len() >= self.limit {
            let is_silent = |(number, (_, voice)): (&u64, &(G, Voice))| (!voice.is_raised()).then_some(*number);
            let silent = taken.guests.iter().find_map(is_silent)?;
            evicted = taken.guests.remove(&silent).map(|(guest, _)| guest);
        }
        taken.last += 1;
        let (number, voice) = (taken.last, Voice::default());
        taken.guests.insert(number, (guest, voice.clone()));
        taken.most = taken.most.max(taken.guests.len());
        Some((Seat { seats: Arc::clone(self), number, voice }, evicted))
    }

    /// How many seats are taken, and the most that were at once since [`Seats::start_over`].
    pub fn counts(&self) -> (usize, usize) {
        let taken = self.taken.lock();
        (taken.guests.len(), taken.most)
    }

    /// Counts the most seats anew from now on.
    pub fn start_over(&self) {
        let mut taken = self.taken.lock();
        taken.most = taken.guests.len();
    }

    /// Calls `end` for every seated connection. Returns their number.
    pub fn end_all(&self, end: impl Fn(&G)) -> usize {
        let taken = self.taken.lock();
        taken.guests.values().for_each(|(guest, _)| end(guest));
        taken.guests.len()
    }
}

impl<G> Seat<G> {
    /// The voice of the seat's connection.
    #[must_use]
    pub fn voice(&self) -> &Voice {
        &self.voice
    }
}

impl<G> Drop for Seat<G> {
    fn drop(&mut self) {
        self.seats.taken.lock().guests.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_makes_room_and_one_that_has_spoken_does_not() {
        let seats = Seats::new(2);
        let (first, evicted) = seats.admit("first").unwrap();
        assert_eq!(evicted, None);
        let (second, _) = seats.admit("second").unwrap();
        first.voice().raise();
        let (third, evicted) = seats.admit("third").unwrap();
        assert_eq!(evicted, Some("second"), "the oldest that is silent");
        third.voice().raise();
        assert!(seats.admit("fourth").is_none(), "both have spoken");
        drop(second);
        assert!(seats.admit("fourth").is_none(), "an evicted connection gives nothing back");
        drop(first);
        let (_fourth, evicted) = seats.admit("fourth").unwrap();
        assert_eq!((evicted, seats.end_all(|_| {})), (None, 2));
    }
}
