//! A limit on repeated events: each place in the code may log a few times a second. Events beyond the limit are
//! counted.
//!
//! The number of places is that of `tracing` calls in the program, so the state is bounded too.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tidepool_locks::{Condvar, Mutex};
use tracing::{Event, Metadata, Subscriber, callsite::Identifier};
use tracing_subscriber::{Layer, layer::Context};

/// Events that one place may log in one window.
pub const PER_WINDOW: u32 = 10;
/// Length of a window.
pub const WINDOW: Duration = Duration::from_secs(1);
/// The target of lines about the limit itself, which pass it: there is at most one a second for each place.
pub(super) const OWN_TARGET: &str = "tidepool::logs";

/// Decides which events are logged, and counts the others.
#[derive(Default)]
pub struct Limiter {
    /// Short sections: counting one event, taking the counts.
    state: Mutex<State>,
    changed: Condvar,
    suppressed: AtomicU64,
}

#[derive(Default)]
struct State {
    sites: HashMap<Identifier, Site>,
    /// Whether any place has suppressed events to report.
    pending: bool,
    ended: bool,
}

struct Site {
    metadata: &'static Metadata<'static>,
    window: Instant,
    admitted: u32,
    unreported: u64,
}

/// Suppressed events of one place.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// The place.
    pub site: &'static Metadata<'static>,
    /// The number of events.
    pub events: u64,
}

impl Limiter {
    /// Whether the event of `metadata` may be logged at `now`.
    pub fn admit(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let mut state = self.state.lock();
        let fresh = Site { metadata, window: now, admitted: 0, unreported: 0 };
        let site = state.sites.entry(metadata.callsite()).or_insert(fresh);
        if now.saturating_duration_since(site.window) >= WINDOW {
            (site.window, site.admitted) = (now, 0);
        }
        if site.admitted < PER_WINDOW {
            site.admitted += 1;
            return true;
        }
        site.unreported += 1;
        state.pending = true;
        drop(state);
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
        false
    }

    /// Events held back since the start.
    pub fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// The suppressed events since the last call.
    pub fn take(&self) -> Vec<Held> {
        let mut state = self.state.lock();
        state.pending = false;
        let held = state.sites.values_mut().filter(|site| site.unreported > 0);
        held.map(|site| Held { site: site.metadata, events: std::mem::take(&mut site.unreported) }).collect()
    }

    /// Sleeps until an event is suppressed, and then for the rest of a window. Returns true when the log ends.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.pending && !state.ended {
            self.changed.wait(&mut state);
        }
        let until = Instant::now() + WINDOW;
        while !state.ended && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.ended
    }

    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

/// The limit as a layer of the log.
pub(super) struct Limit {
    limiter: Arc<Limiter>,
    clock: fn() -> Instant,
}

impl Limit {
    pub(super) fn new(limiter: Arc<Limiter>, clock: fn() -> Instant) -> Self {
        Self { limiter, clock }
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        metadata.target() == OWN_TARGET || self.limiter.admit(metadata, (self.clock)())
    }
}
