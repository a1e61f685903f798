//! Waiting for what happens on other threads.

use std::time::Duration;
use tidepool_engine::{Finished, Transfers};
pub(crate) use tidepool_testing::eventually;

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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
