//! Transfers: saves and loads in the background.
//!
//! A job names blocks. The engine submits it once, a thread of its direction runs it, and the engine polls for the
//! report. Every job is reported once, after its last use of the blocks: the engine keeps the blocks until then and may
//! reuse them afterwards. Loads and saves have threads of their own, so that a save never delays a request.
//!
//! Bounds: a load that finds its queue full fails (the engine computes); a save is given up (a later miss). After the
//! pool took nothing, saves are given up for a second, so that they do not occupy the engine's memory.

use crate::crew::{Crew, Ending};
use crate::keys::{Hashes, KeyPrefix};
use crate::mover::{GoOn, Mover, Placed, cut};
use crate::replicas::{Loaded, Replicas};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_client::door::Moment;
use tidepool_client::{Client, Origin, PutOptions};
use tidepool_locks::Mutex;

/// How long saves are given up after the pool took nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// The direction of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the pool into the engine.
    Load,
    /// From the engine into the pool.
    Save,
}

/// Blocks of one KV group, in the order of their prefix.
#[derive(Debug, Clone)]
pub struct Part {
    /// The KV group.
    pub group: usize,
    /// The prefix of the blocks' keys.
    pub prefix: KeyPrefix,
    /// The blocks' hashes.
    pub hashes: Hashes,
    /// The blocks' numbers in the engine's memory, one for each hash.
    pub blocks: Vec<u32>,
    /// Blocks of the group before the first of these in the prefix.
    pub depth: u32,
    /// From one of these blocks to the next in the prefix.
    pub step: u32,
}

/// Blocks to move.
#[derive(Debug, Clone)]
pub struct Job {
    /// The caller's name for the job.
    pub id: u64,
    /// The blocks to move.
    pub parts: Vec<Part>,
    /// The request that they are moved for, as far as the engine knows it.
    pub origin: Option<Origin>,
}

/// A job that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The caller's name for the job.
    pub id: u64,
    /// The job's direction.
    pub direction: Direction,
    /// Blocks that were not moved, as group and number. A load also counts all blocks after the first that failed.
    pub failed: Vec<(usize, u32)>,
}

/// Settings of transfers.
#[derive(Debug, Clone)]
pub struct TransferConfig {
    /// Threads for loads.
    pub load_threads: usize,
    /// Threads for saves.
    pub save_threads: usize,
    /// Jobs of one direction that wait for a thread.
    pub waiting: usize,
    /// Time limit of each part that a mover loads at once.
    pub load_deadline: Duration,
    /// Time limit of each part that a mover saves at once.
    pub save_deadline: Duration,
    /// Copies of each block.
    pub replicas: u32,
    /// Bytes a second at which a node of this host copies loaded blocks of other hosts; zero for no copies.
    pub replica_rate: u64,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            load_threads: 2,
            save_threads: 2,
            waiting: 4096,
            load_deadline: Duration::from_secs(5),
            save_deadline: Duration::from_secs(2),
            replicas: 1,
            replica_rate: 0,
        }
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        #[derive(Default)]
        struct Counters {
            $($field: AtomicU64,)*
        }

        /// Counters since the start.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct TransferStats {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            fn snapshot(&self) -> TransferStats {
                TransferStats { $($field: self.$field.load(Ordering::Relaxed),)* }
            }
        }

        impl TransferStats {
            /// Every counter with its name.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field),)*]
            }
        }
    };
}

stats! {
    /// Blocks loaded.
    blocks_loaded,
    /// Bytes loaded.
    bytes_loaded,
    /// Blocks that could not be loaded.
    blocks_not_loaded,
    /// Time spent in loads.
    load_micros,
    /// Blocks stored.
    blocks_saved,
    /// Bytes stored.
    bytes_saved,
    /// Blocks to save that the pool held already.
    blocks_held,
    /// Blocks that could not be stored.
    blocks_not_saved,
    /// Time spent in saves.
    save_micros,
    /// Time spent on checksums of a device's blocks. Two flights of a save add up.
    checksum_micros,
    /// Blocks of other hosts that nodes of this host copied.
    blocks_replicated,
}

/// The jobs of one worker.
pub struct Transfers {
    // Dropped first: their threads use what follows.
    loads: Crew<Running>,
    saves: Crew<Running>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    mover: Box<dyn Mover>,
    config: TransferConfig,
    /// Short sections: leaving and fetching reports.
    finished: Mutex<Vec<Finished>>,
    /// The end of the pause in which saves are given up.
    paused: Mutex<Option<Instant>>,
    replicas: Option<Replicas>,
    counters: Counters,
}

impl Transfers {
    /// Starts the threads.
    pub fn start(client: &Client, mover: Box<dyn Mover>, config: TransferConfig) -> io::Result<Self> {
        let (load_threads, save_threads, waiting) = (config.load_threads, config.save_threads, config.waiting);
        let replicas = match config.replica_rate {
            0 => None,
            rate => Some(Replicas::start(client.clone(), rate)?),
        };
        let shared = Arc::new(Shared {
            client: client.clone(),
            mover,
            config,
            finished: Mutex::default(),
            paused: Mutex::default(),
            replicas,
            counters: Counters::default(),
        });
        let work = |job: Running, ending: &Ending<'_>| job.run(ending);
        let loads = Crew::start("tidepool-load", load_threads, waiting, work)?;
        let saves = Crew::start("tidepool-save", save_threads, waiting, work)?;
        Ok(Self { loads, saves, shared })
    }

    /// Submits a job.
    pub fn submit(&self, direction: Direction, job: Job) {
        self.submit_after(direction, job, None);
    }

    /// Submits a job that waits for `after`, a moment of the device that has the blocks: until then the device's
    /// earlier work reads or writes them.
    pub fn submit_after(&self, direction: Direction, job: Job, after: Option<Box<dyn Moment>>) {
        let crew = match direction {
            Direction::Load => &self.loads,
            Direction::Save => &self.saves,
        };
        let running = Running { shared: Arc::clone(&self.shared), moved: 0, direction, job, after };
        // A job that is handed back reports when it is dropped.
        drop(crew.give(running));
    }

    /// Reports a job as failed that the caller cannot begin, with the reason `why`.
    pub fn give_up(&self, direction: Direction, job: Job, why: &str) {
        tracing::warn!(job = job.id, why, "blocks are not moved");
        drop(Running { shared: Arc::clone(&self.shared), moved: 0, direction, job, after: None });
    }

    /// The jobs that ended since the last call.
    #[must_use]
    pub fn poll(&self) -> Vec<Finished> {
        std::mem::take(&mut *self.shared.finished.lock())
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> TransferStats {
        let checksum_micros = self.shared.client.stats().device_checksum_micros;
        let blocks_replicated = self.shared.replicas.as_ref().map_or(0, Replicas::copied);
        TransferStats { checksum_micros, blocks_replicated, ..self.shared.counters.snapshot() }
    }
}

/// A submitted job. Dropping it reports it, however it ended.
struct Running {
    shared: Arc<Shared>,
    direction: Direction,
    job: Job,
    /// Number of its blocks, from the first, that were moved.
    moved: usize,
    /// The moment to wait for first.
    after: Option<Box<dyn Moment>>,
}

impl Running {
    fn run(mut self, ending: &Ending<'_>) {
        // Nothing has begun before that moment, so the engine's end does not wait for it.
        let go_on = || !ending.is_near();
        match self.after.take().map(|after| after.wait(&go_on)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return,
            Some(Err(error)) => {
                tracing::warn!(%error, "the device failed before its blocks could be moved");
                return;
            }
        }
        let began = Instant::now();
        let shared = Arc::clone(&self.shared);
        let keys: Vec<Vec<u8>> = self.job.parts.iter().flat_map(keys).collect();
        let depths = self.job.parts.iter().flat_map(depths);
        let placed = self.places().zip(&keys).zip(depths);
        let placed: Vec<Placed<'_>> =
            placed.map(|(((group, block), key), depth)| Placed { key, group, block, depth }).collect();
        let client = self.job.origin.map_or_else(|| shared.client.clone(), |origin| shared.client.used_for(origin));
        for batch in cut(&placed, shared.mover.batch_bytes(), |placed| shared.mover.block_len(placed.group)) {
            let done = match self.direction {
                Direction::Load => shared.load(&client, batch, &go_on),
                Direction::Save => shared.save(&client, batch, &go_on),
            };
            self.moved += done;
            if done < batch.len() || !go_on() {
                break;
            }
        }
        let micros = match self.direction {
            Direction::Load => &shared.counters.load_micros,
            Direction::Save => &shared.counters.save_micros,
        };
        count(micros, began.elapsed().as_micros() as usize);
        let (direction, moved) = (self.direction, self.moved);
        // The report is out: the engine does not wait for the rest.
        drop(self);
        if let Some(replicas) = shared.replicas.as_ref().filter(|_| direction == Direction::Load) {
            let loaded =
                |placed: &Placed<'_>| Loaded { key: placed.key.to_vec(), len: shared.mover.block_len(placed.group) };
            replicas.offer(placed[..moved].iter().map(loaded).collect());
        }
    }

    /// Every block, as group and number.
    fn places(&self) -> impl Iterator<Item = (usize, u32)> + use<> {
        let parts = self.job.parts.iter();
        let all: Vec<_> = parts.flat_map(|part| part.blocks.iter().map(|block| (part.group, *block))).collect();
        all.into_iter()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let failed: Vec<_> = self.places().skip(self.moved).collect();
        let lost = match self.direction {
            Direction::Load => &self.shared.counters.blocks_not_loaded,
            Direction::Save => &self.shared.counters.blocks_not_saved,
        };
        count(lost, failed.len());
        let report = Finished { id: self.job.id, direction: self.direction, failed };
        self.shared.finished.lock().push(report);
    }
}

impl Shared {
    /// Loads a batch. Returns the number of its blocks, from the first, that are there.
    fn load(&self, client: &Client, batch: &[Placed<'_>], go_on: GoOn<'_>) -> usize {
        let there = self.mover.load(&client.within(self.config.load_deadline), batch, go_on);
        let run = there.iter().take_while(|there| **there).count();
        count(&self.counters.blocks_loaded, run);
        count(&self.counters.bytes_loaded, self.bytes(&batch[..run]));
        run
    }

    /// Stores a batch. Returns the number of its blocks, from the first, that the pool has.
    fn save(&self, client: &Client, batch: &[Placed<'_>], go_on: GoOn<'_>) -> usize {
        if self.paused.lock().is_some_and(|until| Instant::now() < until) {
            return 0;
        }
        let client = client.within(self.config.save_deadline);
        let options = PutOptions { replicas: self.config.replicas, ..PutOptions::default() };
        let answers = self.mover.save(&client, batch, &options, go_on);
        let run = answers.iter().take_while(|answer| answer.is_ok()).count();
        for (placed, stored) in batch.iter().zip(answers.iter().flatten()) {
            if stored.moved {
                count(&self.counters.blocks_saved, 1);
                count(&self.counters.bytes_saved, self.mover.block_len(placed.group));
            } else {
                count(&self.counters.blocks_held, 1);
            }
        }
        if let Some(Err(error)) = answers.iter().find(|answer| answer.is_err()) {
            tracing::debug!(%error, "blocks were not saved");
            *self.paused.lock() = Some(Instant::now() + PAUSE);
        }
        run
    }

    fn bytes(&self, batch: &[Placed<'_>]) -> usize {
        batch.iter().map(|placed| self.mover.block_len(placed.group)).sum()
    }
}

fn keys(part: &Part) -> impl Iterator<Item = Vec<u8>> {
    part.hashes.every(1).map(|hash| part.prefix.key(hash))
}

fn depths(part: &Part) -> impl Iterator<Item = u32> {
    let step = part.step;
    std::iter::successors(Some(part.depth), move |depth| Some(depth.saturating_add(step))).take(part.blocks.len())
}

fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}
