//! The part of the module for engine connectors written in Python: look-ups for the scheduler's process, transfers for
//! a worker's.
//!
//! Data crosses once a step, packed: block hashes and block numbers are bytes, not objects.

mod gpu;
mod lookup;
mod transfers;
mod warnings;

pub(crate) use gpu::GpuCopies;
pub(crate) use lookup::BlockLookup;
pub(crate) use transfers::BlockTransfers;

use crate::errors::raise;
use pyo3::PyErr;
use tidepool_locks::RwLock;

/// An object with threads that runs until it is closed, and works only in the process that made it.
struct Open<T>(RwLock<Option<crate::fork::Local<T>>>);

impl<T> Open<T> {
    fn new(value: T) -> Self {
        Self(RwLock::new(Some(crate::fork::Local::new(value))))
    }

    fn with<A>(&self, ask: impl FnOnce(&T) -> A) -> pyo3::PyResult<A> {
        let open = self.0.read();
        Ok(ask(open.as_ref().ok_or_else(crate::errors::closed)?.get()?))
    }

    fn take(&self) -> Option<crate::fork::Local<T>> {
        self.0.write().take()
    }
}

fn invalid(message: String) -> PyErr {
    raise("InvalidError", message, None)
}
