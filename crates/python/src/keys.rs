//! Keys come as `str` or as anything with bytes.

use crate::errors::{raise, wrong_type};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::cell::Cell;
use std::ops::Deref;

/// A key, most often borrowed from its Python object.
pub(crate) enum Key {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    /// As a listing told it.
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Key {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.extract::<PyBackedStr>() {
            return Ok(Self::Text(text));
        }
        if object.is_instance_of::<PyString>() {
            let message =
                "a key has a lone surrogate, which has no UTF-8: allowed are other text, and bytes".to_owned();
            return Err(raise("InvalidError", message, None));
        }
        let wrong = |_| wrong_type("a key", "str or bytes", &object);
        object.extract::<PyBackedBytes>().map(Self::Bytes).map_err(wrong)
    }
}

/// The keys of a batch.
///
/// Their memory stays with the thread for its next batch. A look-up of 5,000 keys takes some hundred kilobytes at once; in a
/// process that uses little else the C library gave them back to the system after every call, and getting them again took a
/// fifth of it.
pub(crate) struct Keys(Vec<Key>);

/// The most keys whose memory is kept.
const KEPT: usize = 1 << 14;

thread_local! {
    static SPARE: Cell<Vec<Key>> = const { Cell::new(Vec::new()) };
}

impl Deref for Keys {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        &self.0
    }
}

impl AsRef<[Key]> for Keys {
    fn as_ref(&self) -> &[Key] {
        self
    }
}

impl<'a> IntoIterator for &'a Keys {
    type Item = &'a Key;
    type IntoIter = std::slice::Iter<'a, Key>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl From<Key> for Keys {
    fn from(key: Key) -> Self {
        Self(vec![key])
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.0.clear();
        if self.0.capacity() <= KEPT {
            // The larger of the two is kept; by a thread that is ending, neither.
            let _ = SPARE.try_with(|spare| {
                let kept = spare.take();
                spare.set(if kept.capacity() > self.0.capacity() { kept } else { std::mem::take(&mut self.0) });
            });
        }
    }
}

impl Keys {
    fn of_sequence(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        // One key is a sequence too, of characters or numbers, and hardly what was meant.
        let is_key = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
        // Whatever has places will do, be it registered as a sequence or not: arrays are not.
        if is_key || object.is_instance_of::<PyDict>() || !object.hasattr("__getitem__")? {
            return Err(wrong_type("what stands for keys", "a list or another sequence of them", &object));
        }
        object.extract().map(Self)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Keys {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Ok(list) = object.cast::<PyList>() else { return Self::of_sequence(object) };
        let mut keys = Self(SPARE.take());
        keys.0.reserve_exact(list.len());
        for key in list.iter() {
            keys.0.push(key.extract()?);
        }
        Ok(keys)
    }
}
