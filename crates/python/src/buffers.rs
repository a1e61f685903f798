//! Buffers: the callers' memory, borrowed through the buffer protocol for the length of a call. Accepts `bytes`,
//! `bytearray`, `memoryview`, NumPy arrays, any object whose bytes lie in one piece.

use crate::errors::{raise, wrong_type};
use crate::lists::{self, Item};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySequence, PyString, PyTuple};
use std::ffi::c_int;
use std::ops::Deref;
use tidepool_client::{Buffers, Parts};
use tidepool_types::MAX_BLOCK_LEN;

/// One borrowed buffer. The exporter keeps it in place until this is dropped, which must happen with the interpreter
/// attached.
pub(crate) struct Buffer(Box<ffi::Py_buffer>);

// SAFETY: the description of a buffer is plain data; the bytes behind it stay in place while it is borrowed. Another thread
// that writes to a buffer during a call sees what it would see with any other reader or writer of it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn borrow(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the interpreter is attached, the object is alive, and `view` is ours to be filled.
        match unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Self(view)),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    fn readable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::borrow(object, ffi::PyBUF_SIMPLE)
            .map_err(|_| wrong_type("a block", "bytes or a contiguous buffer without gaps (or a list of them)", object))
    }

    /// As [`Buffer::readable`], but copies a buffer with gaps, if it has no more bytes than `room`.
    fn gathered(object: &Bound<'_, PyAny>, room: &mut u64) -> PyResult<Self> {
        Self::readable(object).or_else(|error| {
            let Ok(view) = PyMemoryView::from(object) else { return Err(error) };
            *room = room.checked_sub(view.getattr("nbytes")?.extract()?).ok_or(error)?;
            Self::readable(&view.call_method0("tobytes")?)
        })
    }

    fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::borrow(object, ffi::PyBUF_SIMPLE | ffi::PyBUF_WRITABLE)
            .map_err(|_| wrong_type("a destination", "a writable contiguous buffer (or a list of them)", object))
    }

    fn bytes(&self) -> &[u8] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: the exporter promises `len` bytes at `buf` while the buffer is borrowed.
        unsafe { std::slice::from_raw_parts(self.0.buf.cast(), self.0.len as usize) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.0.len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and it was borrowed writable.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf.cast(), self.0.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: filled by `PyObject_GetBuffer` and released once. Attaching is free where it is attached already.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// The source of a block: one buffer, or a list or tuple of them.
pub(crate) enum Source {
    One(Buffer),
    Many(Vec<Buffer>),
}

impl Source {
    pub(crate) fn parts(&self) -> Parts<'_> {
        match self {
            Self::One(buffer) => Parts::One(buffer.bytes()),
            Self::Many(buffers) => Parts::Many(buffers.iter().map(Buffer::bytes).collect()),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Source {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match is_many(&object) {
            true => many(&object, Buffer::readable).map(Self::Many),
            false => Buffer::readable(&object).map(Self::One),
        }
    }
}

impl Item for Source {
    const MANY: &'static str = "blocks";

    fn count(&self) -> usize {
        1 + if let Self::Many(buffers) = self { buffers.len() } else { 0 }
    }
}

/// A [`Source`] that may have gaps: its parts with gaps are copied.
pub(crate) struct Gathered(Source);

impl Deref for Gathered {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Gathered {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let mut room = MAX_BLOCK_LEN;
        let mut gathered = |object: &Bound<'_, PyAny>| Buffer::gathered(object, &mut room);
        Ok(Self(match is_many(&object) {
            true => Source::Many(many(&object, gathered)?),
            false => Source::One(gathered(&object)?),
        }))
    }
}

impl Item for Gathered {
    const MANY: &'static str = Source::MANY;

    fn count(&self) -> usize {
        self.0.count()
    }
}

/// The destination of a block: one buffer, or a list or tuple of them.
pub(crate) enum Target {
    One(Buffer),
    Many(Vec<Buffer>),
}

impl Target {
    pub(crate) fn buffers(&mut self) -> Buffers<'_> {
        match self {
            Self::One(buffer) => Buffers::One(buffer.bytes_mut()),
            Self::Many(buffers) => Buffers::Many(buffers.iter_mut().map(Buffer::bytes_mut).collect()),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Target {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match is_many(&object) {
            true => many(&object, Buffer::writable).map(Self::Many),
            false => Buffer::writable(&object).map(Self::One),
        }
    }
}

impl Item for Target {
    const MANY: &'static str = "destinations";

    fn count(&self) -> usize {
        1 + if let Self::Many(buffers) = self { buffers.len() } else { 0 }
    }
}

impl Target {
    /// Refuses overlapping destinations: two blocks would be written to one place at once.
    pub(crate) fn check_apart(targets: &[Self]) -> PyResult<()> {
        let buffers = targets.iter().flat_map(|target| match target {
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::Many(buffers) => buffers,
        });
        let mut places: Vec<(usize, usize)> =
            buffers.map(|buffer| (buffer.0.buf as usize, buffer.0.len as usize)).collect();
        places.retain(|(_, len)| *len > 0);
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            let message = "two destinations overlap: allowed are buffers apart from each other".to_owned();
            return Err(raise("InvalidError", message, None));
        }
        Ok(())
    }
}

/// Whether an object is a list, a tuple or another sequence of buffers. A buffer itself is none of these.
fn is_many(object: &Bound<'_, PyAny>) -> bool {
    let is_listed = || object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    // SAFETY: the interpreter is attached and the object is alive.
    let is_buffer = || unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1;
    let is_sequence = || object.cast::<PySequence>().is_ok() && !object.is_instance_of::<PyString>();
    is_listed() || (!is_buffer() && is_sequence())
}

fn many(
    object: &Bound<'_, PyAny>,
    mut borrow: impl FnMut(&Bound<'_, PyAny>) -> PyResult<Buffer>,
) -> PyResult<Vec<Buffer>> {
    let mut buffers = Vec::new();
    lists::each(object, "buffers", |item| {
        buffers.push(borrow(item)?);
        Ok(1)
    })?;
    Ok(buffers)
}

/// The size from which on a copy lets other threads run.
const LARGE: usize = 256 << 10;

/// Python's own copy of the bytes read.
pub(crate) fn handed_over(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, PyBytes>> {
    if bytes.len() < LARGE {
        return Ok(PyBytes::new(py, &bytes));
    }
    let length = ffi::Py_ssize_t::try_from(bytes.len()).map_err(|_| PyMemoryError::new_err("a block is too large"))?;
    // SAFETY: the interpreter is attached; without a source it makes an object whose bytes are yet to be written.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), length))? };
    // SAFETY: it is a bytes object, and alive.
    let to = unsafe { ffi::PyBytes_AsString(made.as_ptr()) } as usize;
    py.detach(move || {
        // SAFETY: the object has room for as many bytes, stays alive behind this call, and nobody else knows of it yet.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
    });
    Ok(made.cast_into::<PyBytes>()?)
}
