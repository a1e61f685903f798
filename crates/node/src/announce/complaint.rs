//! When to say again what is wrong with a catalog. It is tried several times a second: saying it each time would bury the log.

use std::time::{Duration, Instant};

/// How often the same is said again.
const AGAIN: Duration = Duration::from_secs(60);

/// What was said last, and how often it has happened since.
#[derive(Default)]
pub(super) struct Complaint {
    said: Option<(String, Instant)>,
    attempts: u64,
}

impl Complaint {
    /// Notes an attempt that failed for `reason`. If that is to be said now: how many attempts it is about.
    pub(super) fn is_due(&mut self, reason: &str, now: Instant) -> Option<u64> {
        self.attempts += 1;
        let is_old = |(said, at): &(String, Instant)| said == reason && now.duration_since(*at) < AGAIN;
        if self.said.as_ref().is_some_and(is_old) {
            return None;
        }
        self.said = Some((reason.to_owned(), now));
        Some(std::mem::take(&mut self.attempts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_and_something_new_at_once() {
        // A catalog that could not be reached gave the same warning five times a second for ever. Now a reason is said when it
        // is new, and then once a minute with the number of attempts.
        let (mut complaint, start) = (Complaint::default(), Instant::now());
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(complaint.is_due("refused", second(0)), Some(1));
        assert!((1..60).all(|n| complaint.is_due("refused", second(n)).is_none()));
        assert_eq!(complaint.is_due("refused", second(60)), Some(60));
        assert_eq!(complaint.is_due("refused", second(61)), None);
        assert_eq!(complaint.is_due("no answer", second(62)), Some(2));
        assert_eq!(complaint.is_due("no answer", second(63)), None);
    }
}
