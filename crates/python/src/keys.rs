//! Keys come as `str` or as anything with bytes.

use crate::errors::{raise, wrong_type};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyString;

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
