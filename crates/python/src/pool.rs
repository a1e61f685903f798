//! The pool class: a connection to a pool.

use crate::answers::{Copy, ListedBlock, Match, NodeInfo, Removed, Stored, listed};
use crate::arguments::{Seconds, addresses, real, seconds, seconds_or_zero, whole, whole_if_any};
use crate::buffers::{Source, Target, handed_over};
use crate::errors::{self, raise};
use crate::fork::Local;
use crate::keys::{Key, Keys};
use crate::lists::List;
use crate::pairs::pairs_of;
use crate::preferred::Preferred;
use crate::signals;
use crate::view::View;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::collections::HashMap;
use std::path::PathBuf;
use tidepool_client::{
    Client, ClientConfig, GetError, GetInto, ListCursor, NodeName, Pattern, PutItem, PutOptions, Verify,
};
use tidepool_locks::RwLock;

/// Keys that a listing fetches at a time.
const LISTED_AT_ONCE: u32 = 4096;

/// A connection to a pool. Safe to use from many threads; every call lets other Python threads run while it works.
///
/// >>> import tidepool
/// >>> catalog = tidepool.Catalog("127.0.0.1:0")
/// >>> node = tidepool.Node("example", 32 << 20, [catalog.address], dir=scratch)
/// >>> pool = tidepool.Pool.connect([catalog.address], dir=scratch)
/// >>> pool.put("prefix/0", b"attention")
/// Stored(replicas=1, moved=True)
/// >>> pool.get("prefix/0")
/// b'attention'
/// >>> pool.get("prefix/1") is None
/// True
/// >>> pool.close()
#[pyclass(module = "tidepool", frozen)]
pub(crate) struct Pool {
    /// Taken out by `close`. Calls hold a clone of the client, so they never wait for each other here.
    client: RwLock<Option<Local<Client>>>,
    preferred: Preferred,
}

impl Pool {
    /// The client, with the call's own time limit if it has one.
    pub(crate) fn client(&self, deadline: Option<Seconds>) -> PyResult<Client> {
        let client = self.client.read();
        let client = client.as_ref().ok_or_else(errors::closed)?.get()?;
        match deadline {
            None => Ok(client.clone()),
            Some(Seconds(deadline)) => Ok(client.within(seconds("deadline", deadline)?)),
        }
    }

    fn put_options(
        &self,
        py: Python<'_>,
        client: &Client,
        replicas: u32,
        prefer: Option<&str>,
    ) -> PyResult<PutOptions> {
        if replicas == 0 {
            return Err(raise("InvalidError", "replicas is 0: allowed is 1 or more".to_owned(), None));
        }
        let prefer = prefer.map(|name| self.preferred.node(py, client, name)).transpose()?;
        Ok(PutOptions { replicas, prefer: prefer.into_iter().collect(), ..PutOptions::default() })
    }
}

#[pymethods]
impl Pool {
    /// Connects to the pool that ``catalogs`` know of, and to the nodes on this host.
    ///
    /// Waits up to ``wait`` seconds until a catalog or a node on this host answers, and raises :class:`UnreachableError` if none
    /// does; with ``wait=None`` a pool that is not there yet is found later. ``deadline`` is the time limit of a call in seconds,
    /// unless the call has one of its own. ``local=False`` reads over TCP even on this host; ``verify="always"`` checks the
    /// checksums of same-host reads too.
    ///
    /// >>> with tidepool.Pool.connect([catalog.address], dir=scratch) as connected:
    /// ...     connected.exists("nothing")
    /// False
    #[staticmethod]
    #[pyo3(signature = (catalogs = vec!["127.0.0.1:7411".to_owned()], *, dir = PathBuf::from("/dev/shm/tidepool"), deadline = 5.0, wait = Some(Seconds(5.0)), local = true, verify = "network", tcp_streams = 2, copy_threads = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python call")]
    fn connect(
        py: Python<'_>,
        #[pyo3(from_py_with = addresses)] catalogs: Vec<String>,
        dir: PathBuf,
        #[pyo3(from_py_with = real)] deadline: f64,
        wait: Option<Seconds>,
        local: bool,
        verify: &str,
        #[pyo3(from_py_with = whole)] tcp_streams: usize,
        #[pyo3(from_py_with = whole_if_any)] copy_threads: Option<usize>,
    ) -> PyResult<Self> {
        let verify = match verify {
            "network" => Verify::Network,
            "always" => Verify::Always,
            other => {
                let message = format!("verify is {other:?}: allowed are \"network\" and \"always\"");
                return Err(raise("InvalidError", message, None));
            }
        };
        let wait = wait.map(|Seconds(wait)| seconds("wait", wait)).transpose()?;
        let deadline = seconds("deadline", deadline)?;
        let place = format!("catalogs {}, sockets in {}", catalogs.join(", "), dir.display());
        let config = ClientConfig {
            catalogs,
            dir,
            deadline,
            local,
            verify,
            tcp_streams,
            copy_threads,
            ..ClientConfig::default()
        };
        let client = py.detach(|| Client::connect(config)).map_err(|error| errors::connect(&error))?;
        if let Some(wait) = wait
            && !signals::answers_within(py, &client, wait, Client::is_connected)?
        {
            let message = format!("no catalog answered within {wait:?} and no node was found on this host ({place})");
            py.detach(|| drop(client));
            return Err(raise("UnreachableError", message, None));
        }
        Ok(Self { client: RwLock::new(Some(Local::new(client))), preferred: Preferred::default() })
    }

    /// Stores a block, made of one buffer or of a list of buffers. If the pool holds the key already that is a success, and
    /// nothing moves. ``replicas`` asks for copies on as many nodes; fewer are a success, and the answer says how many there are.
    /// ``prefer`` names the node to try first; a name that no catalog knows is a ``UserWarning`` at its first use.
    ///
    /// >>> pool.put("whole", b"1234"), pool.put("pieces", [b"12", bytearray(b"34")])
    /// (Stored(replicas=1, moved=True), Stored(replicas=1, moved=True))
    /// >>> pool.put("whole", b"1234").moved
    /// False
    /// >>> pool.put("copied", b"1234", replicas=5)
    /// Stored(replicas=1, wanted=5, moved=True)
    #[pyo3(signature = (key, block, *, replicas = 1, prefer = None, deadline = None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Key,
        block: Source,
        #[pyo3(from_py_with = whole)] replicas: u32,
        prefer: Option<&str>,
        deadline: Option<Seconds>,
    ) -> PyResult<Stored> {
        let client = self.client(deadline)?;
        let options = self.put_options(py, &client, replicas, prefer)?;
        let stored = py.detach(|| client.put(&key, block.parts(), &options));
        stored.map(|stored| Stored::new(stored, replicas)).map_err(|error| errors::put(&error, key.as_ref()))
    }

    /// Stores many blocks, given as a mapping or as pairs of key and block. Returns one result for each, in order: a
    /// :class:`Stored`, or the exception that :meth:`put` would have raised.
    ///
    /// >>> pool.put_many({"a": b"1", "b": [b"2", b"3"]})
    /// [Stored(replicas=1, moved=True), Stored(replicas=1, moved=True)]
    #[pyo3(signature = (blocks, *, replicas = 1, prefer = None, deadline = None))]
    fn put_many<'py>(
        &self,
        py: Python<'py>,
        blocks: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = whole)] replicas: u32,
        prefer: Option<&str>,
        deadline: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyList>> {
        let client = self.client(deadline)?;
        let options = self.put_options(py, &client, replicas, prefer)?;
        let pairs = pairs_of(blocks)?;
        let stored = py.detach(|| {
            let items: Vec<_> = pairs.iter().map(|(key, block)| PutItem::new(key, block.parts())).collect();
            client.put_batch(&items, &options)
        });
        let answers = stored.into_iter().zip(&pairs).map(|(stored, (key, _))| match stored {
            Ok(stored) => Ok(Py::new(py, Stored::new(stored, replicas))?.into_any().into_bound(py)),
            Err(error) => Ok(errors::put(&error, key.as_ref()).into_value(py).into_any().into_bound(py)),
        });
        PyList::new(py, answers.collect::<PyResult<Vec<_>>>()?)
    }

    /// A block's bytes, or those from ``start`` to ``stop``, or None if the pool does not hold it. A range must lie inside the
    /// block. (:meth:`get_into` and :meth:`view` copy less.)
    ///
    /// >>> _ = pool.put("got", b"abcdef")
    /// >>> pool.get("got"), pool.get("got", start=2, stop=4), pool.get("not there")
    /// (b'abcdef', b'cd', None)
    #[pyo3(signature = (key, *, start = None, stop = None, deadline = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        #[pyo3(from_py_with = whole_if_any)] start: Option<u64>,
        #[pyo3(from_py_with = whole_if_any)] stop: Option<u64>,
        deadline: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let client = self.client(deadline)?;
        let read = py.detach(|| match (start, stop) {
            (None, None) => client.get(&key),
            (start, Some(stop)) => client.get_range(&key, start.unwrap_or(0)..stop),
            (Some(start), None) => client.get(&key)?.map(|bytes| rest_from(bytes, start)).transpose(),
        });
        let bytes = read.map_err(|error| errors::get(&error, key.as_ref()))?;
        bytes.map(|bytes| handed_over(py, bytes)).transpose()
    }

    /// Many blocks, in the order of their keys; None for what the pool does not hold.
    ///
    /// >>> _ = pool.put("one", b"1")
    /// >>> pool.get_many(["one", "none"])
    /// [b'1', None]
    #[pyo3(signature = (keys, *, deadline = None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Keys,
        deadline: Option<Seconds>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let client = self.client(deadline)?;
        let answers = py.detach(|| client.get_batch(&keys));
        let bytes = |(answer, key): (Result<Option<Vec<u8>>, _>, &Key)| {
            let bytes = answer.map_err(|error| errors::get(&error, key.as_ref()))?;
            bytes.map(|bytes| handed_over(py, bytes)).transpose()
        };
        answers.into_iter().zip(&keys).map(bytes).collect()
    }

    /// Reads a block, or bytes ``start`` to ``stop`` of it, into one writable buffer or a list of them. Returns how many bytes
    /// were read, or None if the pool does not hold the block; what is in the buffers is then unspecified.
    ///
    /// >>> buffer = bytearray(4)
    /// >>> _ = pool.put("into", b"abcd")
    /// >>> pool.get_into("into", buffer), buffer
    /// (4, bytearray(b'abcd'))
    #[pyo3(signature = (key, into, *, start = None, stop = None, deadline = None))]
    fn get_into(
        &self,
        py: Python<'_>,
        key: Key,
        mut into: Target,
        #[pyo3(from_py_with = whole_if_any)] start: Option<u64>,
        #[pyo3(from_py_with = whole_if_any)] stop: Option<u64>,
        deadline: Option<Seconds>,
    ) -> PyResult<Option<usize>> {
        let client = self.client(deadline)?;
        let range = range_of(start, stop, &key)?;
        Target::check_apart(std::slice::from_ref(&into))?;
        let answer = py.detach(|| {
            let mut item = [GetInto { range, ..GetInto::new(&key, into.buffers()) }];
            client.get_batch_into(&mut item).pop()
        });
        answer.transpose().map(Option::flatten).map_err(|error| errors::get(&error, key.as_ref()))
    }

    /// Reads many blocks, each into buffers of its own that overlap with no others. Returns for each how many bytes were read,
    /// None if the pool does not hold it, or the exception that :meth:`get_into` would have raised.
    #[pyo3(signature = (keys, into, *, deadline = None))]
    fn get_many_into<'py>(
        &self,
        py: Python<'py>,
        keys: Keys,
        into: List<Target>,
        deadline: Option<Seconds>,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        let (client, mut into) = (self.client(deadline)?, Vec::from(into));
        if keys.len() != into.len() {
            let message = format!("{} keys and {} buffers: allowed is one for each", keys.len(), into.len());
            return Err(raise("InvalidError", message, None));
        }
        Target::check_apart(&into)?;
        let answers = py.detach(|| {
            let pairs = keys.iter().zip(&mut into);
            let mut items: Vec<_> = pairs.map(|(key, into)| GetInto::new(key, into.buffers())).collect();
            client.get_batch_into(&mut items)
        });
        let answer = |(answer, key): (Result<Option<usize>, _>, &Key)| match answer {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => Ok(Some(bytes.into_pyobject(py)?.into_any())),
            Err(error) => Ok(Some(errors::get(&error, key.as_ref()).into_value(py).into_any().into_bound(py))),
        };
        answers.into_iter().zip(&keys).map(answer).collect()
    }

    /// A block's bytes without a copy, or None if the pool does not hold it.
    ///
    /// >>> _ = pool.put("viewed", b"abc")
    /// >>> with pool.view("viewed") as view:
    /// ...     bytes(view), len(view)
    /// (b'abc', 3)
    #[pyo3(signature = (key, *, deadline = None))]
    fn view(&self, py: Python<'_>, key: Key, deadline: Option<Seconds>) -> PyResult<Option<View>> {
        let client = self.client(deadline)?;
        let view = py.detach(|| client.view(&key)).map_err(|error| errors::get(&error, key.as_ref()))?;
        Ok(view.map(View::new))
    }

    /// Whether the pool holds a block. Asking does not count as a use.
    ///
    /// >>> _ = pool.put("held", b"1")
    /// >>> pool.exists("held"), pool.exists("not held")
    /// (True, False)
    #[pyo3(signature = (key, *, deadline = None))]
    fn exists(&self, py: Python<'_>, key: Key, deadline: Option<Seconds>) -> PyResult<bool> {
        let client = self.client(deadline)?;
        let found =
            py.detach(|| client.exists(&[&key])).map_err(|error| errors::invalid(&error, Some(key.as_ref())))?;
        Ok(found.first().copied().unwrap_or(false))
    }

    /// Which of ``keys`` the pool holds, in order.
    #[pyo3(signature = (keys, *, deadline = None))]
    fn exists_many(&self, py: Python<'_>, keys: Keys, deadline: Option<Seconds>) -> PyResult<Vec<bool>> {
        let client = self.client(deadline)?;
        py.detach(|| client.exists(&keys)).map_err(|error| errors::invalid_among(&error, &keys))
    }

    /// For each chain of keys, the number of its first blocks that the pool can serve without a gap.
    ///
    /// >>> _ = pool.put_many({"chain/0": b"0", "chain/1": b"1"})
    /// >>> pool.match_prefix([["chain/0", "chain/1", "chain/2"], ["chain/0"]]).runs
    /// [2, 1]
    #[pyo3(signature = (chains, *, deadline = None))]
    fn match_prefix(&self, py: Python<'_>, chains: List<Keys>, deadline: Option<Seconds>) -> PyResult<Match> {
        let client = self.client(deadline)?;
        let matches = py.detach(|| client.match_prefix(&chains));
        matches.map(Match::from).map_err(|error| errors::invalid_among(&error, chains.iter().flatten()))
    }

    /// Removes a block from all nodes. The answer is true if any node had it.
    ///
    /// >>> _ = pool.put("removed", b"1")
    /// >>> bool(pool.remove("removed")), bool(pool.remove("removed"))
    /// (True, False)
    #[pyo3(signature = (key, *, deadline = None))]
    fn remove(&self, py: Python<'_>, key: Key, deadline: Option<Seconds>) -> PyResult<Removed> {
        let client = self.client(deadline)?;
        let removal = py.detach(|| client.remove(&key));
        removal.map(Removed::from).map_err(|error| errors::invalid(&error, Some(key.as_ref())))
    }

    /// Removes many blocks, with one answer each.
    #[pyo3(signature = (keys, *, deadline = None))]
    fn remove_many(&self, py: Python<'_>, keys: Keys, deadline: Option<Seconds>) -> PyResult<Vec<Removed>> {
        let client = self.client(deadline)?;
        let removals = py.detach(|| client.remove_batch(&keys));
        let removals = removals.map_err(|error| errors::invalid_among(&error, &keys))?;
        Ok(removals.into_iter().map(Removed::from).collect())
    }

    /// Removes every block in whose key the regular expression is found. An empty one is found in every key, and refused.
    #[pyo3(signature = (pattern, *, deadline = None))]
    fn remove_matching(&self, py: Python<'_>, pattern: &str, deadline: Option<Seconds>) -> PyResult<Removed> {
        let client = self.client(deadline)?;
        if pattern.is_empty() {
            let message = "an empty pattern is found in every key: remove_all() removes every block";
            return Err(raise("InvalidError", message.to_owned(), None));
        }
        let removals = py.detach(|| client.remove_matching(pattern));
        removals.map(Removed::from).map_err(|error| errors::node(&error, None))
    }

    /// Removes every block of the pool.
    #[pyo3(signature = (*, deadline = None))]
    fn remove_all(&self, py: Python<'_>, deadline: Option<Seconds>) -> PyResult<Removed> {
        let client = self.client(deadline)?;
        py.detach(|| client.remove_all()).map(Removed::from).map_err(|error| errors::node(&error, None))
    }

    /// The blocks in whose keys the regular expression is found, or all: a list of (key, size, names of nodes), each key once.
    #[pyo3(signature = (pattern = None, *, deadline = None))]
    fn list_blocks<'py>(
        &self,
        py: Python<'py>,
        pattern: Option<String>,
        deadline: Option<Seconds>,
    ) -> PyResult<Vec<ListedBlock<'py>>> {
        let client = self.client(deadline)?;
        let pattern = pattern.map_or(Pattern::All, Pattern::Regex);
        let entries = py.detach(|| list_noting(&client, &pattern, drop)).map_err(|error| errors::node(&error, None))?;
        Ok(entries.iter().map(|entry| listed(py, entry)).collect())
    }

    /// Every copy of a block that can be found. Looking does not count as a use.
    #[pyo3(signature = (key, *, deadline = None))]
    fn describe(&self, py: Python<'_>, key: Key, deadline: Option<Seconds>) -> PyResult<Vec<Copy>> {
        let client = self.client(deadline)?;
        let copies =
            py.detach(|| client.describe(&key)).map_err(|error| errors::invalid(&error, Some(key.as_ref())))?;
        Ok(copies.into_iter().map(Copy::from).collect())
    }

    /// Makes a node copy a block from a node that holds it.
    #[pyo3(signature = (key, node, *, deadline = None))]
    fn copy_to(&self, py: Python<'_>, key: Key, node: &str, deadline: Option<Seconds>) -> PyResult<()> {
        let (client, node) = (self.client(deadline)?, node_name(node)?);
        py.detach(|| client.copy_to(&key, &node)).map_err(|error| errors::node(&error, Some(key.as_ref())))
    }

    /// Makes a node copy a block, and then removes the original: the copy on ``source``, or any. Evicts nothing: where
    /// there is no room, :class:`NoSpaceError` is raised and the block stays in its place.
    #[pyo3(signature = (key, node, *, source = None, deadline = None))]
    fn move_to(
        &self,
        py: Python<'_>,
        key: Key,
        node: &str,
        source: Option<&str>,
        deadline: Option<Seconds>,
    ) -> PyResult<()> {
        let (client, node) = (self.client(deadline)?, node_name(node)?);
        let source = source.map(node_name).transpose()?;
        py.detach(|| client.move_to(&key, source.as_ref(), &node))
            .map_err(|error| errors::node(&error, Some(key.as_ref())))
    }

    /// Makes a node take no new blocks for ``seconds``, so that it can be emptied. A further call before then prolongs
    /// that; 0 ends it. Returns how many blocks are still on their way in.
    #[pyo3(signature = (node, seconds, *, deadline = None))]
    fn drain(
        &self,
        py: Python<'_>,
        node: &str,
        #[pyo3(from_py_with = real)] seconds: f64,
        deadline: Option<Seconds>,
    ) -> PyResult<u64> {
        let (client, node) = (self.client(deadline)?, node_name(node)?);
        let period = seconds_or_zero("seconds", seconds)?;
        py.detach(|| client.drain(&node, period)).map_err(|error| errors::node(&error, None))
    }

    /// The nodes of the pool.
    #[pyo3(signature = (*, deadline = None))]
    fn nodes(&self, py: Python<'_>, deadline: Option<Seconds>) -> PyResult<Vec<NodeInfo>> {
        let client = self.client(deadline)?;
        Ok(py.detach(|| client.members()).into_iter().map(NodeInfo::from).collect())
    }

    /// This connection's counters: hits, misses, bytes and so on.
    fn stats(&self) -> PyResult<HashMap<&'static str, u64>> {
        Ok(self.client(None)?.stats().named().into_iter().collect())
    }

    /// Ends the connection; calls under way finish. Using the pool afterwards raises :class:`ClosedError`.
    fn close(&self, py: Python<'_>) {
        let client = self.client.write().take();
        py.detach(|| drop(client));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(&self, py: Python<'_>, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _trace: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

/// All blocks that match, each key once. Calls `unanswered` with nodes whose blocks are missing.
pub(crate) fn list_noting(
    client: &Client,
    pattern: &Pattern,
    mut unanswered: impl FnMut(Vec<NodeName>),
) -> Result<Vec<tidepool_client::Listed>, tidepool_client::NodeError> {
    let mut entries: std::collections::BTreeMap<Vec<u8>, tidepool_client::Listed> = Default::default();
    let mut cursor = ListCursor::default();
    loop {
        let page = client.list(pattern, &cursor, LISTED_AT_ONCE)?;
        unanswered(page.unanswered);
        for entry in page.entries {
            entries.entry(entry.key.clone()).or_insert(entry);
        }
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(entries.into_values().collect()),
        }
    }
}

fn node_name(name: &str) -> PyResult<NodeName> {
    NodeName::new(name).map_err(|error| errors::invalid(&error, None))
}

/// The bytes from `start` on. A start at their end is valid too.
fn rest_from(mut bytes: Vec<u8>, start: u64) -> Result<Vec<u8>, GetError> {
    match usize::try_from(start) {
        Ok(start) if start <= bytes.len() => Ok(bytes.split_off(start)),
        _ => Err(GetError::BadRange { offset: start, len: 1, block: bytes.len() as u64 }),
    }
}

fn range_of(start: Option<u64>, stop: Option<u64>, key: &Key) -> PyResult<Option<std::ops::Range<u64>>> {
    match (start, stop) {
        (None, None) => Ok(None),
        (start, Some(stop)) => Ok(Some(start.unwrap_or(0)..stop)),
        (Some(start), None) => {
            let message = format!("start is {start} and stop is not given: a range into a buffer needs both");
            Err(raise("InvalidError", message, Some(key.as_ref())))
        }
    }
}
