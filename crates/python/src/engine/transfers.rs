//! Saves and loads of an engine's blocks, for a worker.

use super::{Open, invalid};
use crate::arguments::seconds;
use crate::errors::raise;
use crate::lists::List;
use crate::pool::Pool;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::collections::HashMap;
use std::sync::Arc;
use tidepool_client::door::{Door, DoorError};
use tidepool_client::{Millis, Origin, PinnedForDevice, SessionId, ToolId};
use tidepool_cuda::Gpu;
use tidepool_engine::{
    DeviceMover, Direction, Hashes, HostMover, Job, KeyPrefix, Layout, Mover, Part, Piece, TransferConfig, Transfers,
};
use tidepool_locks::Mutex;

/// A part of a job: KV group, key prefix, bytes in a hash, hashes end to end, block numbers as 32-bit integers end to end, and how
/// many of the group's blocks come before the first.
type PackedPart = (usize, String, usize, PyBackedBytes, PyBackedBytes, u32);
/// The request of a job: session, parent, turn, milliseconds of pause, tool, and whether it is the session's last.
type PackedOrigin = (u64, Option<u64>, u32, u64, Option<u32>, bool);
/// A job that has ended: its id, whether it was a load, and the (group, number) of each block that was not moved.
type Over = (u64, bool, Vec<(usize, u32)>);

/// Moves blocks between an engine's memory and a pool, on threads of its own.
///
/// ``layout`` has for each KV group the (address in block 0, bytes from block to block, bytes) of each piece of a
/// block. ``memory`` is the owner of that memory, kept alive until :meth:`close`. With a ``device`` the addresses are
/// those of that GPU's memory, and the GPU's driver moves the blocks. A node of this host copies up to ``replica_rate``
/// bytes a second of the blocks loaded from other hosts.
#[pyclass(module = "tidepool._native", frozen)]
pub(crate) struct BlockTransfers {
    open: Open<Moves>,
    memory: Mutex<Option<Py<PyAny>>>,
    groups: usize,
    blocks: u32,
}

#[pymethods]
impl BlockTransfers {
    #[new]
    #[pyo3(signature = (pool, layout, blocks, memory, *, load_threads = 2, save_threads = 2, load_deadline = 5.0, save_deadline = 2.0, replicas = 1, replica_rate = 0, device = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python call")]
    fn new(
        py: Python<'_>,
        pool: &Pool,
        layout: List<List<(usize, usize, usize)>>,
        blocks: u32,
        memory: Py<PyAny>,
        load_threads: usize,
        save_threads: usize,
        load_deadline: f64,
        save_deadline: f64,
        replicas: u32,
        replica_rate: u64,
        device: Option<u32>,
    ) -> PyResult<Self> {
        super::warnings::keep();
        for (name, threads) in [("load_threads", load_threads), ("save_threads", save_threads)] {
            if !(1..=64).contains(&threads) {
                return Err(invalid(format!("{name} is {threads}: allowed are 1 to 64")));
            }
        }
        if replicas == 0 {
            return Err(invalid("replicas is 0: allowed is 1 or more".to_owned()));
        }
        let piece = |(base, stride, len)| Piece { base, stride, len };
        let groups: Vec<Vec<Piece>> =
            layout.into_iter().map(|pieces| pieces.into_iter().map(piece).collect()).collect();
        let count = groups.len();
        let layout = Layout::new(groups, blocks).map_err(|error| invalid(error.to_string()))?;
        let config = TransferConfig {
            load_threads,
            save_threads,
            load_deadline: seconds("load_deadline", load_deadline)?,
            save_deadline: seconds("save_deadline", save_deadline)?,
            replicas,
            replica_rate,
            ..TransferConfig::default()
        };
        let client = pool.client(None)?;
        let (mover, gpu) = py.detach(|| mover(layout, device))?;
        let transfers = py.detach(|| Transfers::start(&client, mover, config));
        let transfers =
            transfers.map_err(|error| raise("TidepoolError", format!("transfer threads: {error}"), None))?;
        // Last, so that a refusal leaves no memory pinned.
        let pin = |gpu: &Arc<Gpu>| client.pin_for_device(&(Arc::clone(gpu) as Arc<dyn Door>));
        let pinned = py.detach(|| gpu.as_ref().map(pin));
        let open = Open::new(Moves { transfers, gpu, _pinned: pinned });
        Ok(Self { open, memory: Mutex::new(Some(memory)), groups: count, blocks })
    }

    /// Begins to load blocks, for the request ``origin``. :meth:`poll` reports the job after its last use of the blocks. On a GPU
    /// the job begins ``after`` all work that this stream of the driver has so far.
    #[pyo3(signature = (id, parts, *, origin = None, after = None))]
    fn load(
        &self,
        py: Python<'_>,
        id: u64,
        parts: List<PackedPart>,
        origin: Option<PackedOrigin>,
        after: Option<u64>,
    ) -> PyResult<()> {
        self.submit(py, (Direction::Load, id, origin), &parts, (0, 1), after)
    }

    /// Begins to save blocks, of the request ``origin``. With a ``stripe`` of (index, of) saves only every ``of``-th block, from ``index`` on:
    /// ranks with the same bytes share the work. On a GPU the job begins ``after`` all work that this stream has so
    /// far.
    #[pyo3(signature = (id, parts, *, stripe = None, origin = None, after = None))]
    fn save(
        &self,
        py: Python<'_>,
        id: u64,
        parts: List<PackedPart>,
        stripe: Option<(usize, usize)>,
        origin: Option<PackedOrigin>,
        after: Option<u64>,
    ) -> PyResult<()> {
        self.submit(py, (Direction::Save, id, origin), &parts, stripe.unwrap_or((0, 1)), after)
    }

    /// The jobs that ended since the last call: id, whether it was a load, and the (group, number) of each block that
    /// was not moved.
    fn poll(&self) -> PyResult<Vec<Over>> {
        let finished = self.open.with(|moves| moves.transfers.poll())?;
        Ok(finished.into_iter().map(|job| (job.id, job.direction == Direction::Load, job.failed)).collect())
    }

    /// Counters since the start.
    fn stats(&self) -> PyResult<HashMap<&'static str, u64>> {
        Ok(self.open.with(|moves| moves.transfers.stats())?.named().into_iter().collect())
    }

    /// Warnings of the threads since the last call, from all pools of this process.
    #[staticmethod]
    fn warnings() -> Vec<String> {
        super::warnings::take()
    }

    /// Ends the threads and releases the engine's memory. Gives up jobs that have not begun. Waits for a batch under
    /// way, at most until its deadline.
    fn close(&self, py: Python<'_>) {
        let open = self.open.take();
        py.detach(|| drop(open));
        let memory = self.memory.lock().take();
        drop(memory);
    }
}

/// The parts that are open until closed.
struct Moves {
    // Dropped first: its threads use the GPU.
    transfers: Transfers,
    gpu: Option<Arc<Gpu>>,
    // Dropped last, when no copy uses it.
    _pinned: Option<PinnedForDevice>,
}

impl Moves {
    fn submit(&self, direction: Direction, job: Job, after: Option<u64>) {
        let moment = after.zip(self.gpu.as_ref()).map(|(stream, gpu)| gpu.moment(stream)).transpose();
        match moment {
            Ok(moment) => self.transfers.submit_after(direction, job, moment),
            // Without the moment the job cannot begin.
            Err(error) => self.transfers.give_up(direction, job, &error.to_string()),
        }
    }
}

/// A mover, and its GPU if it has one.
type Means = (Box<dyn Mover>, Option<Arc<Gpu>>);

/// The mover for the blocks of a layout: by the processor, or by a GPU.
fn mover(layout: Layout, device: Option<u32>) -> PyResult<Means> {
    // SAFETY (both): the connector describes tensors of this process, which `memory` keeps in place until the threads have
    // ended, and the engine leaves a block alone while a job has it.
    let Some(device) = device else {
        // SAFETY: see above.
        return Ok((Box::new(unsafe { HostMover::new(layout) }), None));
    };
    let unusable = |error: DoorError| raise("TidepoolError", format!("GPU {device} cannot be used: {error}"), None);
    let gpu = Arc::new(tidepool_cuda::open(device).map_err(unusable)?);
    // SAFETY: see above.
    let mover = unsafe { DeviceMover::new(layout, Arc::clone(&gpu) as Arc<dyn Door>) };
    Ok((Box::new(mover.map_err(|error| invalid(error.to_string()))?), Some(gpu)))
}

impl BlockTransfers {
    fn submit(
        &self,
        py: Python<'_>,
        (direction, id, origin): (Direction, u64, Option<PackedOrigin>),
        parts: &[PackedPart],
        stripe: (usize, usize),
        after: Option<u64>,
    ) -> PyResult<()> {
        let parts = parts.iter().map(|part| self.unpacked(part, stripe)).collect::<PyResult<_>>()?;
        let job = Job { id, parts, origin: origin.map(origin_of) };
        py.detach(|| self.open.with(|moves| moves.submit(direction, job, after)))
    }

    fn unpacked(&self, part: &PackedPart, (index, of): (usize, usize)) -> PyResult<Part> {
        let (group, prefix, width, hashes, blocks, depth) = part;
        let numbers = blocks.chunks_exact(4).map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let all = Hashes::new(hashes.to_vec(), *width).filter(|all| all.len() * 4 == blocks.len());
        let all = all.ok_or_else(|| invalid("hashes and block numbers do not pair".to_owned()))?;
        if *group >= self.groups || of == 0 || numbers.clone().any(|block| block >= self.blocks) {
            return Err(invalid(format!("group {group}: there are {} of {} blocks", self.groups, self.blocks)));
        }
        let mine = |place: &usize| place % of == index;
        let bytes =
            all.every(1).enumerate().filter(|(place, _)| mine(place)).flat_map(|(_, hash)| hash.iter().copied());
        let hashes = Hashes::new(bytes.collect(), *width).unwrap_or_default();
        let blocks = numbers.enumerate().filter(|(place, _)| mine(place)).map(|(_, block)| block).collect();
        let (depth, step) = (depth.saturating_add(index as u32), of as u32);
        Ok(Part { group: *group, prefix: KeyPrefix::new(prefix.clone()), hashes, blocks, depth, step })
    }
}

fn origin_of((session, parent, turn, pause, tool, last): PackedOrigin) -> Origin {
    let (session, parent, calls) = (SessionId(session), parent.map(SessionId), tool.map(ToolId));
    Origin { session, parent, turn, pause: Millis(pause), calls, last }
}
