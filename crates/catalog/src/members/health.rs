//! What a node's stream reports about itself, without a lock: written by the stream, read by every look-up.

use super::state::{Link, NodeState, Standing};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Times are microseconds since the catalog's start.
#[derive(Debug)]
pub(crate) struct Health {
    heard: AtomicU64,
    /// Zero: never.
    proven: AtomicU64,
    caught_up: AtomicBool,
    used_bytes: AtomicU64,
    link: AtomicU8,
    /// How long a proof counts.
    bound: Duration,
}

const OPEN: u8 = 0;
const BROKEN: u8 = 1;
const LEFT: u8 = 2;

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

impl Health {
    pub(crate) fn new(now: Duration, used_bytes: u64, bound: Duration) -> Self {
        Self {
            heard: AtomicU64::new(micros(now)),
            proven: AtomicU64::new(0),
            caught_up: AtomicBool::new(false),
            used_bytes: AtomicU64::new(used_bytes),
            link: AtomicU8::new(OPEN),
            bound,
        }
    }

    /// A message came in.
    pub(crate) fn hear(&self, now: Duration) {
        self.heard.store(micros(now), Ordering::Relaxed);
    }

    /// The stream was open at `probe`, and `caught_up` says how it stands. The order matters: whoever sees the new proof
    /// sees a `caught_up` at least as new.
    pub(crate) fn stand(&self, caught_up: bool, probe: Option<Duration>) {
        self.caught_up.store(caught_up, Ordering::Release);
        if let Some(probe) = probe {
            self.proven.fetch_max(micros(probe), Ordering::Release);
        }
    }

    pub(crate) fn set_used(&self, bytes: u64) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self, link: Link) {
        let value = match link {
            Link::Open => OPEN,
            Link::Broken => BROKEN,
            Link::Left => LEFT,
        };
        self.link.fetch_max(value, Ordering::AcqRel);
        // From here on the node answers puts that this catalog does not hear of.
        if link != Link::Open {
            self.caught_up.store(false, Ordering::Release);
        }
    }

    pub(crate) fn link(&self) -> Link {
        match self.link.load(Ordering::Acquire) {
            OPEN => Link::Open,
            BROKEN => Link::Broken,
            _ => Link::Left,
        }
    }

    pub(crate) fn heard(&self) -> Duration {
        Duration::from_micros(self.heard.load(Ordering::Relaxed))
    }

    pub(crate) fn standing(&self, state: NodeState) -> Standing {
        let proven = Some(self.proven.load(Ordering::Acquire)).filter(|micros| *micros > 0).map(Duration::from_micros);
        Standing { state, proven, caught_up: self.caught_up.load(Ordering::Acquire), bound: self.bound }
    }
}
