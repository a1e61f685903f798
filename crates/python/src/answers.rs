//! Answers: the values that calls return.

use crate::errors::shown;
use pyo3::prelude::*;
use std::time::{SystemTime, UNIX_EPOCH};
use tidepool_client as client;
use tidepool_client::catalogs::NodeState;

/// The result of a put.
#[pyclass(module = "tidepool", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Stored {
    /// Nodes known to hold it: fewer than `wanted` where no further node could take it. Zero where a full node declined
    /// it, which counts as evicted at once.
    replicas: u32,
    /// Nodes that should hold it.
    wanted: u32,
    /// Whether this call moved its bytes; false when the pool held it already.
    moved: bool,
}

#[pymethods]
impl Stored {
    fn __repr__(&self) -> String {
        let wanted = if self.replicas < self.wanted { format!(", wanted={}", self.wanted) } else { String::new() };
        format!("Stored(replicas={}{wanted}, moved={})", self.replicas, python_bool(self.moved))
    }
}

impl Stored {
    /// The answer to a put that asked for `wanted` copies.
    pub(crate) fn new(stored: client::Stored, wanted: u32) -> Self {
        Self { replicas: stored.replicas, wanted, moved: stored.moved }
    }
}

/// The result of a removal.
#[pyclass(module = "tidepool", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Removed {
    /// Copies that were removed.
    copies: u64,
    /// Nodes that may hold a copy and gave no answer: their copies may remain.
    unanswered: Vec<String>,
    /// Since when the catalogs know every node that may come back, in seconds since 1970; `None` when no catalog answered.
    known_since: Option<f64>,
}

#[pymethods]
impl Removed {
    fn __bool__(&self) -> bool {
        self.copies > 0
    }

    fn __repr__(&self) -> String {
        format!("Removed(copies={}, unanswered={:?})", self.copies, self.unanswered)
    }
}

impl From<client::Removals> for Removed {
    fn from(removals: client::Removals) -> Self {
        let (unanswered, known_since) = (names(&removals.unanswered), removals.known_since.map(seconds));
        Self { copies: removals.copies, unanswered, known_since }
    }
}

impl From<client::Removal> for Removed {
    fn from(removal: client::Removal) -> Self {
        let (unanswered, known_since) = (names(&removal.unanswered), removal.known_since.map(seconds));
        Self { copies: u64::from(removal.removed), unanswered, known_since }
    }
}

/// A moment as Python's `time.time()` counts it.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The prefixes of some chains that the pool can serve.
#[pyclass(module = "tidepool", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Match {
    /// Blocks from the start of each chain that the pool can serve, without a gap.
    runs: Vec<usize>,
    /// The shortest run: a prefix that all chains have.
    shortest: usize,
    /// Whether longer runs are ruled out; false when no complete catalog has answered.
    complete: bool,
}

#[pymethods]
impl Match {
    fn __repr__(&self) -> String {
        let complete = python_bool(self.complete);
        format!("Match(runs={:?}, shortest={}, complete={complete})", self.runs, self.shortest)
    }
}

impl From<client::Matches> for Match {
    fn from(matches: client::Matches) -> Self {
        let runs = matches.chains.iter().map(client::ChainMatch::run).collect();
        Self { runs, shortest: matches.shortest, complete: matches.complete }
    }
}

/// One copy of a block, as its owner describes it.
#[pyclass(module = "tidepool", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct Copy {
    /// The node that holds it.
    node: String,
    /// Bytes of the block.
    size: u64,
    /// Views and sends that hold it in place.
    views: u32,
}

#[pymethods]
impl Copy {
    fn __repr__(&self) -> String {
        format!("Copy(node={:?}, size={}, views={})", self.node, self.size, self.views)
    }
}

impl From<client::BlockCopy> for Copy {
    fn from(copy: client::BlockCopy) -> Self {
        Self { node: copy.node.to_string(), size: copy.len, views: copy.views }
    }
}

/// A node of the pool.
#[pyclass(module = "tidepool", frozen, get_all)]
#[derive(Debug)]
pub(crate) struct NodeInfo {
    /// Its name.
    name: String,
    /// Its incarnation, which every start of the node changes.
    epoch: u64,
    /// The address for other hosts, `host:port`; None for a node known by its socket only.
    address: Option<String>,
    /// The catalogs' state of it: "alive", "suspect", "dead", or "left" when it stopped in order; None when no catalog
    /// knows it or answers.
    state: Option<&'static str>,
    /// Bytes for blocks.
    capacity: u64,
    /// Bytes in use.
    used: u64,
    /// Whether this process reads it through shared memory.
    mapped: bool,
}

#[pymethods]
impl NodeInfo {
    fn __repr__(&self) -> String {
        let state = self.state.map_or("None".to_owned(), |state| format!("{state:?}"));
        let Self { name, capacity, used, mapped, .. } = self;
        format!(
            "NodeInfo(name={name:?}, state={state}, capacity={capacity}, used={used}, mapped={})",
            python_bool(*mapped)
        )
    }
}

impl From<client::PoolNode> for NodeInfo {
    fn from(node: client::PoolNode) -> Self {
        let state = node.state.map(|state| match state {
            NodeState::Alive => "alive",
            NodeState::Suspect => "suspect",
            NodeState::Dead if node.left => "left",
            NodeState::Dead => "dead",
        });
        Self {
            name: node.name.to_string(),
            epoch: node.epoch.0,
            address: node.data_address,
            state,
            capacity: node.capacity_bytes,
            used: node.used_bytes,
            mapped: node.mapped,
        }
    }
}

/// A listed block: its key, its size and the nodes that hold it.
pub(crate) type ListedBlock<'py> = (Bound<'py, PyAny>, u64, Vec<String>);

pub(crate) fn listed<'py>(py: Python<'py>, entry: &client::Listed) -> ListedBlock<'py> {
    (shown(py, &entry.key), entry.len, names(&entry.nodes))
}

fn names(nodes: &[client::NodeName]) -> Vec<String> {
    nodes.iter().map(ToString::to_string).collect()
}

fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}
