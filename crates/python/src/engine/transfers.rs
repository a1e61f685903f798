//! Saves and loads of an engine's blocks, for a worker.

use super::{Open, invalid};
use crate::embed::seconds;
use crate::errors::raise;
use crate::pool::Pool;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::collections::HashMap;
use tidepool_engine::{Direction, Hashes, HostMover, Job, KeyPrefix, Layout, Part, Piece, TransferConfig, Transfers};

/// A part of a job: KV group, key prefix, bytes in a hash, hashes end to end, block numbers as 32-bit integers end to end.
type PackedPart = (usize, String, usize, PyBackedBytes, PyBackedBytes);
/// A job that is over: its id, whether it was a load, and the (group, number) of each block that was not moved.
type Over = (u64, bool, Vec<(usize, u32)>);

/// Moves blocks between an engine's memory and a pool, on threads of its own.
///
/// ``layout`` has for each KV group the (address in block 0, bytes from block to block, bytes) of each piece of a block;
/// ``memory`` is kept alive until :meth:`close`: whatever owns that memory.
#[pyclass(module = "tidepool._native", frozen)]
pub(crate) struct BlockTransfers {
    open: Open<Transfers>,
    memory: std::sync::Mutex<Option<Py<PyAny>>>,
    groups: usize,
    blocks: u32,
}

#[pymethods]
impl BlockTransfers {
    #[new]
    #[pyo3(signature = (pool, layout, blocks, memory, *, load_threads = 2, save_threads = 2, load_deadline = 5.0, save_deadline = 2.0, replicas = 1))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python call")]
    fn new(
        py: Python<'_>,
        pool: &Pool,
        layout: Vec<Vec<(usize, usize, usize)>>,
        blocks: u32,
        memory: Py<PyAny>,
        load_threads: usize,
        save_threads: usize,
        load_deadline: f64,
        save_deadline: f64,
        replicas: u32,
    ) -> PyResult<Self> {
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
        // SAFETY: the connector describes tensors of this process, which `memory` keeps in place until the threads have ended,
        // and the engine leaves a block alone while a job has it.
        let layout = unsafe { Layout::new(groups, blocks) }.map_err(|error| invalid(error.to_string()))?;
        let config = TransferConfig {
            load_threads,
            save_threads,
            load_deadline: seconds("load_deadline", load_deadline)?,
            save_deadline: seconds("save_deadline", save_deadline)?,
            replicas,
            ..TransferConfig::default()
        };
        let client = pool.client(None)?;
        let transfers = py.detach(|| Transfers::start(&client, Box::new(HostMover::new(layout)), config));
        let transfers =
            transfers.map_err(|error| raise("TidepoolError", format!("transfer threads: {error}"), None))?;
        Ok(Self { open: Open::new(transfers), memory: std::sync::Mutex::new(Some(memory)), groups: count, blocks })
    }

    /// Begins to load blocks. The job is reported by :meth:`poll` once nothing touches its blocks any more.
    fn load(&self, py: Python<'_>, id: u64, parts: Vec<PackedPart>) -> PyResult<()> {
        self.submit(py, Direction::Load, id, &parts, (0, 1))
    }

    /// Begins to save blocks. With a ``stripe`` of (index, of) only every ``of``-th block is saved, from ``index`` on: ranks that
    /// hold the same bytes share the work.
    #[pyo3(signature = (id, parts, *, stripe = None))]
    fn save(&self, py: Python<'_>, id: u64, parts: Vec<PackedPart>, stripe: Option<(usize, usize)>) -> PyResult<()> {
        self.submit(py, Direction::Save, id, &parts, stripe.unwrap_or((0, 1)))
    }

    /// The jobs that are over since the last call: their id, whether it was a load, and the (group, number) of each block that
    /// was not moved.
    fn poll(&self) -> PyResult<Vec<Over>> {
        let finished = self.open.with(Transfers::poll)?;
        Ok(finished.into_iter().map(|job| (job.id, job.direction == Direction::Load, job.failed)).collect())
    }

    /// What was counted since the start.
    fn stats(&self) -> PyResult<HashMap<&'static str, u64>> {
        Ok(self.open.with(Transfers::stats)?.named().into_iter().collect())
    }

    /// Ends the threads and lets go of the engine's memory. Jobs that have not begun are given up; a batch under way is waited
    /// for, no longer than its deadline.
    fn close(&self, py: Python<'_>) {
        let open = self.open.take();
        py.detach(|| drop(open));
        let memory = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        drop(memory);
    }
}

impl BlockTransfers {
    fn submit(
        &self,
        py: Python<'_>,
        direction: Direction,
        id: u64,
        parts: &[PackedPart],
        stripe: (usize, usize),
    ) -> PyResult<()> {
        let parts = parts.iter().map(|part| self.unpacked(part, stripe)).collect::<PyResult<_>>()?;
        py.detach(|| self.open.with(|transfers| transfers.submit(direction, Job { id, parts })))
    }

    fn unpacked(&self, part: &PackedPart, (index, of): (usize, usize)) -> PyResult<Part> {
        let (group, prefix, width, hashes, blocks) = part;
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
        Ok(Part { group: *group, prefix: KeyPrefix::new(prefix.clone()), hashes, blocks })
    }
}
