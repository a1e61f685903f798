//! Preferred nodes of puts. A preference is a hint, since nodes come and go. But a name that no node has is most likely
//! a typo, which would otherwise go unnoticed.

use crate::errors;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::collections::HashSet;
use std::ffi::CString;
use tidepool_client::{Client, NodeName};
use tidepool_locks::Mutex;

/// The most names that are checked; further names are accepted unchecked.
const MOST_NAMES: usize = 1024;
/// Names of nodes that a warning shows.
const SHOWN: usize = 10;

/// Names that were checked.
#[derive(Default)]
pub(crate) struct Preferred(Mutex<HashSet<NodeName>>);

impl Preferred {
    /// The node's name. Checks each name at its first use, and warns if no catalog knows it.
    pub(crate) fn node(&self, py: Python<'_>, client: &Client, name: &str) -> PyResult<NodeName> {
        let name = NodeName::new(name).map_err(|error| errors::invalid(&error, None))?;
        if self.is_new(&name) {
            let nodes = py.detach(|| client.members());
            // Without an answer of a catalog, no name can be checked.
            let is_told = nodes.iter().any(|node| node.state.is_some());
            if is_told && nodes.iter().all(|node| node.name != name) {
                let category = py.get_type::<PyUserWarning>();
                PyErr::warn(py, &category, &unknown(&name, nodes.iter().map(|node| node.name.as_str())), 1)?;
            }
        }
        Ok(name)
    }

    fn is_new(&self, name: &NodeName) -> bool {
        let mut names = self.0.lock();
        names.len() < MOST_NAMES && names.insert(name.clone())
    }
}

fn unknown<'a>(name: &NodeName, known: impl ExactSizeIterator<Item = &'a str>) -> CString {
    let more = known.len().saturating_sub(SHOWN);
    let known: Vec<&str> = known.take(SHOWN).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let known = known.join(", ");
    // Names have no zero byte.
    CString::new(format!("prefer: no catalog knows a node named {name}; known are {known}{more}")).unwrap_or_default()
}
