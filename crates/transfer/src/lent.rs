//! A bounded set of connections or transports that callers take one at a time, and that are kept between callers.

use crate::conn::ConnError;
use std::fmt;
use tidepool_locks::{Condvar, Mutex};
use tidepool_types::Deadline;

/// At most `most` things; a caller that finds all of them lent waits for one.
pub struct Bounded<T> {
    most: usize,
    /// Short sections: taking and giving back.
    state: Mutex<State<T>>,
    freed: Condvar,
}

struct State<T> {
    idle: Vec<T>,
    lent: usize,
}

/// One thing while a caller has it. Dropping it ends the thing; [`Lent::give_back`] keeps it for the next caller.
pub struct Lent<'a, T> {
    from: &'a Bounded<T>,
    thing: Option<T>,
}

impl<T> fmt::Debug for Bounded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("most", &self.most).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

impl<T> Bounded<T> {
    /// At most `most` things.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let state = State { idle: Vec::new(), lent: 0 };
        Self { most, state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Takes an idle thing that `fit`s, else makes one if there may be more, else waits.
    pub fn take(
        &self,
        until: Deadline,
        fit: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, ConnError>,
    ) -> Result<Lent<'_, T>, ConnError> {
        let idle = self.take_idle_or_room(until, fit)?;
        // From here on the place counts as lent; the guard frees it if `make` fails.
        let mut lent = Lent { from: self, thing: idle };
        if lent.thing.is_none() {
            lent.thing = Some(make()?);
        }
        Ok(lent)
    }

    /// Takes an idle thing that `fit`s, if there is one.
    pub fn take_idle(&self, fit: impl Fn(&T) -> bool) -> Option<Lent<'_, T>> {
        let mut state = self.state.lock();
        let place = state.idle.iter().rposition(fit)?;
        let thing = state.idle.swap_remove(place);
        state.lent += 1;
        Some(Lent { from: self, thing: Some(thing) })
    }

    fn take_idle_or_room(&self, until: Deadline, fit: impl Fn(&T) -> bool) -> Result<Option<T>, ConnError> {
        let mut unfit = Vec::new();
        let mut state = self.state.lock();
        let found = loop {
            match state.idle.pop() {
                Some(thing) if fit(&thing) => break Some(thing),
                Some(thing) => unfit.push(thing),
                None if state.lent < self.most => break None,
                None if self.freed.wait_until(&mut state, until.instant()).timed_out() => {
                    return Err(ConnError::TimedOut);
                }
                None => {}
            }
        };
        state.lent += 1;
        // Ending a transport joins its threads: not under the lock.
        drop(state);
        drop(unfit);
        Ok(found)
    }

    /// Ends everything idle.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
    }

    /// Whether a caller has one of them.
    pub fn is_in_use(&self) -> bool {
        self.state.lock().lent > 0
    }
}

impl<T> Lent<'_, T> {
    /// The thing.
    ///
    /// # Panics
    /// Never: a lent thing is there until it is given back, which takes this.
    pub fn get(&mut self) -> &mut T {
        self.thing.as_mut().expect("a lent thing is there until it is given back")
    }

    /// Keeps the thing for the next caller.
    pub fn give_back(mut self) {
        if let Some(thing) = self.thing.take() {
            self.from.state.lock().idle.push(thing);
        }
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        drop(self.thing.take());
        self.from.state.lock().lent -= 1;
        self.from.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_millis(10))
    }

    #[test]
    fn no_more_than_the_bound_are_ever_made() {
        let bounded = Bounded::new(2);
        let a = bounded.take(soon(), |_| true, || Ok(1)).ok().unwrap();
        let b = bounded.take(soon(), |_| true, || Ok(2)).ok().unwrap();
        assert!(matches!(bounded.take(soon(), |_| true, || Ok(3)), Err(ConnError::TimedOut)));
        a.give_back();
        let mut again = bounded.take(soon(), |_| true, || Ok(3)).ok().unwrap();
        assert_eq!(*again.get(), 1);
        drop((again, b));
        let mut fresh = bounded.take(soon(), |_| true, || Ok(4)).ok().unwrap();
        assert_eq!(*fresh.get(), 4);
    }

    #[test]
    fn a_failed_make_frees_its_place() {
        let bounded = Bounded::<u8>::new(1);
        assert!(bounded.take(soon(), |_| true, || Err(ConnError::Closed)).is_err());
        assert!(bounded.take(soon(), |_| true, || Ok(1)).is_ok());
    }
}
