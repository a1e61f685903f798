//! `BufferHandle`: a block's bytes that stay right for as long as the handle lives.

use crate::errors;
use crate::fork::Local;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// A block's bytes, read-only, without a copy where the block lies on this host.
#[pyclass(module = "mooncake.store", frozen)]
pub(crate) struct BufferHandle(Local<tidepool_client::View>);

impl BufferHandle {
    pub(super) fn new(view: tidepool_client::View) -> Self {
        Self(Local::new(view))
    }
}

#[pymethods]
impl BufferHandle {
    /// The address of the first byte.
    fn ptr(&self) -> PyResult<usize> {
        Ok(self.0.get()?.as_ptr() as usize)
    }

    /// Number of bytes.
    fn size(&self) -> PyResult<usize> {
        Ok(self.0.get()?.len())
    }

    fn __len__(&self) -> PyResult<usize> {
        self.size()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes: &[u8] = slf.get().0.get().map_err(|_| errors::forked())?;
        // SAFETY: `view` is the interpreter's, to be filled; it keeps this object alive, and with it the bytes.
        let filled = unsafe {
            let start = bytes.as_ptr().cast_mut().cast();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as ffi::Py_ssize_t, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
