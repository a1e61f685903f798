//! The end of the interpreter. What has files in a memory file system is closed then, whoever still holds it: a daemon
//! thread's frame is never taken apart, and what it refers to would stay behind.

use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use tidepool_locks::Mutex;

/// Something to be closed when the interpreter exits.
pub(crate) trait AtExit: Send + Sync {
    /// Closes it, unless that means to wait for somebody.
    fn close(&self);
}

static OPEN: Mutex<Vec<Weak<dyn AtExit>>> = Mutex::new(Vec::new());

/// Has `thing` closed at exit, if it is still there by then.
pub(crate) fn close_at_exit<T: AtExit + 'static>(thing: &Arc<T>) {
    let thing: Weak<dyn AtExit> = Arc::downgrade(thing) as _;
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    open.push(thing);
}

#[pyfunction]
fn close_all(py: Python<'_>) {
    py.detach(|| {
        // In a forked child a thread that is not there may hold the lock.
        let open = OPEN.try_lock().map(|mut open| std::mem::take(&mut *open)).unwrap_or_default();
        open.iter().filter_map(Weak::upgrade).for_each(|thing| thing.close());
    });
}

/// Has the interpreter call this module when it exits, before it takes daemon threads down.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let close_all = wrap_pyfunction!(close_all, py)?;
    py.import("atexit")?.call_method1("register", (close_all,))?;
    Ok(())
}
