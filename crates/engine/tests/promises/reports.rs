//! Waiting for what happens on other threads.

use std::time::{Duration, Instant};
use tidepool_engine::{Finished, Transfers};

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "in vain waited for: {what}");
        std::thread::yield_now();
    }
}

/// The next job that is over.
pub(crate) fn wait(transfers: &Transfers) -> Finished {
    let mut finished = None;
    eventually("the job is reported", || {
        finished = transfers.poll().pop();
        finished.is_some()
    });
    finished.expect("it was waited for")
}

/// The next reports, as many as there are jobs.
pub(crate) fn wait_for(jobs: usize, transfers: &Transfers) -> Vec<Finished> {
    let mut over = Vec::new();
    eventually("all are over", || {
        over.extend(transfers.poll());
        over.len() == jobs
    });
    over
}
