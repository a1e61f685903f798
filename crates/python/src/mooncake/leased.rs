//! Leased buffers: memory is lent for a while, and goes to the next borrower only after the last view of it is gone.

use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use tidepool_locks::{Mutex, MutexGuard};

/// Memory of `owner` at an address. Views of it keep this object alive, and with it `owner`; while it has views it
/// cannot be given up.
#[pyclass(module = "tidepool._native", subclass, frozen)]
pub(crate) struct LeasedBuffer {
    _owner: Py<PyAny>,
    address: usize,
    /// Bytes lent; the memory may go on behind them.
    #[pyo3(get)]
    size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_given_up: bool,
    /// Views that look at the bytes now.
    exports: usize,
}

impl LeasedBuffer {
    /// Short sections without Python in them, so no thread waits long for the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[pymethods]
impl LeasedBuffer {
    /// `pool` is for subclasses. The caller's promise: `size` bytes at `address` stay mapped for as long as `owner` lives.
    #[new]
    fn new(pool: &Bound<'_, PyAny>, owner: Py<PyAny>, address: usize, size: usize) -> Self {
        let _ = pool;
        Self { _owner: owner, address, size, state: Mutex::default() }
    }

    /// The address of the first byte.
    #[getter]
    fn ptr(&self) -> PyResult<usize> {
        match self.state().is_given_up {
            true => Err(PyRuntimeError::new_err("buffer lease is closed")),
            false => Ok(self.address),
        }
    }

    /// Ends the loan; false if it has ended before. Refused while views exist.
    fn _give_up(&self) -> PyResult<bool> {
        let mut state = self.state();
        if state.exports > 0 {
            return Err(PyRuntimeError::new_err("cannot release buffer while exported views exist"));
        }
        Ok(!std::mem::replace(&mut state.is_given_up, true))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let mut state = this.state();
        if state.is_given_up {
            return Err(PyBufferError::new_err("buffer lease is closed"));
        }
        // SAFETY: `view` is the interpreter's, to be filled; it keeps this object alive, and with it the memory's owner.
        let filled = unsafe {
            let start = this.address as *mut std::ffi::c_void;
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, this.size as ffi::Py_ssize_t, 0, flags)
        };
        if filled != 0 {
            drop(state);
            return Err(PyErr::fetch(slf.py()));
        }
        state.exports += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}
