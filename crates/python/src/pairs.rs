//! Pairs: keys and their blocks, as `put_many` takes them.

use crate::buffers::Source;
use crate::errors::wrong_type;
use crate::keys::Key;
use crate::lists::{self, Item};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

/// The blocks of a mapping, or of pairs of key and block. A mapping is asked for its items one by one, unless it is a dict:
/// other threads may change that meanwhile.
pub(crate) fn pairs_of(blocks: &Bound<'_, PyAny>) -> PyResult<Vec<(Key, Source)>> {
    let items = match blocks.cast::<PyDict>() {
        Ok(dict) => dict.items().into_any(),
        Err(_) if blocks.cast::<PyMapping>().is_ok() => blocks.call_method0("items")?,
        Err(_) => blocks.clone(),
    };
    let (mut pairs, mut count) = (Vec::new(), 0);
    for pair in items.try_iter()? {
        let (key, block) = pair_of(&pair?)?;
        count += 1 + block.count();
        lists::check_count(count)?;
        pairs.push((key, block));
    }
    Ok(pairs)
}

fn pair_of(pair: &Bound<'_, PyAny>) -> PyResult<(Key, Source)> {
    let Ok((key, block)) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        return Err(wrong_type("an item of blocks", "a pair (key, block)", pair));
    };
    Ok((key.extract()?, block.extract()?))
}
