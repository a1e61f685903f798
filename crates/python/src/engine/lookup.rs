//! Look-ups of prefixes, for an engine's scheduler.

use super::{Open, invalid};
use crate::arguments::seconds;
use crate::errors::raise;
use crate::keys::Key;
use crate::lists::List;
use crate::pool::Pool;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::collections::HashMap;
use std::time::Duration;
use tidepool_engine::plan::Need;
use tidepool_engine::{Chain, Hashes, KeyPrefix, Lookup, LookupConfig};

/// Tells which part of a prefix a pool can serve, without blocking the caller.
///
/// ``chains`` are (key prefix, hashed blocks in one block, blocks needed before the end of a prefix or None for all): one for
/// each KV group on each rank. ``deadline`` is the time limit of a look-up in seconds.
#[pyclass(module = "tidepool._native", frozen)]
pub(crate) struct BlockLookup {
    open: Open<Lookup>,
}

#[pymethods]
impl BlockLookup {
    #[new]
    #[pyo3(signature = (pool, chains, *, deadline = 0.5))]
    fn new(py: Python<'_>, pool: &Pool, chains: List<(String, usize, Option<usize>)>, deadline: f64) -> PyResult<Self> {
        let chain = |(prefix, step, last): (String, usize, Option<usize>)| {
            if step == 0 {
                return Err(invalid(format!("chain {prefix} has blocks of 0 hashed blocks: allowed is 1 or more")));
            }
            Ok(Chain { prefix: KeyPrefix::new(prefix), step, need: last.map_or(Need::All, Need::Last) })
        };
        let chains = chains.into_iter().map(chain).collect::<PyResult<Vec<_>>>()?;
        let config = LookupConfig { deadline: seconds("deadline", deadline)?, ..LookupConfig::default() };
        let client = pool.client(None)?;
        let lookup = py.detach(|| Lookup::start(&client, chains, config));
        let lookup = lookup.map_err(|error| raise("TidepoolError", format!("look-up threads: {error}"), None))?;
        Ok(Self { open: Open::new(lookup) })
    }

    /// The number of hashed blocks of ``hashes`` after the first ``skip`` that can be loaded, or None if it is not
    /// known yet: ask again.
    ///
    /// ``hashes`` is the engine's own list of all hashes of the prompt; those after ``stop`` are not looked at. With
    /// ``patience`` waits up to so many seconds for the answer.
    #[pyo3(signature = (hashes, skip, stop, *, patience = 0.0))]
    fn ask(
        &self,
        py: Python<'_>,
        hashes: &Bound<'_, PyList>,
        skip: usize,
        stop: usize,
        patience: f64,
    ) -> PyResult<Option<usize>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or_default();
        let hashes = packed(hashes, skip, stop)?;
        py.detach(|| self.open.with(|lookup| lookup.ask(hashes, skip, patience)))
    }

    /// Tells the look-up that the engine has stored blocks: missing blocks may be there now.
    fn have_stored(&self) -> PyResult<()> {
        self.open.with(Lookup::have_stored)
    }

    /// Stores a small block in the background.
    fn note(&self, key: Key, value: Vec<u8>) -> PyResult<()> {
        self.open.with(|lookup| lookup.note(key.as_ref().to_vec(), value))
    }

    /// Counters since the start.
    fn stats(&self) -> PyResult<HashMap<&'static str, u64>> {
        let stats = self.open.with(Lookup::stats)?;
        Ok(HashMap::from([
            ("lookups", stats.lookups),
            ("lookup_blocks_asked", stats.blocks_asked),
            ("lookup_blocks_found", stats.blocks_found),
            ("lookups_remembered", stats.remembered),
            ("lookups_refused", stats.refused),
            ("lookup_micros", stats.micros),
        ]))
    }

    /// Ends the threads. Waits for a look-up under way, at most until its deadline.
    fn close(&self, py: Python<'_>) {
        let open = self.open.take();
        py.detach(|| drop(open));
    }
}

/// The most bytes reserved for hashes: the first hash gives the length, but the others may differ.
const RESERVED: usize = 1 << 20;

/// The engine's hashes `skip..stop`, end to end.
fn packed(hashes: &Bound<'_, PyList>, skip: usize, stop: usize) -> PyResult<Hashes> {
    let (mut bytes, mut width) = (Vec::new(), 0);
    let stop = stop.min(hashes.len());
    for index in skip..stop {
        let hash = hashes.get_item(index)?;
        let hash = hash.cast::<PyBytes>()?.as_bytes();
        if width == 0 {
            width = hash.len();
            bytes.reserve(width.saturating_mul(stop - skip).min(RESERVED));
        }
        if hash.len() != width || width == 0 {
            return Err(invalid(format!("a hash of {} bytes among others of {width}", hash.len())));
        }
        bytes.extend_from_slice(hash);
    }
    Hashes::new(bytes, width).ok_or_else(|| invalid("hashes of different lengths".to_owned()))
}
