//! What is being tried right now, and what has failed lately.
//!
//! A socket that does not answer, or a name that does not resolve, costs one caller a short wait and nobody else: while one
//! tries, others go on without, and after a failure nobody tries again for a while. A failure of somebody who had no time to
//! try properly does not count.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_types::Deadline;

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_millis(250);
/// How long a failure is remembered.
const PAUSE: Duration = Duration::from_secs(2);
/// Failures that are remembered; beyond, those that are over are dropped, and then nothing new is tried.
const REMEMBERED: usize = 1024;

/// Targets by name. `None`: somebody is trying it.
#[derive(Default)]
pub(super) struct Attempts(Mutex<HashMap<String, Option<Instant>>>);

impl Attempts {
    /// Tries `target`, unless somebody else does right now or it has failed lately.
    pub(super) fn attempt<T>(
        &self,
        target: &str,
        until: Deadline,
        attempt: impl FnOnce(Deadline) -> Option<T>,
    ) -> Option<T> {
        if !self.begin(target, Instant::now()) {
            return None;
        }
        let own = Deadline::after(ATTEMPT);
        let outcome = attempt(own.min(until));
        let cut_short = until < own && until.has_passed();
        let mut targets = self.0.lock();
        match &outcome {
            Some(_) => targets.remove(target),
            None if cut_short => targets.remove(target),
            None => targets.insert(target.to_owned(), Some(Instant::now())),
        };
        outcome
    }

    fn begin(&self, target: &str, now: Instant) -> bool {
        let over = |failed: &Option<Instant>| failed.is_some_and(|at| now.duration_since(at) >= PAUSE);
        let mut targets = self.0.lock();
        if targets.len() >= REMEMBERED {
            targets.retain(|_, failed| !over(failed));
        }
        let may = targets.get(target).map_or(targets.len() < REMEMBERED, over);
        if may {
            targets.insert(target.to_owned(), None);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    /// A caller with a millisecond left took a node of its host away from every other caller for two seconds.
    #[test]
    fn a_failure_for_lack_of_time_does_not_count() {
        let attempts = Attempts::default();
        assert_eq!(attempts.attempt("socket", Deadline::after(Duration::ZERO), |_| None::<()>), None);
        assert_eq!(attempts.attempt("socket", later(), |_| Some(())), Some(()));
    }

    #[test]
    fn what_failed_is_left_alone_for_a_while() {
        let attempts = Attempts::default();
        assert_eq!(attempts.attempt("socket", later(), |_| None::<()>), None);
        assert_eq!(attempts.attempt("socket", later(), |_| Some(())), None, "it failed a moment ago");
        assert!(attempts.begin("socket", Instant::now() + PAUSE), "its time is over");
    }

    #[test]
    fn what_somebody_tries_nobody_waits_for() {
        let attempts = Attempts::default();
        let nested = attempts.attempt("socket", later(), |_| Some(attempts.attempt("socket", later(), |_| Some(()))));
        assert_eq!(nested, Some(None));
        assert_eq!(attempts.attempt("socket", later(), |_| Some(())), Some(()), "success leaves nothing behind");
    }

    #[test]
    fn memory_of_failures_is_bounded() {
        let attempts = Attempts::default();
        (0..2 * REMEMBERED).for_each(|n| assert_eq!(attempts.attempt(&n.to_string(), later(), |_| None::<()>), None));
        assert_eq!(attempts.0.lock().len(), REMEMBERED);
    }
}
