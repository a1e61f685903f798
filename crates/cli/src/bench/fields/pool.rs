//! A pool for one comparison: servers in processes of their own, in a directory that is removed with them.

use crate::bench::side::Side;
use crate::bench::sides::{CatalogPlan, GetPlan, NodePlan, Order, PoolPlan, PutPlan, SidePlan};
use crate::bench::{BenchError, Plan, PlantedDelay};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidepool_types::{ByteSize, Deadline};

/// Time to set a side up: to allocate, touch and fill its memory.
const SETUP: Duration = Duration::from_secs(120);

/// A catalog and a node.
pub(super) struct Pool {
    // Dropped in this order, the directory last.
    _node: Side,
    _catalog: Side,
    dir: WorkDir,
    catalog: String,
    streams: u32,
    planted_delay: PlantedDelay,
    deadline: Deadline,
}

/// The place of work directories, and the start of their names; the number of their process follows.
const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "tidepool-bench-";

/// Removes the work directories of the processes that `gone` accepts: killed runs, or a run that is about to end.
pub(crate) fn remove_work_dirs(gone: impl Fn(u32) -> bool) {
    for entry in std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if process.is_some_and(&gone) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the work directories of processes that have ended.
pub(crate) fn remove_abandoned_work_dirs() {
    remove_work_dirs(|process| !Path::new(&format!("/proc/{process}")).exists());
}

/// A directory under /dev/shm that is removed when dropped.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new() -> std::io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(SHARED_MEMORY).join(format!("{PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Pool {
    /// Starts a pool whose node has room for `capacity` bytes of blocks.
    pub(super) fn start(plan: &Plan, capacity: ByteSize) -> Result<Self, BenchError> {
        let deadline = plan.deadline;
        let catalog_side = Side::start("catalog", &SidePlan::Catalog(CatalogPlan {}), deadline.capped(SETUP))?;
        let catalog = catalog_side.detail().to_owned();
        let dir = WorkDir::new().map_err(|source| BenchError::Io { side: "node".into(), source })?;
        let (name, catalogs) = ("bench".to_owned(), vec![catalog.clone()]);
        let node = NodePlan { dir: dir.0.clone(), name, capacity, catalogs };
        let node = Side::start("node", &SidePlan::Node(node), deadline.capped(SETUP))?;
        let (streams, planted_delay) = (plan.streams, plan.planted_delay);
        Ok(Self { _node: node, _catalog: catalog_side, dir, catalog, streams, planted_delay, deadline })
    }

    /// Bytes for all blocks of a footprint, with keys, checksums and alignment.
    pub(super) fn room_for(footprint: ByteSize) -> ByteSize {
        ByteSize((footprint.0 + footprint.0 / 16 + (64 << 20)).next_multiple_of(4096))
    }

    fn access(&self, local: bool) -> PoolPlan {
        let catalogs = vec![self.catalog.clone()];
        let (dir, planted_delay) = (self.dir.0.clone(), self.planted_delay);
        PoolPlan { dir, catalogs, local, streams: self.streams, planted_delay }
    }

    /// Puts the numbered blocks of a whole footprint, by a process that then ends.
    pub(super) fn fill(&self, plan: &Plan, block: ByteSize) -> Result<(), BenchError> {
        let put = self.put_plan(plan, plan.footprint, block);
        Side::start("fill", &SidePlan::Put(PutPlan { before: 1, ..put }), self.deadline.capped(SETUP)).map(drop)
    }

    /// The plan of a client that puts `footprint` bytes a run, which stay.
    pub(super) fn put_plan(&self, plan: &Plan, footprint: ByteSize, block: ByteSize) -> PutPlan {
        // Batches of up to 64 MiB, as an engine makes them: 32 blocks of 2 MiB, and not more than 512 of any size.
        let batch = ((64 << 20) / block.0).clamp(1, 512) as usize;
        PutPlan { pool: self.access(true), footprint, block, batch, before: 0, remove: false, seed: plan.seed }
    }

    /// Starts a client that puts.
    pub(super) fn putter(&self, put: PutPlan) -> Result<Side, BenchError> {
        Side::start("put", &SidePlan::Put(put), self.deadline.capped(SETUP))
    }

    /// Starts a client that gets the blocks of [`Pool::fill`].
    pub(super) fn getter(
        &self,
        plan: &Plan,
        block: ByteSize,
        batch: usize,
        order: Order,
        local: bool,
    ) -> Result<Side, BenchError> {
        let get = GetPlan { pool: self.access(local), footprint: plan.footprint, block, batch, order, seed: plan.seed };
        Side::start("get", &SidePlan::Get(get), self.deadline.capped(SETUP))
    }
}
