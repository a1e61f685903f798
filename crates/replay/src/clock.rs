//! Time as the trace has it: faster than ours by the pace.

use crate::progress::Progress;
use std::time::{Duration, Instant};

/// How often who waits looks whether the run is to end.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// Counts from when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    pace: f64,
}

impl Clock {
    pub(crate) fn new(pace: f64) -> Self {
        Self { start: Instant::now(), pace }
    }

    /// The trace's time now.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed().mul_f64(self.pace)
    }

    /// When the trace's time will be `at`.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        self.start + at.div_f64(self.pace)
    }

    /// Takes `span` of the trace's time; none if the run ended meanwhile.
    pub(crate) fn take(&self, span: Duration, progress: &Progress) -> Option<()> {
        let until = Instant::now() + span.div_f64(self.pace);
        while progress.ending().is_none() {
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Some(()),
                left => std::thread::sleep(left.min(STEP)),
            }
        }
        None
    }

    /// By how much the trace's time has passed faster than ours in `real` time.
    pub(crate) fn surplus(&self, real: Duration) -> Duration {
        real.mul_f64((self.pace - 1.0).max(0.0))
    }
}
