//! Lists as arguments. The claimed length of a sequence is never trusted: items are read one by one, up to the first
//! wrong item or one item more than a call takes.

use crate::errors::{raise, wrong_type};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString};
use std::ops::Deref;

/// The most items of a call, including items of nested lists: sixteen of the largest requests to a node, four to a
/// catalog.
pub(crate) const MOST_ITEMS: usize = 1 << 20;

/// A type that can stand in a list.
pub(crate) trait Item: for<'py> FromPyObjectOwned<'py> {
    /// The plural by which errors name the type.
    const MANY: &'static str = "items";

    /// Number of a call's items that this one counts as.
    fn count(&self) -> usize {
        1
    }
}

/// The items of a list or of another sequence.
pub(crate) struct List<T>(Vec<T>);

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<List<T>> for Vec<T> {
    fn from(list: List<T>) -> Self {
        list.0
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'py, T: Item> FromPyObject<'_, 'py> for List<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut items = Vec::new();
        read(&object, &mut items)?;
        Ok(Self(items))
    }
}

impl<T: Item> Item for List<T> {
    const MANY: &'static str = T::MANY;

    fn count(&self) -> usize {
        1 + self.iter().map(T::count).sum::<usize>()
    }
}

impl Item for String {
    const MANY: &'static str = "texts";
}

macro_rules! tuple {
    ($($part:ident)+) => {
        impl<$($part: for<'py> FromPyObjectOwned<'py>),+> Item for ($($part,)+) {}
    };
}
tuple!(A B C);
tuple!(A B C D E);
tuple!(A B C D E F);

/// Reads the items of a list or of another sequence.
pub(crate) fn read<T: Item>(object: &Bound<'_, PyAny>, items: &mut Vec<T>) -> PyResult<()> {
    if let Ok(list) = object.cast::<PyList>() {
        items.reserve_exact(list.len().min(MOST_ITEMS));
    }
    each(object, T::MANY, |item| {
        let item: T = item.extract().map_err(Into::into)?;
        let count = item.count();
        items.push(item);
        Ok(count)
    })
}

/// A copy of a list or of another sequence. Nested sequences down to `depth` are copied as lists, too; deeper items are
/// the same objects.
#[pyfunction]
#[pyo3(signature = (value, many, depth = 1))]
pub(crate) fn listed<'py>(value: &Bound<'py, PyAny>, many: &str, depth: u8) -> PyResult<Bound<'py, PyList>> {
    copied(value, many, depth, &mut 0)
}

fn copied<'py>(value: &Bound<'py, PyAny>, many: &str, depth: u8, total: &mut usize) -> PyResult<Bound<'py, PyList>> {
    let mut items = Vec::new();
    each(value, many, |item| {
        *total += 1;
        check_count(*total)?;
        items.push(if depth > 1 { copied(item, many, depth - 1, total)?.into_any() } else { item.clone() });
        Ok(1)
    })?;
    PyList::new(value.py(), items)
}

/// Calls `take` with each item of a list or of another sequence; `take` returns the number of a call's items that it
/// counts as.
pub(crate) fn each<'py>(
    object: &Bound<'py, PyAny>,
    many: &str,
    mut take: impl FnMut(&Bound<'py, PyAny>) -> PyResult<usize>,
) -> PyResult<()> {
    if !is_sequence(object)? {
        return Err(wrong_type(&format!("the argument for {many}"), "a list or another sequence of them", object));
    }
    let mut taken = 0;
    for item in object.try_iter()? {
        taken += take(&item?)?;
        check_count(taken)?;
    }
    Ok(())
}

/// Refuses more items than a call takes.
pub(crate) fn check_count(count: usize) -> PyResult<()> {
    if count > MOST_ITEMS { Err(too_many()) } else { Ok(()) }
}

#[cold]
fn too_many() -> PyErr {
    let message = format!(
        "more than {MOST_ITEMS} items in one call: allowed are up to {MOST_ITEMS}, those of lists in lists too"
    );
    raise("InvalidError", message, None)
}

/// Whether an object is an indexed sequence, registered as one or not; arrays are not. Text is also a sequence, of
/// characters, and bytes of numbers, but hardly meant as one.
fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if object.is_instance_of::<PyList>() {
        return Ok(true);
    }
    let is_one = object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
        || object.is_instance_of::<PyDict>();
    Ok(!is_one && object.hasattr("__getitem__")?)
}
