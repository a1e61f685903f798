//! Readers of arguments whose errors say what is allowed. Which argument it was, the interpreter adds as a note.

use crate::errors::{raise, wrong_type};
use crate::lists::List;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

/// A whole number that fits the unsigned type `N`.
pub(crate) fn whole<N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>>(argument: &Bound<'_, PyAny>) -> PyResult<N> {
    argument.extract().map_err(|error| match argument.is_instance_of::<PyInt>() {
        true => {
            let most = u64::MAX >> (u64::BITS as usize - 8 * size_of::<N>());
            raise("InvalidError", format!("{argument} is out of range: allowed is 0 to {most}"), None)
        }
        false => error,
    })
}

/// The same, or None.
pub(crate) fn whole_if_any<N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>>(
    argument: &Bound<'_, PyAny>,
) -> PyResult<Option<N>> {
    if argument.is_none() { Ok(None) } else { whole(argument).map(Some) }
}

/// Addresses of catalogs.
pub(crate) fn addresses(argument: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match argument.is_instance_of::<PyString>() {
        true => Err(wrong_type("what stands for addresses", "a list like [\"127.0.0.1:7411\"]", argument)),
        false => argument.extract::<List<String>>().map(Vec::from),
    }
}
