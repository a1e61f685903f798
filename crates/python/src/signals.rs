//! Ctrl-C during long calls. Python runs its handlers in the main thread only, when that checks for signals; a call
//! that lets other threads run must check itself.

use pyo3::prelude::*;
use std::time::{Duration, Instant};
use tidepool_client::Client;
use tidepool_locks::Mutex;

/// How often a wait looks for a pool that is not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time limit of the first look. Each further look may take twice as long, up to the longest.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Does `work` while other Python threads run. Work asks between its steps whether to go on. Once a signal's handler
/// has raised an exception, the answer is no, and that exception is returned.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Fn() -> bool) -> T + Send) -> PyResult<T> {
    let raised: Mutex<Option<PyErr>> = Mutex::new(None);
    let go_on = || {
        let mut raised = raised.lock();
        if raised.is_none() {
            *raised = Python::attach(|py| py.check_signals()).err();
        }
        raised.is_none()
    };
    let done = py.detach(|| work(&go_on));
    match raised.into_inner() {
        None => Ok(done),
        Some(error) => {
            py.detach(|| drop(done));
            Err(error)
        }
    }
}

/// Waits until `answers` returns true, for at most `wait`. `answers` gets a client with a time limit of at most a
/// second.
pub(crate) fn answers_within(
    py: Python<'_>,
    client: &Client,
    wait: Duration,
    answers: impl Fn(&Client) -> bool + Send + Sync,
) -> PyResult<bool> {
    interruptible(py, |go_on| {
        let (until, mut look) = (Instant::now() + wait, FIRST_LOOK);
        while go_on() {
            let left = until.saturating_duration_since(Instant::now());
            if answers(&client.within(left.min(look).max(LOOK_AGAIN))) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK_AGAIN));
            look = (look * 2).min(LONGEST_LOOK);
        }
        false
    })
}
