//! Staging memory: pinned memory of this process, for blocks that a device cannot copy from where they are. It has two
//! halves, so that one is filled while the other is emptied.
#![expect(unsafe_code, reason = "the memory is lent to a device")]

use std::ops::{Deref, DerefMut};
use std::time::Instant;
use tidepool_client::door::{Door, DoorError, Pinned, REFUSED_FOR};
use tidepool_locks::{Condvar, Mutex};

/// Bytes in a half, unless a block is longer.
const HALF: usize = 32 << 20;
const PAGE: usize = 4096;
/// The most jobs of one direction with staging memory at a time: a slow host holds up only one of them.
const MOST: usize = 4;

/// The staging memory of one direction, made when first needed. A job that finds none free waits.
#[derive(Debug)]
pub(super) struct Stagings {
    /// Short sections: taking and giving back.
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    idle: Vec<Staging>,
    made: usize,
    /// When to ask the driver for more after a refusal.
    refused_until: Option<Instant>,
}

impl State {
    /// Whether jobs must share the memory that is made. At least one is always asked for.
    fn is_all(&self) -> bool {
        let is_refused = self.refused_until.is_some_and(|then| Instant::now() < then);
        self.made >= if is_refused { 1 } else { MOST }
    }
}

/// Staging memory lent to a job.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    /// The memory; none while it is being made.
    staging: Option<Staging>,
    to: &'a Stagings,
}

impl Default for Stagings {
    fn default() -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), made: 0, refused_until: None }), freed: Condvar::new() }
    }
}

impl Stagings {
    /// Takes memory for blocks of up to `longest` bytes, and waits for it; an error if none can be made at all.
    pub(super) fn take(&self, door: &dyn Door, longest: usize) -> Result<Lent<'_>, DoorError> {
        let mut state = self.state.lock();
        loop {
            if let Some(staging) = state.idle.pop() {
                return Ok(Lent { staging: Some(staging), to: self });
            }
            if state.is_all() {
                self.freed.wait(&mut state);
                continue;
            }
            state.made += 1;
            drop(state);
            let mut lent = Lent { staging: None, to: self };
            let made = Staging::new(door, longest);
            let error = match made {
                Ok(staging) => {
                    lent.staging = Some(staging);
                    return Ok(lent);
                }
                Err(error) => error,
            };
            // Jobs share the memory that others have or are about to have.
            self.state.lock().refused_until = Some(Instant::now() + REFUSED_FOR);
            drop(lent);
            state = self.state.lock();
            if state.made == 0 {
                return Err(error);
            }
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Staging;
    fn deref(&self) -> &Staging {
        self.staging.as_ref().expect("lent until it is dropped")
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Staging {
        self.staging.as_mut().expect("lent until it is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.to.state.lock();
        match self.staging.take() {
            Some(staging) => {
                state.idle.push(staging);
                self.to.freed.notify_one();
            }
            // Making it failed: waiting jobs must hear of that.
            None => {
                state.made -= 1;
                self.to.freed.notify_all();
            }
        }
    }
}

/// The two halves.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) halves: [Half; 2],
}

/// Pinned bytes from a page's start on: a GPU reads unaligned memory at little more than half the speed.
#[derive(Debug)]
pub(super) struct Half {
    /// Dropped before `memory`, which it pins.
    _pin: Box<dyn Pinned>,
    memory: Vec<u8>,
    start: usize,
}

impl Half {
    fn new(door: &dyn Door, len: usize) -> Result<Self, DoorError> {
        let mut memory = vec![0u8; len + PAGE];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        // SAFETY: the vector is neither moved on the heap nor dropped before the pin; `start` is less than a page.
        let pin = unsafe { door.pin(memory.as_mut_ptr().add(start), len, true)? };
        Ok(Self { _pin: pin, memory, start })
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() - PAGE
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len()]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start, self.len());
        &mut self.memory[start..][..len]
    }
}

impl Staging {
    /// Memory for blocks of up to `longest` bytes.
    pub(super) fn new(door: &dyn Door, longest: usize) -> Result<Self, DoorError> {
        let half = || Half::new(door, HALF.max(longest).next_multiple_of(PAGE));
        Ok(Self { halves: [half()?, half()?] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tidepool_client::door::{DevicePiece, Flight, Moment, Span, Way};

    /// Refuses to pin for so many calls, the first two times when both have asked, or panics.
    #[derive(Debug)]
    struct Refusing {
        both: Barrier,
        calls: usize,
        panics: bool,
        asked: AtomicUsize,
    }

    #[derive(Debug)]
    struct Granted;

    impl Pinned for Granted {}

    impl Refusing {
        fn new(askers: usize, calls: usize) -> Self {
            Self { both: Barrier::new(askers), calls, panics: false, asked: AtomicUsize::new(0) }
        }
    }

    fn refused() -> DoorError {
        DoorError { call: "pin", reason: "for the test".to_owned() }
    }

    impl Door for Refusing {
        unsafe fn pin(&self, _: *mut u8, _: usize, _: bool) -> Result<Box<dyn Pinned>, DoorError> {
            let before = self.asked.fetch_add(1, Ordering::Relaxed);
            if before < 2 {
                self.both.wait();
            }
            let is_refused = before < self.calls;
            assert!(!(is_refused && self.panics), "on purpose");
            if is_refused { Err(refused()) } else { Ok(Box::new(Granted)) }
        }

        unsafe fn begin(&self, _: Way, _: &[Span]) -> Result<Box<dyn Flight>, DoorError> {
            Err(refused())
        }

        fn moment(&self, _: u64) -> Result<Box<dyn Moment>, DoorError> {
            Err(refused())
        }

        fn has(&self, _: DevicePiece) -> bool {
            false
        }
    }

    /// The first waited for what the second was about to have, and was not told that it had failed, too: for ever.
    #[test]
    fn two_that_are_refused_at_once_both_hear_of_it() {
        let (stagings, door) = (Stagings::default(), Refusing::new(2, usize::MAX));
        std::thread::scope(|scope| {
            let taking = [(); 2].map(|()| scope.spawn(|| stagings.take(&door, 1).map(drop)));
            taking.into_iter().for_each(|taken| assert_eq!(taken.join().expect("ended"), Err(refused())));
        });
    }

    /// Each panic counted as memory that somebody had: after four of them every job waited for it for ever.
    #[test]
    fn what_a_panic_keeps_from_being_made_is_nobodys() {
        let (stagings, door) = (Stagings::default(), Refusing { panics: true, ..Refusing::new(1, MOST) });
        for _ in 0..MOST {
            let taking = std::panic::AssertUnwindSafe(|| stagings.take(&door, 1).is_ok());
            assert!(std::panic::catch_unwind(taking).is_err());
        }
        assert_eq!(stagings.state.lock().made, 0);
        assert!(stagings.take(&door, 1).is_ok());
    }

    /// One refusal was for good: all later jobs took turns at what there was.
    #[test]
    fn a_driver_that_had_no_more_pinned_memory_is_asked_again_later() {
        let (stagings, door) = (Stagings::default(), Refusing::new(1, 1));
        assert!(stagings.take(&door, 1).is_err());
        let first = stagings.take(&door, 1).expect("one is always asked for");
        assert!(stagings.state.lock().is_all(), "a driver that has just refused is asked for another");
        stagings.state.lock().refused_until = Some(Instant::now());
        let second = stagings.take(&door, 1).expect("another");
        drop((first, second));
        assert_eq!(stagings.state.lock().idle.len(), 2);
    }
}
