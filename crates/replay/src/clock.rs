//! The trace's clock, which runs faster than real time by the pace.

use crate::progress::Progress;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often a waiting thread checks whether the run ends.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// A clock that starts when it is first read.
#[derive(Debug)]
pub(crate) struct Clock {
    start: OnceLock<Instant>,
    pace: f64,
}

impl Clock {
    pub(crate) const fn new(pace: f64) -> Self {
        Self { start: OnceLock::new(), pace }
    }

    fn start(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }

    /// The trace's time now.
    pub(crate) fn now(&self) -> Duration {
        self.start().elapsed().mul_f64(self.pace)
    }

    /// The trace's time as it was `real` time ago.
    pub(crate) fn before(&self, real: Duration) -> Duration {
        self.now().saturating_sub(real.mul_f64(self.pace))
    }

    /// The instant at which the trace's time is `at`; none if that is too far away.
    pub(crate) fn instant(&self, at: Duration) -> Option<Instant> {
        let real = Duration::try_from_secs_f64(at.as_secs_f64() / self.pace).ok()?;
        self.start().checked_add(real)
    }

    /// Takes `seconds` of the trace's time. Returns the excess, which is large at a high pace, since threads wake up
    /// late. None if the run ended meanwhile.
    pub(crate) fn take(&self, seconds: f64, progress: &Progress) -> Option<Duration> {
        let end = later(self.now(), seconds);
        let until = self.instant(end);
        while progress.ending().is_none() {
            match until.map_or(STEP, |until| until.saturating_duration_since(Instant::now())) {
                Duration::ZERO => return Some(self.now().saturating_sub(end)),
                left => std::thread::sleep(left.min(STEP)),
            }
        }
        None
    }
}

/// A time of the trace, `seconds` after another.
pub(crate) fn later(at: Duration, seconds: f64) -> Duration {
    at.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
