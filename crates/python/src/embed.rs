//! Nodes and catalogs that run inside the interpreter's process: an engine that brings its own memory, tests, notebooks.

use crate::arguments::{addresses, real, seconds, seconds_or_zero, whole};
use crate::errors::{self, raise};
use crate::exit::{AtExit, close_at_exit};
use crate::fork::Local;
use crate::signals::interruptible;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use tidepool_locks::Mutex;
use tidepool_node::StartError;
use tidepool_store::OpenError;
use tidepool_types::{ByteSize, Metric, NodeName};

/// A node or a catalog that runs until it is closed.
struct Running<T>(Arc<Mutex<Option<Local<T>>>>);

impl<T: Send> AtExit for Mutex<Option<Local<T>>> {
    fn close(&self) {
        let running = self.try_lock().and_then(|mut running| running.take());
        drop(running);
    }
}

impl<T: Send + 'static> Running<T> {
    fn new(value: T) -> Self {
        let running = Arc::new(Mutex::new(Some(Local::new(value))));
        close_at_exit(&running);
        Self(running)
    }

    fn with<A>(&self, ask: impl FnOnce(&T) -> A) -> PyResult<A> {
        let running = self.0.lock();
        Ok(ask(running.as_ref().ok_or_else(errors::closed)?.get()?))
    }

    fn close(&self, py: Python<'_>) {
        let running = self.0.lock().take();
        py.detach(|| drop(running));
    }
}

fn numbers(metrics: &[Metric]) -> HashMap<String, u64> {
    metrics.iter().map(|metric| (metric.full_name(), metric.number())).collect()
}

/// A node: memory for blocks, in this process, shared with the host's other processes.
///
/// It ends with :meth:`close`, at the end of a ``with`` statement, or with the process; its blocks end with it.
///
/// >>> with tidepool.Node("beside", 16 << 20, [catalog.address], dir=scratch) as beside:
/// ...     beside.name, beside.metrics()["tidepool_node_capacity_bytes"] >= 16 << 20
/// ('beside', True)
#[pyclass(module = "tidepool", frozen)]
pub(crate) struct Node {
    running: Running<tidepool_node::Node>,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Node {
    /// Starts a node with ``capacity`` bytes for blocks that announces itself to ``catalogs``. ``eviction`` says which block goes when
    /// room is needed: "lru", "s3fifo", "sieve" or "agents".
    #[new]
    #[pyo3(signature = (name, capacity, catalogs = vec!["127.0.0.1:7411".to_owned()], *, dir = PathBuf::from("/dev/shm/tidepool"), listen = "127.0.0.1:0".to_owned(), advertise = None, smallest_expected_block = 4096, eviction = "lru"))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python call")]
    fn new(
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = whole)] capacity: u64,
        #[pyo3(from_py_with = addresses)] catalogs: Vec<String>,
        dir: PathBuf,
        listen: String,
        advertise: Option<String>,
        #[pyo3(from_py_with = whole)] smallest_expected_block: u64,
        eviction: &str,
    ) -> PyResult<Self> {
        let node_name = NodeName::new(name).map_err(|error| errors::invalid(&error, None))?;
        let addresses = catalogs.iter().map(|address| ("catalogs", address));
        let own = std::iter::once(("listen", &listen)).chain(advertise.iter().map(|address| ("advertise", address)));
        for (field, address) in addresses.chain(own) {
            if !tidepool_client::catalogs::has_port(address) {
                let message =
                    format!("{field}: {address:?} is no address: allowed is host:port, with a port up to 65535");
                return Err(raise("InvalidError", message, None));
            }
        }
        let no_policy = |_| {
            let allowed = "allowed are \"lru\", \"s3fifo\", \"sieve\" and \"agents\"";
            raise("InvalidError", format!("eviction is {eviction:?}: {allowed}"), None)
        };
        let config = tidepool_node::NodeConfig {
            name: node_name,
            eviction: eviction.parse().map_err(no_policy)?,
            dir,
            capacity: ByteSize(capacity),
            smallest_expected_block: ByteSize(smallest_expected_block),
            data_listen: listen,
            data_advertise: advertise.clone(),
            catalogs,
            ..tidepool_node::NodeConfig::small("node")
        };
        let node = interruptible(py, |go_on| tidepool_node::Node::start_while(config, go_on))?;
        let failed = |error: StartError| raise(kind_of(&error), format!("node {name}: {error}"), None);
        let node = node.map_err(failed)?;
        let address = advertise.unwrap_or_else(|| node.data_address().to_string());
        Ok(Self { name: name.to_owned(), address, running: Running::new(node) })
    }

    /// The node's metrics, by name.
    fn metrics(&self) -> PyResult<HashMap<String, u64>> {
        self.running.with(|node| numbers(&node.metrics()))
    }

    /// Stops the node. Its blocks are gone.
    fn close(&self, py: Python<'_>) {
        self.running.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// The exception for a node that did not start. Impossible sizes and paths are the caller's errors.
fn kind_of(error: &StartError) -> &'static str {
    match error {
        StartError::Memory(OpenError::Shape { .. } | OpenError::LessThanAPage { .. }) => "InvalidError",
        StartError::Memory(OpenError::Io { source, .. }) if source.kind() == ErrorKind::InvalidInput => "InvalidError",
        _ => "TidepoolError",
    }
}

/// A catalog in this process: knows which node holds which block.
///
/// >>> with tidepool.Catalog("127.0.0.1:0") as started:
/// ...     started.address.startswith("127.0.0.1:")
/// True
#[pyclass(module = "tidepool", frozen)]
pub(crate) struct Catalog {
    running: Running<tidepool_catalog::Server>,
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Catalog {
    /// Starts a catalog that listens on ``listen``. ``lease`` is for how many seconds blocks that were read are not removed,
    /// for clients that want leases, as the Mooncake drop-in's do.
    #[new]
    #[pyo3(signature = (listen = "127.0.0.1:7411", *, suspect_after = 2.0, dead_after = 5.0, lease = 0.0))]
    fn new(
        py: Python<'_>,
        listen: &str,
        #[pyo3(from_py_with = real)] suspect_after: f64,
        #[pyo3(from_py_with = real)] dead_after: f64,
        #[pyo3(from_py_with = real)] lease: f64,
    ) -> PyResult<Self> {
        let wrong = |error| {
            raise(
                "InvalidError",
                format!("listen {listen:?}: {error}; allowed is an address and a port, like 127.0.0.1:7411"),
                None,
            )
        };
        let config = tidepool_catalog::CatalogConfig {
            listen: listen.parse().map_err(wrong)?,
            suspect_after: seconds("suspect_after", suspect_after)?,
            dead_after: seconds("dead_after", dead_after)?,
            lease: seconds_or_zero("lease", lease)?,
            ..Default::default()
        };
        let server = py.detach(|| tidepool_catalog::Server::start(config));
        let server = server.map_err(|error| {
            let is_argument = matches!(error, tidepool_catalog::StartError::Config(_));
            let kind = if is_argument { "InvalidError" } else { "TidepoolError" };
            raise(kind, format!("catalog: {error}"), None)
        })?;
        Ok(Self { address: server.address().to_string(), running: Running::new(server) })
    }

    /// The catalog's metrics, by name.
    fn metrics(&self) -> PyResult<HashMap<String, u64>> {
        self.running.with(|server| numbers(&server.metrics()))
    }

    /// Stops the catalog. Nodes lose no blocks.
    fn close(&self, py: Python<'_>) {
        self.running.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
