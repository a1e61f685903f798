//! The end of the interpreter closes all objects with files in a memory file system. It cannot rely on reference
//! counts: the frame of a daemon thread is never freed, and files that it refers to would stay.

use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use tidepool_locks::Mutex;

/// An object that is closed when the interpreter exits.
pub(crate) trait AtExit: Send + Sync {
    /// Closes it, unless that requires a wait.
    fn close(&self);
}

static OPEN: Mutex<Vec<Weak<dyn AtExit>>> = Mutex::new(Vec::new());

/// Registers `thing` to be closed at exit, if it still exists then.
pub(crate) fn close_at_exit<T: AtExit + 'static>(thing: &Arc<T>) {
    let thing: Weak<dyn AtExit> = Arc::downgrade(thing) as _;
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    open.push(thing);
}

#[pyfunction]
fn close_all(py: Python<'_>) {
    py.detach(|| {
        // In a forked child, a thread that does not exist there may hold the lock.
        let open = OPEN.try_lock().map(|mut open| std::mem::take(&mut *open)).unwrap_or_default();
        open.iter().filter_map(Weak::upgrade).for_each(|thing| thing.close());
    });
}

/// Registers this module's work at exit, before the interpreter ends daemon threads.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let close_all = wrap_pyfunction!(close_all, py)?;
    py.import("atexit")?.call_method1("register", (close_all,))?;
    Ok(())
}
