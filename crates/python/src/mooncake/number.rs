//! Numbers: sizes and addresses.

use crate::arguments::{is_overflow, shown};
use crate::errors::wrong_type;
use crate::lists::Item;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A non-negative number that fits a machine word. Any other value is of the wrong type, as in Mooncake.
#[derive(Clone, Copy)]
pub(super) struct Number(pub(super) usize);

impl Item for Number {
    const MANY: &'static str = "numbers";
}

impl<'a, 'py> FromPyObject<'a, 'py> for Number {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let wrong = |error| match is_overflow(&object, &error) {
            true => PyTypeError::new_err(format!(
                "a size, offset or address is {}: allowed are whole numbers from 0 to {}",
                shown(&object),
                usize::MAX
            )),
            false => wrong_type("a size, offset or address", "a whole number from 0 on", &object),
        };
        object.extract().map(Self).map_err(wrong)
    }
}
