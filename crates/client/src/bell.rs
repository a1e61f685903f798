//! Wakes a background thread before its time.

use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};

/// A bell that stays rung until it is heard.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.ring.notify_all();
    }

    /// Sleeps for `pause` or until the bell rings.
    pub(crate) fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut rung = self.rung.lock();
        while !*rung && !self.ring.wait_until(&mut rung, until).timed_out() {}
        *rung = false;
    }
}
