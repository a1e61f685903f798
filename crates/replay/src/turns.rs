//! Turns on an engine, which looks up or computes one request at a time, in the order of arrival.

use std::collections::BTreeSet;
use tidepool_locks::{Condvar, Mutex};

/// Requests that wait for an engine.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    // Short sections.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    came: u64,
    waiting: BTreeSet<Place>,
    is_taken: bool,
}

/// A place in the order of arrivals. A request keeps it while it is loaded, and then goes before all later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// A turn, which ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Takes the next place. Later requests wait for this one, so the caller must wait for its turn and take it.
    pub(crate) fn come(&self) -> Place {
        let mut state = self.state.lock();
        state.came += 1;
        let place = Place(state.came);
        state.waiting.insert(place);
        place
    }

    /// Waits for the turn of a request that came.
    pub(crate) fn wait(&self, place: Place) -> Turn<'_> {
        let mut state = self.state.lock();
        state.waiting.insert(place);
        self.changed.wait_while(&mut state, |state| state.is_taken || state.waiting.first() != Some(&place));
        state.waiting.remove(&place);
        state.is_taken = true;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_testing::eventually;

    #[test]
    fn who_came_first_is_first_also_after_a_break() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        let places = [(); 3].map(|()| turns.come());
        let first = turns.wait(places[0]);
        std::thread::scope(|scope| {
            for place in [places[2], places[1], places[0]] {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.wait(place);
                    order.lock().push(place);
                });
            }
            // The first has had its turn, and wants another one: all three wait now.
            eventually("all three wait", || turns.state.lock().waiting.len() == 3);
            drop(first);
        });
        assert_eq!(*order.lock(), places);
    }
}
