//! The stopwatch for the pool's operations, with a planted delay, so that a test can check that a comparison of builds
//! sees it.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Per cent by which operations take longer; zero unless a delay is planted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlantedDelay(pub u32);

impl PlantedDelay {
    /// Does `work` and times it. A planted delay is spent inside the timing, spinning.
    pub(super) fn time<T>(self, work: impl FnOnce() -> T) -> (T, Duration) {
        let start = Instant::now();
        let done = work();
        let mut elapsed = start.elapsed();
        let until = elapsed + elapsed * self.0 / 100;
        while elapsed < until {
            elapsed = start.elapsed();
        }
        (done, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_delay_is_spent_inside_the_timing() {
        let mut inside = Duration::ZERO;
        let start = Instant::now();
        let ((), elapsed) = PlantedDelay(50).time(|| {
            let work = Instant::now();
            while work.elapsed() < Duration::from_millis(2) {}
            inside = work.elapsed();
        });
        assert!(elapsed >= inside * 3 / 2, "{elapsed:?} with {inside:?} of work");
        assert!(start.elapsed() >= elapsed);
        assert_eq!(PlantedDelay::default().time(|| 7).0, 7);
    }
}
