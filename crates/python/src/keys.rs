//! Keys come as `str` or as anything with bytes.

use crate::errors::wrong_type;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

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
        let wrong = |_| wrong_type("a key", "str or bytes", &object);
        object.extract::<PyBackedBytes>().map(Self::Bytes).map_err(wrong)
    }
}
