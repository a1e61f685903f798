//! Failures as Python exceptions. The classes are in `tidepool/errors.py`; each carries its key.

use crate::keys::Key;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use tidepool_client::{ConnectError, GetError, InvalidInput, NodeError, PutError};

/// An exception of the class `name` with a message and, where it is about a key, that key.
pub(crate) fn raise(name: &str, message: String, key: Option<&[u8]>) -> PyErr {
    Python::attach(|py| build(py, name, message, key).unwrap_or_else(|error| error))
}

fn build(py: Python<'_>, name: &str, message: String, key: Option<&[u8]>) -> PyResult<PyErr> {
    let class = py.import("tidepool.errors")?.getattr(name)?;
    let arguments = PyDict::new(py);
    if let Some(key) = key {
        arguments.set_item("key", shown(py, key))?;
    }
    Ok(PyErr::from_value(class.call((message,), Some(&arguments))?))
}

/// A key as its owner most likely wrote it: as text if it is UTF-8.
pub(crate) fn shown<'py>(py: Python<'py>, key: &[u8]) -> Bound<'py, PyAny> {
    match str::from_utf8(key) {
        Ok(text) => PyString::new(py, text).into_any(),
        Err(_) => PyBytes::new(py, key).into_any(),
    }
}

pub(crate) fn forked() -> PyErr {
    let message =
        "made before a fork: threads do not survive it, so make a new one in the child (or use spawn instead of fork)";
    raise("ForkedError", message.to_owned(), None)
}

pub(crate) fn closed() -> PyErr {
    raise("ClosedError", "used after close()".to_owned(), None)
}

pub(crate) fn wrong_type(what: &str, allowed: &str, found: &Bound<'_, PyAny>) -> PyErr {
    let name = found.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{what} is {allowed}, not {name}"))
}

pub(crate) fn connect(error: &ConnectError) -> PyErr {
    match error {
        ConnectError::Config(_) | ConnectError::Catalogs(_) => raise("InvalidError", error.to_string(), None),
        ConnectError::Threads(_) => raise("TidepoolError", error.to_string(), None),
    }
}

pub(crate) fn invalid(error: &InvalidInput, key: Option<&[u8]>) -> PyErr {
    raise("InvalidError", error.to_string(), key)
}

/// As [`invalid`], with the first invalid key of `keys`.
pub(crate) fn invalid_among<'a>(error: &InvalidInput, keys: impl IntoIterator<Item = &'a Key>) -> PyErr {
    let is_wrong = |key: &&Key| tidepool_types::Key::new(key.as_ref()).is_err();
    let wrong = keys.into_iter().find(is_wrong);
    invalid(error, wrong.map(AsRef::as_ref))
}

pub(crate) fn put(error: &PutError, key: &[u8]) -> PyErr {
    let name = match error {
        PutError::InvalidInput(_) => "InvalidError",
        PutError::NoSpace | PutError::TooLarge { .. } => "NoSpaceError",
        PutError::NoNode | PutError::NotFromDevice => "UnreachableError",
        PutError::Timeout => "DeadlineError",
    };
    raise(name, error.to_string(), Some(key))
}

pub(crate) fn get(error: &GetError, key: &[u8]) -> PyErr {
    raise("InvalidError", error.to_string(), Some(key))
}

pub(crate) fn node(error: &NodeError, key: Option<&[u8]>) -> PyErr {
    let name = match error {
        NodeError::InvalidInput(_)
        | NodeError::UnknownNode(_)
        | NodeError::Invalid(_)
        | NodeError::NotDead { .. } => "InvalidError",
        NodeError::NotFound => "NotFoundError",
        NodeError::NoSpace(_) => "NoSpaceError",
        NodeError::NoCatalog(_)
        | NodeError::Dead { .. }
        | NodeError::Unreachable(_)
        | NodeError::Ended(_)
        // Overloaded, stopping, or a request damaged on its way: not the arguments' fault.
        | NodeError::Refused { .. }
        | NodeError::NoAddress(_)
        | NodeError::NoNode => "UnreachableError",
    };
    raise(name, error.to_string(), key)
}
