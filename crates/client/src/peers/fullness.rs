//! Whether a node lately had no room: a put had better try others first.

use std::time::{Duration, Instant};
use tidepool_locks::Mutex;

/// How long a node that could make no room is asked after all others: each time it may take as long as the deadline.
const FULL_FOR: Duration = Duration::from_secs(1);

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    /// Until when the node counts as full. Short sections: reading and writing it.
    until: Mutex<Option<Instant>>,
}

impl Fullness {
    /// The node could make no room before the deadline of a put.
    pub(crate) fn set(&self) {
        *self.until.lock() = Some(Instant::now() + FULL_FOR);
    }

    /// Whether a put had better try others first.
    pub(crate) fn is_full(&self) -> bool {
        self.until.lock().is_some_and(|until| Instant::now() < until)
    }
}
