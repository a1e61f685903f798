//! Readers of arguments whose errors name what is allowed. The interpreter adds the argument's name as a note.

use crate::errors::{raise, wrong_type};
use crate::lists::List;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::time::Duration;

/// The longest wait: clocks cannot represent arbitrarily distant moments.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Characters of a number that an error shows.
const SHOWN: usize = 40;

/// A whole number that fits the unsigned type `N`.
pub(crate) fn whole<N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>>(argument: &Bound<'_, PyAny>) -> PyResult<N> {
    argument.extract().map_err(|error| match is_overflow(argument, &error) {
        true => {
            let most = u64::MAX >> (u64::BITS as usize - 8 * size_of::<N>());
            let message = format!("{} is out of range: allowed is 0 to {most}", shown(argument));
            raise("InvalidError", message, None)
        }
        false => error,
    })
}

/// As [`whole`], or None.
pub(crate) fn whole_if_any<N: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>>(
    argument: &Bound<'_, PyAny>,
) -> PyResult<Option<N>> {
    if argument.is_none() { Ok(None) } else { whole(argument).map(Some) }
}

/// A number, infinite where it is larger than any float.
pub(crate) fn real(argument: &Bound<'_, PyAny>) -> PyResult<f64> {
    argument.extract().or_else(|error| match is_overflow(argument, &error) {
        true if argument.lt(0)? => Ok(f64::NEG_INFINITY),
        true => Ok(f64::INFINITY),
        false => Err(error),
    })
}

/// A number of seconds, for [`seconds`] to check.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) f64);

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(argument: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        real(&argument).map(Self)
    }
}

/// A length of time that Python gives in seconds.
pub(crate) fn seconds(field: &str, value: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(value).ok().filter(|wait| !wait.is_zero() && *wait <= A_YEAR);
    duration.ok_or_else(|| no_time(field, value, "a number of seconds above 0, like 0.5, up to a year"))
}

/// As [`seconds`], and zero is allowed.
pub(crate) fn seconds_or_zero(field: &str, value: f64) -> PyResult<Duration> {
    if value == 0.0 {
        return Ok(Duration::ZERO);
    }
    seconds(field, value).map_err(|_| no_time(field, value, "0, or a number of seconds, like 0.5, up to a year"))
}

fn no_time(field: &str, value: f64, allowed: &str) -> PyErr {
    raise("InvalidError", format!("{field} is {value:?}: allowed is {allowed}"), None)
}

/// Addresses of catalogs.
pub(crate) fn addresses(argument: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match argument.is_instance_of::<PyString>() {
        true => Err(wrong_type("the argument for addresses", "a list like [\"127.0.0.1:7411\"]", argument)),
        false => argument.extract::<List<String>>().map(Vec::from),
    }
}

/// Whether the argument is a number out of range, rather than no number.
pub(crate) fn is_overflow(argument: &Bound<'_, PyAny>, error: &PyErr) -> bool {
    error.is_instance_of::<PyOverflowError>(argument.py())
}

/// A number as an error shows it: its beginning. Python makes no text of numbers with thousands of digits.
pub(crate) fn shown(number: &Bound<'_, PyAny>) -> String {
    let Ok(text) = number.str() else { return "a number of thousands of digits".to_owned() };
    let text = text.to_string_lossy();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}
