//! Keys come as `str` or as anything with bytes.

use crate::errors::{raise, wrong_type};
use crate::lists::{self, Item};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyString;
use std::cell::Cell;
use std::ops::Deref;

/// A key, most often borrowed from its Python object.
pub(crate) enum Key {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
    /// Owned bytes, as from a listing.
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

impl Item for Key {
    const MANY: &'static str = "keys";
}

/// The keys of a batch.
///
/// Their memory stays with the thread for its next batch. A look-up of 5,000 keys takes some hundred kilobytes at once.
/// In a process that allocates little else, the C library returns them to the system after every call, and getting them
/// again takes a fifth of the call.
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
            // The larger of the two is kept; a thread that is ending keeps neither.
            let _ = SPARE.try_with(|spare| {
                let kept = spare.take();
                spare.set(if kept.capacity() > self.0.capacity() { kept } else { std::mem::take(&mut self.0) });
            });
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Keys {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let mut keys = Self(SPARE.take());
        lists::read(&object, &mut keys.0)?;
        Ok(keys)
    }
}

impl Item for Keys {
    const MANY: &'static str = "chains";

    fn count(&self) -> usize {
        1 + self.len()
    }
}
