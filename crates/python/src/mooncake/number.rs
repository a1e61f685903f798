//! Sizes and addresses.

use crate::errors::wrong_type;
use pyo3::prelude::*;

/// A number from zero on that fits a machine word. What does not is of the wrong type, as it is to Mooncake.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) usize);

impl<'a, 'py> FromPyObject<'a, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let wrong = |_| wrong_type("a size or address", "a whole number from 0 on", &object);
        object.extract().map(Self).map_err(wrong)
    }
}
