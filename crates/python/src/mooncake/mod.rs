//! The base of `mooncake.store`: the calls whose speed matters, with that package's names, arguments and return codes.
//! The rest (set-up, configurations, sessions, tasks) is Python, in the `tidepool-mooncake` package.
//!
//! A store is a client of the pool and, when it brings memory, a node in the same process: a *segment* is a node.

mod codes;
mod handle;
mod leased;
mod number;
mod pieces;
mod registered;
mod removal;
mod terms;

pub(crate) use handle::BufferHandle;
pub(crate) use leased::LeasedBuffer;

use crate::arguments::seconds;
use crate::buffers::{Gathered, handed_over};
use crate::errors::{self, raise};
use crate::exit::{AtExit, close_at_exit};
use crate::fork::Local;
use crate::keys::{Key, Keys};
use crate::lists::List;
use crate::signals::{answers_within, interruptible};
use codes::{INVALID_PARAMS, OBJECT_NOT_FOUND, OK};
use number::Number;
use pieces::{get_item, pieces_of, put_item};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use registered::{Piece, Registered};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use terms::Terms;
use tidepool_client::catalogs::NodeState;
use tidepool_client::{Client, ClientConfig, GetError, NodeName, Pattern, PutError, PutItem};
use tidepool_locks::{Mutex, RwLock};
use tidepool_node::{Node, NodeConfig, StartError};
use tidepool_types::ByteSize;

/// The store, the base class of `mooncake.store.MooncakeDistributedStore`.
#[pyclass(module = "tidepool._native", name = "MooncakeStore", subclass, frozen)]
pub(crate) struct MooncakeStore {
    /// Never held while this thread releases or takes Python's lock: a thread that waits for this lock has Python's.
    connected: Arc<RwLock<Option<Local<Connected>>>>,
    registered: Registered,
}

impl AtExit for RwLock<Option<Local<Connected>>> {
    fn close(&self) {
        let connected = self.try_write().and_then(|mut connected| connected.take());
        drop(connected);
    }
}

/// A read of a block, or of a range of it, into pieces of the caller's memory.
type Read<'a> = (&'a Key, Option<Range<u64>>, &'a [Piece]);

struct Connected {
    client: Client,
    /// The memory that this process brings, if any.
    segment: Option<Node>,
    /// More memory, mounted later, by name.
    mounted: Arc<Mutex<HashMap<String, Node>>>,
    catalogs: Vec<String>,
}

/// A segment: memory that a process brings to the pool, as a node.
struct Segment<'a> {
    name: &'a str,
    dir: PathBuf,
    listen: String,
    advertise: Option<String>,
    bytes: u64,
    smallest_block: u64,
}

impl Segment<'_> {
    /// Starts the node. A name or an address in use is an `OSError` with `EADDRINUSE`.
    fn start(self, py: Python<'_>, catalogs: Vec<String>) -> PyResult<Node> {
        let config = NodeConfig {
            name: NodeName::new(self.name).map_err(|error| errors::invalid(&error, None))?,
            dir: self.dir,
            capacity: ByteSize(self.bytes),
            smallest_expected_block: ByteSize(self.smallest_block),
            data_listen: self.listen,
            data_advertise: self.advertise,
            catalogs,
            ..NodeConfig::small("segment")
        };
        let failed = |error: StartError| {
            let message = format!("segment {}: {error}", self.name);
            match error.is_taken() {
                true => PyOSError::new_err((libc::EADDRINUSE, message)),
                false => raise("TidepoolError", message, None),
            }
        };
        interruptible(py, |go_on| Node::start_while(config, go_on))?.map_err(failed)
    }
}

impl MooncakeStore {
    /// The client; `None` before set-up and after close, for which users get a code and no exception.
    fn client(&self) -> PyResult<Option<Client>> {
        self.take(|connected| connected.client.clone())
    }

    /// The result of `take` on the connection, if there is one. Makes errors without the lock, since that may release
    /// Python's.
    fn take<T>(&self, take: impl FnOnce(&Connected) -> T) -> PyResult<Option<T>> {
        let taken = {
            let connected = self.connected.read();
            connected.as_ref().map(|connected| connected.here().map(take))
        };
        taken.map(|taken| taken.ok_or_else(errors::forked)).transpose()
    }

    /// Reads blocks into pieces of registered memory. Returns one code each: the bytes read, or the failure.
    fn read<P: AsRef<[Piece]> + Sync>(&self, py: Python<'_>, keys: &[Key], pieces: &[P]) -> PyResult<Vec<i64>> {
        let Some(client) = self.client()? else { return Ok(vec![INVALID_PARAMS; keys.len()]) };
        if keys.len() != pieces.len() {
            return Ok(vec![INVALID_PARAMS; keys.len()]);
        }
        let reads = keys.iter().zip(pieces).map(|(key, pieces)| (key, None, pieces.as_ref())).collect();
        let held = self.registered.hold_each(pieces.iter().map(AsRef::as_ref));
        Ok(self.read_held(py, &client, reads, &held))
    }

    /// Reads those of `reads` whose pieces are all `held` by registered memory, and refuses the others.
    fn read_held(&self, py: Python<'_>, client: &Client, reads: Vec<Read<'_>>, held: &[bool]) -> Vec<i64> {
        let keys: Vec<&Key> = reads.iter().map(|(key, ..)| *key).collect();
        let read = || {
            let held = reads.into_iter().zip(held).filter(|(_, held)| **held);
            let mut items: Vec<_> = held.map(|((key, range, pieces), _)| get_item(key, range, pieces)).collect();
            client.get_batch_into(&mut items)
        };
        let mut answers = py.detach(read).into_iter();
        let mut code = |(key, held): (&Key, &bool)| match held.then(|| answers.next()).flatten() {
            Some(answer) => read_code(answer, key),
            None => INVALID_PARAMS,
        };
        keys.into_iter().zip(held).map(&mut code).collect()
    }

    /// Blocks to put. A block with a piece outside registered memory gets no bytes, and is refused for that.
    fn put_items<'a, P: AsRef<[Piece]>>(&self, keys: &'a [Key], pieces: &'a [P]) -> Vec<PutItem<'a>> {
        let held = self.registered.hold_each(pieces.iter().map(AsRef::as_ref));
        let item =
            |((key, pieces), held): ((&'a Key, &'a P), bool)| put_item(key, if held { pieces.as_ref() } else { &[] });
        keys.iter().zip(pieces).zip(held).map(item).collect()
    }

    /// Adds a segment to those `mounted`. Returns it if the connection was closed meanwhile.
    fn keep(&self, name: &str, node: Node, mounted: &Arc<Mutex<HashMap<String, Node>>>) -> Option<Node> {
        let connected = self.connected.read();
        let now = connected.as_ref().and_then(Local::here);
        if !now.is_some_and(|now| Arc::ptr_eq(&now.mounted, mounted)) {
            return Some(node);
        }
        mounted.lock().insert(name.to_owned(), node);
        None
    }

    /// Stores blocks, with one code each.
    fn store(&self, py: Python<'_>, items: &[PutItem<'_>], terms: Terms) -> PyResult<Vec<i64>> {
        let Some(client) = self.client()? else { return Ok(vec![INVALID_PARAMS; items.len()]) };
        let (is_upsert, options) = (terms.is_upsert(), terms.options());
        let stored: Vec<Result<(), PutError>> = py.detach(|| match is_upsert {
            true => client.upsert_batch(items, &options).into_iter().map(|stored| stored.map(drop)).collect(),
            false => client.put_batch(items, &options).into_iter().map(|stored| stored.map(drop)).collect(),
        });
        let code = |(stored, item): (Result<(), PutError>, &PutItem<'_>)| match stored {
            Ok(_) => OK,
            Err(error) => codes::of_put(&error, item.key),
        };
        Ok(stored.into_iter().zip(items).map(code).collect())
    }
}

#[pymethods]
impl MooncakeStore {
    /// Accepts the arguments of any subclass.
    #[new]
    #[pyo3(signature = (*_arguments, **_settings))]
    fn new(_arguments: &Bound<'_, PyAny>, _settings: Option<&Bound<'_, PyAny>>) -> Self {
        let connected = Arc::new(RwLock::new(None));
        close_at_exit(&connected);
        Self { connected, registered: Registered::default() }
    }

    /// Connects to `catalogs` and brings a segment of `segment_bytes`, if that is not zero. Returns a message on
    /// failure.
    #[expect(clippy::too_many_arguments, reason = "called by one place, by name")]
    #[pyo3(signature = (*, name, catalogs, dir, listen, advertise, segment_bytes, smallest_block, local, tcp_streams, deadline, wait))]
    fn _connect(
        &self,
        py: Python<'_>,
        name: &str,
        catalogs: List<String>,
        dir: PathBuf,
        listen: String,
        advertise: Option<String>,
        segment_bytes: u64,
        smallest_block: u64,
        local: bool,
        tcp_streams: usize,
        deadline: f64,
        wait: f64,
    ) -> PyResult<()> {
        let catalogs = Vec::from(catalogs);
        let place = catalogs.join(", ");
        let (deadline, wait) = (seconds("deadline", deadline)?, seconds("wait", wait)?);
        let config = ClientConfig {
            catalogs: catalogs.clone(),
            dir: dir.clone(),
            deadline,
            local,
            tcp_streams,
            leases: true,
            ..ClientConfig::default()
        };
        let client = py.detach(|| Client::connect(config)).map_err(|error| errors::connect(&error))?;
        if !answers_within(py, &client, wait, Client::catalog_answers)? {
            py.detach(|| drop(client));
            return Err(raise("UnreachableError", format!("no master answered within {wait:?} at {place}"), None));
        }
        let segment = match segment_bytes {
            0 => None,
            bytes => {
                let segment = Segment { name, dir, listen, advertise, bytes, smallest_block };
                Some(segment.start(py, catalogs.clone())?)
            }
        };
        if segment.is_some() {
            // The segment has just come: the client should know it before the first put.
            py.detach(|| client.members());
        }
        let connected = Local::new(Connected { client, segment, mounted: Arc::default(), catalogs });
        let old = self.connected.write().replace(connected);
        py.detach(|| drop(old));
        Ok(())
    }

    /// Brings a further segment.
    #[expect(clippy::too_many_arguments, reason = "called by one place, by name")]
    #[pyo3(signature = (*, name, dir, listen, advertise, segment_bytes, smallest_block))]
    fn _mount(
        &self,
        py: Python<'_>,
        name: &str,
        dir: PathBuf,
        listen: String,
        advertise: Option<String>,
        segment_bytes: u64,
        smallest_block: u64,
    ) -> PyResult<()> {
        let taken = self.take(|now| (now.client.clone(), now.catalogs.clone(), Arc::clone(&now.mounted)))?;
        let (client, catalogs, mounted) = taken.ok_or_else(errors::closed)?;
        let segment = Segment { name, dir, listen, advertise, bytes: segment_bytes, smallest_block };
        let node = segment.start(py, catalogs)?;
        if let Some(late) = self.keep(name, node, &mounted) {
            py.detach(|| drop(late));
            return Err(errors::closed());
        }
        // From here on a close ends the segment.
        drop(mounted);
        py.detach(|| client.members());
        Ok(())
    }

    /// Ends a segment that `_mount` brought, and its blocks. False when there is none of that name.
    fn _unmount(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let node = self.take(|now| now.mounted.lock().remove(name))?.flatten();
        let found = node.is_some();
        py.detach(|| drop(node));
        Ok(found)
    }

    /// The address of this process's segment for other hosts; None without a segment.
    fn _segment_address(&self) -> PyResult<Option<String>> {
        Ok(self.take(|now| now.segment.as_ref().map(|node| node.data_address().to_string()))?.flatten())
    }

    /// Whether the store is set up and not closed since.
    fn _is_set_up(&self) -> bool {
        self.connected.read().is_some()
    }

    fn _master_answers(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(client) = self.client()? else { return Ok(false) };
        Ok(py.detach(|| client.catalog_answers()))
    }

    /// Ends the connection, and with it the segment and its blocks.
    fn close(&self, py: Python<'_>) -> i64 {
        let connected = self.connected.write().take();
        self.registered.clear();
        py.detach(|| drop(connected));
        OK
    }

    fn register_buffer(&self, buffer_ptr: Number, size: Number) -> i64 {
        if self.registered.add(buffer_ptr.0, size.0) { OK } else { INVALID_PARAMS }
    }

    /// The bytes of keys: text and its UTF-8 bytes are the same key.
    #[staticmethod]
    fn _names<'py>(py: Python<'py>, keys: Keys) -> Vec<Bound<'py, PyBytes>> {
        keys.iter().map(|key| PyBytes::new(py, key.as_ref())).collect()
    }

    /// Lists of addresses or sizes, as lists of ints.
    #[staticmethod]
    fn _numbers(numbers: List<List<Number>>) -> Vec<Vec<usize>> {
        numbers.iter().map(|numbers| numbers.iter().map(|number| number.0).collect()).collect()
    }

    /// Whether each piece lies in registered memory.
    fn _are_registered(&self, buffer_ptrs: List<Number>, sizes: List<Number>) -> bool {
        let pieces: Vec<_> = buffer_ptrs.iter().zip(sizes.iter()).map(|(at, len)| Piece::new(*at, *len)).collect();
        buffer_ptrs.len() == sizes.len() && self.registered.hold(&pieces)
    }

    fn unregister_buffer(&self, buffer_ptr: Number) -> i64 {
        if self.registered.remove(buffer_ptr.0) { OK } else { INVALID_PARAMS }
    }

    fn get_into(&self, py: Python<'_>, key: Key, buffer_ptr: Number, size: Number) -> PyResult<i64> {
        Ok(self.read(py, &[key], &[[Piece::new(buffer_ptr, size)]])?[0])
    }

    fn batch_get_into(
        &self,
        py: Python<'_>,
        keys: Keys,
        buffer_ptrs: List<Number>,
        sizes: List<Number>,
    ) -> PyResult<Vec<i64>> {
        if buffer_ptrs.len() != sizes.len() {
            return Ok(vec![INVALID_PARAMS; keys.len()]);
        }
        let pieces: Vec<_> = buffer_ptrs.into_iter().zip(sizes).map(|(at, len)| [Piece::new(at, len)]).collect();
        self.read(py, &keys, &pieces)
    }

    #[pyo3(signature = (keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node = None))]
    fn batch_get_into_multi_buffers(
        &self,
        py: Python<'_>,
        keys: Keys,
        all_buffer_ptrs: List<List<Number>>,
        all_sizes: List<List<Number>>,
        prefer_alloc_in_same_node: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<i64>> {
        // That is about Mooncake's staging buffers for reads; this store has none.
        let _ = prefer_alloc_in_same_node;
        match pieces_of(&all_buffer_ptrs, &all_sizes) {
            Some(pieces) => self.read(py, &keys, &pieces),
            None => Ok(vec![INVALID_PARAMS; keys.len()]),
        }
    }

    /// Reads ranges of blocks: each (key, buffer, offset in it, offset in the block, length).
    fn _get_ranges(&self, py: Python<'_>, ranges: List<(Key, Number, Number, Number, Number)>) -> PyResult<Vec<i64>> {
        let Some(client) = self.client()? else { return Ok(vec![INVALID_PARAMS; ranges.len()]) };
        // From the buffer's start to the end of the range: a range that reaches into another buffer leaves its own.
        let reach = |(_, buffer, to, _, len): &(_, Number, Number, _, Number)| Piece {
            address: buffer.0,
            len: to.0.saturating_add(len.0),
        };
        let reaches: Vec<[Piece; 1]> = ranges.iter().map(|range| [reach(range)]).collect();
        let held = self.registered.hold_each(reaches.iter().map(<[Piece; 1]>::as_slice));
        let place = |(_, buffer, to, _, len): &(_, Number, Number, _, Number)| Piece {
            address: buffer.0.saturating_add(to.0),
            len: len.0,
        };
        let pieces: Vec<Piece> = ranges.iter().map(place).collect();
        let mut reads = Vec::with_capacity(ranges.len());
        for ((key, _, _, from, len), piece) in ranges.iter().zip(&pieces) {
            let range = from.0 as u64..from.0.saturating_add(len.0) as u64;
            reads.push((key, Some(range), std::slice::from_ref(piece)));
        }
        Ok(self.read_held(py, &client, reads, &held))
    }

    /// Stores blocks that lie in buffers of the caller's: bytes, arrays, lists of them. Gaps are left out.
    fn _put(&self, py: Python<'_>, keys: Keys, values: List<Gathered>, terms: Terms) -> PyResult<Vec<i64>> {
        if keys.len() != values.len() {
            return Ok(vec![INVALID_PARAMS; keys.len()]);
        }
        let items: Vec<_> =
            keys.iter().zip(values.iter()).map(|(key, value)| PutItem::new(key, value.parts())).collect();
        self.store(py, &items, terms)
    }

    /// Stores blocks that lie at addresses in registered memory, each in one piece or several.
    fn _put_from(
        &self,
        py: Python<'_>,
        keys: Keys,
        all_buffer_ptrs: List<List<Number>>,
        all_sizes: List<List<Number>>,
        terms: Terms,
    ) -> PyResult<Vec<i64>> {
        let pieces = pieces_of(&all_buffer_ptrs, &all_sizes).filter(|all| all.len() == keys.len());
        let Some(pieces) = pieces else { return Ok(vec![INVALID_PARAMS; keys.len()]) };
        self.store(py, &self.put_items(&keys, &pieces), terms)
    }

    /// As `_put_from`, each block in one piece.
    fn _put_from_one(
        &self,
        py: Python<'_>,
        keys: Keys,
        buffer_ptrs: List<Number>,
        sizes: List<Number>,
        terms: Terms,
    ) -> PyResult<Vec<i64>> {
        let wrong = buffer_ptrs.len() != sizes.len() || buffer_ptrs.len() != keys.len();
        let pieces: Vec<_> = buffer_ptrs.into_iter().zip(sizes).map(|(at, len)| [Piece::new(at, len)]).collect();
        if wrong {
            return Ok(vec![INVALID_PARAMS; keys.len()]);
        }
        self.store(py, &self.put_items(&keys, &pieces), terms)
    }

    /// A block's bytes; empty on any failure.
    fn get<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyBytes>> {
        Ok(self.get_batch(py, key.into())?.swap_remove(0))
    }

    fn get_batch<'py>(&self, py: Python<'py>, keys: Keys) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let Some(client) = self.client()? else { return Ok(vec![PyBytes::new(py, b""); keys.len()]) };
        let answers = py.detach(|| client.get_batch(&keys));
        let bytes =
            |answer: Result<Option<Vec<u8>>, GetError>| handed_over(py, answer.ok().flatten().unwrap_or_default());
        answers.into_iter().map(bytes).collect()
    }

    /// A block's bytes without a copy; None on any failure.
    fn get_buffer(&self, py: Python<'_>, key: Key) -> PyResult<Option<BufferHandle>> {
        Ok(self.batch_get_buffer(py, key.into())?.swap_remove(0))
    }

    fn batch_get_buffer(&self, py: Python<'_>, keys: Keys) -> PyResult<Vec<Option<BufferHandle>>> {
        let Some(client) = self.client()? else { return Ok(keys.iter().map(|_| None).collect()) };
        let views = py.detach(|| client.view_batch(&keys));
        Ok(views.into_iter().map(|view| view.ok().flatten().map(BufferHandle::new)).collect())
    }

    fn is_exist(&self, py: Python<'_>, key: Key) -> PyResult<i64> {
        Ok(self.batch_is_exist(py, key.into())?[0])
    }

    fn batch_is_exist(&self, py: Python<'_>, keys: Keys) -> PyResult<Vec<i64>> {
        let Some(client) = self.client()? else { return Ok(vec![INVALID_PARAMS; keys.len()]) };
        let one = |key: &Key| client.exists(&[key]).map_or(0, |found| i64::from(found[0]));
        Ok(py.detach(|| match client.exists(&keys) {
            Ok(found) => found.into_iter().map(i64::from).collect(),
            // An invalid key is not there; the other keys still get their answers.
            Err(_) => keys.iter().map(one).collect(),
        }))
    }

    fn get_size(&self, py: Python<'_>, key: Key) -> PyResult<i64> {
        let Some(client) = self.client()? else { return Ok(INVALID_PARAMS) };
        Ok(match py.detach(|| client.describe(&key)) {
            Ok(copies) => copies.first().map_or(OBJECT_NOT_FOUND, |copy| copy.len as i64),
            Err(_) => codes::of_key(key.as_ref()),
        })
    }

    /// The copies of each block: node, size and address; no entry for a block that is not there.
    fn _describe(&self, py: Python<'_>, keys: Keys) -> PyResult<Vec<Vec<(String, u64, String)>>> {
        let Some(client) = self.client()? else { return Ok(keys.iter().map(|_| Vec::new()).collect()) };
        Ok(py.detach(|| {
            let members = client.members();
            let address = |name: &NodeName| {
                let member = members.iter().find(|member| member.name == *name);
                member.and_then(|member| member.data_address.clone()).unwrap_or_default()
            };
            let copies = |key: &Key| {
                let copies = client.describe(key).unwrap_or_default();
                copies.into_iter().map(|copy| (copy.node.to_string(), copy.len, address(&copy.node))).collect()
            };
            keys.iter().map(copies).collect()
        }))
    }

    /// Removes blocks, with one code each; leased ones only by force.
    fn _remove(&self, py: Python<'_>, keys: Keys, force: bool) -> PyResult<Vec<i64>> {
        let Some(client) = self.client()? else { return Ok(vec![INVALID_PARAMS; keys.len()]) };
        Ok(py.detach(|| removal::remove(&client, &keys, force)))
    }

    /// Clears the replicas of this client's own blocks, on one segment or all. True for each that is gone.
    fn _clear_replicas(&self, py: Python<'_>, keys: Keys, segment: Option<&str>) -> PyResult<Vec<bool>> {
        let none = vec![false; keys.len()];
        let Some(client) = self.client()? else { return Ok(none) };
        let Ok(segment) = segment.map(NodeName::new).transpose() else { return Ok(none) };
        Ok(py.detach(|| client.clear_replicas(&keys, segment.as_ref())).unwrap_or(none))
    }

    /// Removes the blocks whose keys match a regular expression, or all. Returns their number, or a code. An invalid
    /// expression raises an exception with the reason.
    fn _remove_matching(&self, py: Python<'_>, pattern: Option<String>, force: bool) -> PyResult<i64> {
        let Some(client) = self.client()? else { return Ok(INVALID_PARAMS) };
        let pattern = pattern.map_or(Pattern::All, Pattern::Regex);
        let removed = py.detach(|| removal::remove_matching(&client, &pattern, force));
        removed.map_err(|error| errors::node(&error, None))
    }

    /// The segments of the living nodes, each with its bytes for blocks.
    fn _segments(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let Some(client) = self.client()? else { return Ok(Vec::new()) };
        let mut members = py.detach(|| client.members());
        members.retain(|member| member.state == Some(NodeState::Alive));
        Ok(members.into_iter().map(|member| (member.name.to_string(), member.capacity_bytes)).collect())
    }

    /// The segments that hold a block; asking leases nothing.
    fn _holders(&self, py: Python<'_>, key: Key) -> PyResult<Vec<String>> {
        let Some(client) = self.client()? else { return Ok(Vec::new()) };
        let holders = py.detach(|| client.holders(&key)).unwrap_or_default();
        Ok(holders.iter().map(ToString::to_string).collect())
    }

    /// Makes a segment copy a block, or take it over from `source`. Returns zero, or a code.
    #[pyo3(signature = (key, target, source = None))]
    fn _copy(&self, py: Python<'_>, key: Key, target: &str, source: Option<&str>) -> PyResult<i64> {
        let Some(client) = self.client()? else { return Ok(INVALID_PARAMS) };
        let Ok(target) = NodeName::new(target) else { return Ok(codes::SEGMENT_NOT_FOUND) };
        let Ok(source) = source.map(NodeName::new).transpose() else { return Ok(codes::SEGMENT_NOT_FOUND) };
        let done = py.detach(|| match &source {
            Some(source) => client.move_to(&key, Some(source), &target),
            None => client.copy_to(&key, &target),
        });
        Ok(done.map_or_else(|error| codes::of_node(&error), |()| OK))
    }
}

fn read_code(answer: Result<Option<usize>, GetError>, key: &Key) -> i64 {
    match answer {
        Ok(Some(bytes)) => bytes as i64,
        Ok(None) => OBJECT_NOT_FOUND,
        Err(error) => codes::of_get(&error, key.as_ref()),
    }
}
