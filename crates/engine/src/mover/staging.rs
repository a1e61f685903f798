//! Pinned memory of this process, through which blocks go that a device cannot copy from where they are: two halves, so that
//! one is filled while the other is emptied.
#![expect(unsafe_code, reason = "the memory is lent to a device")]

use parking_lot::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use tidepool_client::door::{Door, DoorError, Pinned};

/// Bytes in a half, unless a block is longer.
const HALF: usize = 32 << 20;
const PAGE: usize = 4096;
/// Jobs of one direction that have such memory at the same time: a host that is slow holds up one of them.
const MOST: usize = 4;

/// The memory of one direction, made when it is first needed. Whoever finds none waits for it.
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
    /// As many as there may be; fewer once the driver has refused more.
    most: usize,
}

/// Memory that is lent.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    /// Some until it is given back.
    staging: Option<Staging>,
    to: &'a Stagings,
}

impl Default for Stagings {
    fn default() -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), made: 0, most: MOST }), freed: Condvar::new() }
    }
}

impl Stagings {
    /// Memory for blocks of up to `longest` bytes, as soon as there is some; an error if there is none at all.
    pub(super) fn take(&self, door: &dyn Door, longest: usize) -> Result<Lent<'_>, DoorError> {
        let mut state = self.state.lock();
        loop {
            if let Some(staging) = state.idle.pop() {
                return Ok(Lent { staging: Some(staging), to: self });
            }
            if state.made >= state.most {
                self.freed.wait(&mut state);
                continue;
            }
            state.made += 1;
            drop(state);
            let made = Staging::new(door, longest);
            state = self.state.lock();
            match made {
                Ok(staging) => return Ok(Lent { staging: Some(staging), to: self }),
                Err(error) => {
                    state.made -= 1;
                    // What the others have, or are about to have, has to do. Who waits for them hears that they failed, too.
                    state.most = state.made.max(1);
                    self.freed.notify_all();
                    if state.made == 0 {
                        return Err(error);
                    }
                }
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
        self.to.state.lock().idle.extend(self.staging.take());
        self.to.freed.notify_one();
    }
}

/// Both halves.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) halves: [Half; 2],
}

/// Pinned bytes from the start of a page on: a GPU reads memory that its requests do not fit onto at little more than half the speed.
#[derive(Debug)]
pub(super) struct Half {
    /// Dropped before what it pins.
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

    /// Refuses to pin, the first two times when both have asked.
    #[derive(Debug)]
    struct Refusing {
        both: Barrier,
        asked: AtomicUsize,
    }

    fn refused() -> DoorError {
        DoorError { call: "pin", reason: "for the test".to_owned() }
    }

    impl Door for Refusing {
        unsafe fn pin(&self, _: *mut u8, _: usize, _: bool) -> Result<Box<dyn Pinned>, DoorError> {
            if self.asked.fetch_add(1, Ordering::Relaxed) < 2 {
                self.both.wait();
            }
            Err(refused())
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
        let (stagings, door) = (Stagings::default(), Refusing { both: Barrier::new(2), asked: AtomicUsize::new(0) });
        std::thread::scope(|scope| {
            let taking = [(); 2].map(|()| scope.spawn(|| stagings.take(&door, 1).map(drop)));
            taking.into_iter().for_each(|taken| assert_eq!(taken.join().expect("ended"), Err(refused())));
        });
    }
}
