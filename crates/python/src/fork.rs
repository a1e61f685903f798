//! A forked child has its parent's memory but not its threads: a client there would wait for answers that no thread
//! fetches, and its end would wait for threads that do not exist. So every object with threads remembers its process.
//! In another process it refuses to work, and is leaked instead of ended.

use crate::errors;
use pyo3::PyResult;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the process that loaded the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A value that belongs to the process it was made in.
pub(crate) struct Local<T> {
    value: ManuallyDrop<T>,
    made_in: u32,
}

impl<T> Local<T> {
    pub(crate) fn new(value: T) -> Self {
        static WATCH: Once = Once::new();
        // SAFETY: the handler only adds to a number.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
        });
        Self { value: ManuallyDrop::new(value), made_in: FORKS.load(Ordering::Relaxed) }
    }

    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(errors::forked)
    }

    /// The value, unless it was made before a fork.
    pub(crate) fn here(&self) -> Option<&T> {
        self.is_here().then_some(&*self.value)
    }

    fn is_here(&self) -> bool {
        self.made_in == FORKS.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Local<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: dropped here and nowhere else, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
