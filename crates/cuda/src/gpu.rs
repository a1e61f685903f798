//! A GPU as a door: flights of scattered copies, each on a lane of its own.
#![expect(unsafe_code, reason = "what is copied are addresses")]

use crate::choice::{Choice, Method};
use crate::driver::{Driver, Event};
use crate::lane::Lane;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_transfer::door::{DevicePiece, Door, DoorError, Flight, Moment, Pinned, Span, Way};

/// Idle lanes that are kept: as many as the most threads of an engine use at once (64 that save and 64 that load, with
/// two flights each). Freeing a lane's memory makes the driver wait for the whole GPU.
const IDLE_LANES: usize = 256;
/// How long a wait for an event polls without a pause: about as long as a batch takes.
const EAGER: Duration = Duration::from_micros(50);
/// The pause between two polls afterwards.
const PAUSE: Duration = Duration::from_micros(20);
/// A flight that takes longer than this is worth a line in the log.
const LATE: Duration = Duration::from_secs(10);

/// A GPU.
#[derive(Debug)]
pub struct Gpu {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    driver: Arc<dyn Driver>,
    choice: Choice,
    /// Short sections: taking a lane and giving it back.
    idle: Mutex<Vec<Lane>>,
}

impl Gpu {
    /// The GPU of `driver`, with a measured choice of methods.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        let untried = Self::with_choice(Arc::clone(&driver), Choice::default());
        let choice = Choice::measured(&untried);
        Self::with_choice(driver, choice)
    }

    /// The GPU of `driver`, with this choice of methods.
    #[must_use]
    pub fn with_choice(driver: Arc<dyn Driver>, choice: Choice) -> Self {
        Self { shared: Arc::new(Shared { driver, choice, idle: Mutex::default() }) }
    }

    /// The choice of methods.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.shared.choice
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.shared.driver
    }

    /// Begins copies by the given methods, regardless of [`Self::choice`].
    ///
    /// # Safety
    /// As for [`Door::begin`].
    pub unsafe fn begin_by(
        &self,
        method: impl Fn(Way, usize) -> Method,
        way: Way,
        spans: &[Span],
    ) -> Result<Box<dyn Flight>, DoorError> {
        // Pieces of one length go together, also where blocks mix several lengths. One pass where all are alike.
        let mut spans = spans.to_vec();
        spans.sort_by_key(|span| span.len);
        let mut flight = Airborne { lane: Some(self.shared.take_lane()?), shared: Arc::clone(&self.shared) };
        // If a later copy cannot begin, the flight's drop waits for those that have begun.
        if let Some(lane) = &mut flight.lane {
            let (mut rest, mut used) = (&spans[..], 0);
            while let Some(first) = rest.first() {
                let count = rest.iter().take_while(|span| span.len == first.len).count();
                let (run, later) = rest.split_at(count);
                match method(way, first.len) {
                    Method::Kernel if lane.has_table() && run.iter().all(is_aligned) => {
                        lane.gather(way, run, &mut used)?
                    }
                    Method::Kernel | Method::Engine => self.shared.driver.copy(way, run, lane.stream)?,
                }
                rest = later;
            }
        }
        Ok(Box::new(flight))
    }
}

/// Whether the kernel can copy the span.
fn is_aligned(span: &Span) -> bool {
    (span.host as u64 | span.device | span.len as u64).is_multiple_of(16)
}

impl Shared {
    fn take_lane(&self) -> Result<Lane, DoorError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| Lane::new(&self.driver), Ok)
    }
}

/// Copies on a lane.
struct Airborne {
    lane: Option<Lane>,
    shared: Arc<Shared>,
}

impl Airborne {
    fn finish(&mut self) -> Result<(), DoorError> {
        let Some(lane) = self.lane.take() else { return Ok(()) };
        // Behind all copies that were begun, complete or not: the lane has no others.
        let recorded = self.shared.driver.record(lane.event, lane.stream);
        let landed = recorded.and_then(|()| wait_for(&*self.shared.driver, lane.event));
        if landed.is_err() {
            // The event alone may have failed while copies go on, so their memory stays in use until the stream has
            // drained.
            let _ = self.shared.driver.drain(lane.stream);
        }
        let mut idle = self.shared.idle.lock();
        // A failed lane is not used again.
        if landed.is_ok() && idle.len() < IDLE_LANES {
            idle.push(lane);
        }
        landed
    }
}

impl Flight for Airborne {
    fn land(mut self: Box<Self>) -> Result<(), DoorError> {
        self.finish()
    }
}

impl Drop for Airborne {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Waits for an event, without a time limit: the GPU uses the memory until then, and a driver whose GPU fails returns
/// an error.
pub(crate) fn wait_for(driver: &dyn Driver, event: Event) -> Result<(), DoorError> {
    wait_while(driver, event, &|| true).map(drop)
}

/// Waits for an event while `go_on` returns true. Returns whether the event was reached.
fn wait_while(driver: &dyn Driver, event: Event, go_on: &dyn Fn() -> bool) -> Result<bool, DoorError> {
    let began = Instant::now();
    let mut said = false;
    while !driver.is_done(event)? {
        if !go_on() {
            return Ok(false);
        }
        let waited = began.elapsed();
        if waited < EAGER {
            std::hint::spin_loop();
            continue;
        }
        if waited > LATE && !std::mem::replace(&mut said, true) {
            tracing::warn!(seconds = waited.as_secs(), "the GPU has not finished, and is waited for");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}

#[derive(Debug)]
struct Pin {
    start: usize,
    driver: Arc<dyn Driver>,
}

impl Pinned for Pin {}

impl Drop for Pin {
    fn drop(&mut self) {
        self.driver.unregister(self.start);
    }
}

struct Recorded {
    event: Event,
    driver: Arc<dyn Driver>,
}

impl Moment for Recorded {
    fn wait(self: Box<Self>, go_on: &dyn Fn() -> bool) -> Result<bool, DoorError> {
        wait_while(&*self.driver, self.event, go_on)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.driver.end_event(self.event);
    }
}

impl Door for Gpu {
    unsafe fn pin(&self, start: *mut u8, len: usize, writable: bool) -> Result<Box<dyn Pinned>, DoorError> {
        let driver = Arc::clone(&self.shared.driver);
        driver.register(start as usize, len, writable)?;
        Ok(Box::new(Pin { start: start as usize, driver }))
    }

    unsafe fn begin(&self, way: Way, spans: &[Span]) -> Result<Box<dyn Flight>, DoorError> {
        // SAFETY: passed on from the caller.
        unsafe { self.begin_by(|way, len| self.shared.choice.method(way, len), way, spans) }
    }

    fn moment(&self, stream: u64) -> Result<Box<dyn Moment>, DoorError> {
        let driver = Arc::clone(&self.shared.driver);
        let recorded = Box::new(Recorded { event: driver.event()?, driver });
        recorded.driver.record(recorded.event, stream)?;
        Ok(recorded)
    }

    fn has(&self, piece: DevicePiece) -> bool {
        let last = piece.address.checked_add(piece.len as u64).and_then(|end| end.checked_sub(1));
        let owns = |address| self.shared.driver.owns(address);
        owns(piece.address) && last.is_some_and(owns)
    }
}
