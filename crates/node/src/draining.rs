//! A node that is being emptied takes no new blocks.
//!
//! Whoever empties it says so again and again, each time for a while: if that stops, the node is as it was before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidepool_store::host_time;

/// The longest that a node can be told to take nothing.
const LONGEST: Duration = Duration::from_secs(3600);

/// See the file's head.
#[derive(Default)]
pub(crate) struct Draining {
    /// By the host's clock, in milliseconds.
    until: AtomicU64,
}

impl Draining {
    /// Takes no new blocks for `period`.
    pub(crate) fn set(&self, period: Duration) {
        let until = if period.is_zero() { Duration::ZERO } else { host_time() + period.min(LONGEST) };
        self.until.store(until.as_millis() as u64, Ordering::SeqCst);
    }

    /// Whether no new blocks are taken.
    pub(crate) fn is_set(&self) -> bool {
        match self.until.load(Ordering::SeqCst) {
            0 => false,
            until => (host_time().as_millis() as u64) < until,
        }
    }
}
