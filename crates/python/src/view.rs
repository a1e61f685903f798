//! Views: blocks' bytes as Python buffers, without a copy.

use crate::errors;
use crate::fork::Local;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use tidepool_locks::{Mutex, MutexGuard};

/// A block's bytes where they lie, without a copy: read-only, and right until it is closed, whatever is evicted meanwhile.
///
/// Use it in a ``with`` statement, or call :meth:`close`; while it is open its block cannot be evicted.
///
/// >>> _ = pool.put("seen", b"where it lies")
/// >>> with pool.view("seen") as view:
/// ...     bytes(memoryview(view)[6:8])
/// b'it'
#[pyclass(module = "tidepool", frozen)]
pub(crate) struct View {
    state: Mutex<State>,
}

struct State {
    view: Option<Local<tidepool_client::View>>,
    /// Memoryviews of the bytes that exist now.
    exports: usize,
}

impl View {
    pub(crate) fn new(view: tidepool_client::View) -> Self {
        Self { state: Mutex::new(State { view: Some(Local::new(view)), exports: 0 }) }
    }

    /// Short sections without Python in them, so no thread waits long for the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[pymethods]
impl View {
    /// Whether the bytes are the owner's own. Otherwise they are a copy, because the owner's bound on pinned bytes was
    /// reached or the block lies on another host.
    #[getter]
    fn borrowed(&self) -> PyResult<bool> {
        Ok(self.state().view.as_ref().ok_or_else(errors::closed)?.get()?.is_borrowed())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.state().view.as_ref().ok_or_else(errors::closed)?.get()?.len())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close()
    }

    /// Lets the block go. Memoryviews of it must have been released.
    fn close(&self) -> PyResult<()> {
        let mut state = self.state();
        if state.exports > 0 {
            return Err(PyBufferError::new_err("memoryviews of this view still exist: release them first"));
        }
        state.view = None;
        Ok(())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let mut state = this.state();
        let bytes: &[u8] = state.view.as_ref().ok_or_else(errors::closed)?.get()?;
        // SAFETY: `view` is the interpreter's, to be filled; the bytes stay where they are until `close`, which refuses while
        // there are exports, and the view keeps this object alive.
        let filled = unsafe {
            let start = bytes.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as ffi::Py_ssize_t, 1, flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        state.exports += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}
