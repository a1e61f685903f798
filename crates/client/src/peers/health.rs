//! Whether a node answers.
//!
//! A node that did not answer is *down* until a probe in the background hears from it: callers pass it by, so it costs one
//! time-out and not one per call. A wait that is in vain makes the node *suspect*, no more: the wait may have ended early
//! because its caller was in a hurry, which says nothing about the node. A suspect is probed, and that decides: while the
//! probe goes unanswered for too long, and after it has failed, everyone passes the node by.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
/// A wait that has lasted this long makes the node suspect; a probe that has, has it passed by.
pub(crate) use tidepool_transfer::fetch::SILENCE;

/// How long a host that neither refused nor took a connection is not asked again.
const UNHEARD_FOR: Duration = Duration::from_secs(2);

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Health {
    down: AtomicBool,
    suspect: AtomicBool,
    /// Whether a probe is under way.
    probing: AtomicBool,
    /// When the probe began. Short sections: reading and writing it.
    probed_since: Mutex<Option<Instant>>,
    /// When the host last neither refused nor took a connection. Short sections: reading and writing it.
    unheard_at: Mutex<Option<Instant>>,
}

impl Health {
    /// Whether callers pass the node by until a probe has heard from it.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire) || (self.probing.load(Ordering::Acquire) && self.keeps_probe_waiting())
    }

    fn keeps_probe_waiting(&self) -> bool {
        self.probed_since.lock().is_some_and(|since| since.elapsed() >= SILENCE)
    }

    /// Has callers pass the node by. Whether they did not before.
    pub(super) fn pass_by(&self) -> bool {
        !self.down.swap(true, Ordering::AcqRel)
    }

    /// The node has kept a caller waiting. Whether it was no suspect before.
    pub(super) fn suspect(&self) -> bool {
        !self.suspect.swap(true, Ordering::AcqRel)
    }

    /// A probe has heard from the node, or not.
    pub(super) fn probed(&self, heard: bool) {
        self.suspect.store(false, Ordering::Release);
        if heard {
            self.down.store(false, Ordering::Release);
        }
    }

    /// Whether a probe is wanted.
    pub(super) fn wants_probe(&self) -> bool {
        self.down.load(Ordering::Acquire) || self.suspect.load(Ordering::Acquire)
    }

    /// Whether the caller may probe: nobody else does. To be ended by [`Health::end_probe`].
    pub(super) fn start_probe(&self) -> bool {
        let free = !self.probing.swap(true, Ordering::AcqRel);
        if free {
            *self.probed_since.lock() = Some(Instant::now());
        }
        free
    }

    pub(super) fn end_probe(&self) {
        *self.probed_since.lock() = None;
        self.probing.store(false, Ordering::Release);
    }

    /// The host neither refused a connection nor took it.
    pub(super) fn host_is_silent(&self) {
        *self.unheard_at.lock() = Some(Instant::now());
    }

    /// Whether the host was silent a moment ago: asking it again would only take time.
    pub(super) fn host_was_silent(&self) -> bool {
        self.unheard_at.lock().is_some_and(|at| at.elapsed() < UNHEARD_FOR)
    }
}
