//! A few threads that share large copies.
//!
//! [`CopyPool::run`] cuts a batch of jobs into pieces at chunk boundaries; the caller and the helpers claim pieces until
//! none is left. The pool serves one batch at a time and queues nothing: a caller that finds it busy, or whose batch is
//! small, copies alone. Idle helpers spin for a moment, since batches come in bursts, and then sleep, unless somebody who has
//! a batch coming keeps them awake ([`CopyPool::stay_awake`]).

use super::apart::Apart;
use super::{checksummed, copy_scattered, stream};
use crate::ops::{Region, Regions};
use crate::regions::{Cursor, for_each_pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};
use tidepool_types::{CHUNK_LEN, chunk_count};
use tidepool_wire::checksum::BlockChecksum;

/// Batches of fewer bytes are copied by the caller alone: waking a helper costs about as much as they do.
const SHARED_MIN: u64 = 1 << 20;
/// Bounds of a piece: large enough to be claimed rarely, small enough that the threads finish together.
const PIECE: std::ops::RangeInclusive<u64> = CHUNK_LEN..=8 * CHUNK_LEN;
/// How often an idle thread looks before it sleeps: some ten microseconds.
const SPINS: u32 = 400;
/// The longest that a helper without work is kept awake at a time.
const AWAKE: Duration = Duration::from_micros(200);
/// A helper that has its core to itself copies a piece in less.
const PIECE_TAKES: Duration = Duration::from_millis(1);

/// One copy of a batch: `len` bytes from one scattered place to another.
#[derive(Debug)]
pub struct CopyJob<'a> {
    /// Where the bytes go; at least `len` of them.
    pub to: Regions,
    /// Where they come from; at least `len` of them.
    pub from: Regions,
    /// Bytes to copy.
    pub len: u64,
    /// For a block that is being written, or a part of one that ends at a chunk's or at the block's end: its checksums, made
    /// on the way. The source must then be stable.
    pub checksums: Option<ChecksumsInto<'a>>,
}

impl CopyJob<'_> {
    /// The address of its checksums; null where none are wanted.
    fn out(&mut self) -> *mut u32 {
        self.checksums.as_mut().map_or(std::ptr::null_mut(), |into| into.out.as_mut_ptr())
    }
}

/// A block, or a part of one as in [`CopyJob`], that is in place and whose checksums are wanted.
#[derive(Debug)]
pub struct SumJob<'a> {
    /// The bytes.
    pub of: Region,
    /// Their checksums.
    pub checksums: ChecksumsInto<'a>,
}

/// Where a job's checksums go.
#[derive(Debug)]
pub struct ChecksumsInto<'a> {
    /// The block's checksum.
    pub checksum: BlockChecksum,
    /// The chunk of the block that the job starts with.
    pub first_chunk: u64,
    /// One place per chunk of the job.
    pub out: &'a mut [u32],
}

/// Threads that share large copies. Dropping it ends them.
#[derive(Debug)]
pub struct CopyPool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held by the caller whose batch is being copied; others copy alone.
    turn: Mutex<()>,
}

impl CopyPool {
    /// A pool with `helpers` threads beside the caller's own; zero is allowed.
    #[must_use]
    pub fn new(helpers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let spawn = |number| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("copy-{number}")).spawn(move || shared.help()).ok()
        };
        // A thread that cannot be had costs speed, not correctness.
        let helpers = (0..helpers).map_while(spawn).collect();
        Self { shared, helpers, turn: Mutex::new(()) }
    }

    /// As many helpers as pay: with the caller one thread per core, at most four, which saturate one socket's memory.
    #[must_use]
    pub fn with_default_helpers() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores.min(4) - 1)
    }

    /// Wakes the helpers and keeps them from sleeping until the guard is dropped, though for no more than 200 us at a time
    /// without work: for a caller who is about to copy `bytes`, if those are worth sharing and nobody else is copying. Waking
    /// up takes a helper as long as copying half a megabyte, and its core, if that has gone to sleep, as long for whoever has
    /// something to do there afterwards, such as a catalog that hears of a put.
    #[must_use = "helpers may sleep once it is dropped"]
    pub fn stay_awake(&self, bytes: u64) -> Option<Awake<'_>> {
        let is_shared = bytes >= SHARED_MIN && !self.helpers.is_empty();
        let _turn = if is_shared { self.turn.try_lock() } else { None }?;
        Some(self.shared.rouse())
    }

    /// Copies all of `jobs` and returns when every byte is in place and ordered before the caller's later stores.
    ///
    /// # Panics
    /// If a job's places are shorter than its length, or its checksums are not as many as its chunks.
    ///
    /// # Safety
    /// For each job both places must be valid for its length, the destination unshared and overlapping no source. Without
    /// checksums the source may change meanwhile (see [`super`]); with them it must not.
    pub unsafe fn run(&self, jobs: &mut [CopyJob<'_>]) {
        // SAFETY: passed on from the caller.
        unsafe { self.run_in_turn(jobs, |_| ()) }
    }

    /// As [`CopyPool::run`], for a caller who has something else to do meanwhile. He is told of the jobs at the front that are
    /// in place, their stores ordered before his later ones: of none at first, where helpers copy beside him, then whenever he
    /// has copied a piece and there are more of them, and at last of all.
    ///
    /// # Panics
    /// As [`CopyPool::run`] does, and with `tell`.
    ///
    /// # Safety
    /// As for [`CopyPool::run`].
    pub unsafe fn run_in_turn(&self, jobs: &mut [CopyJob<'_>], mut tell: impl FnMut(&[CopyJob<'_>])) {
        let outs: Vec<*mut u32> = jobs.iter_mut().map(CopyJob::out).collect();
        // From here on checksums are written through these addresses only, and a job's no more once its caller is told of it:
        // what he then reads through the job itself, nobody changes.
        let jobs = &*jobs;
        let tasks: Vec<Task<'_>> = jobs.iter().zip(outs).map(|(job, out)| Task::new(job, out)).collect();
        self.share(&tasks, |in_place| tell(&jobs[..in_place]));
    }

    /// Makes the checksums of all of `jobs`.
    ///
    /// # Panics
    /// If a job's checksums are not as many as its chunks.
    ///
    /// # Safety
    /// The memory of each job must be readable, and must not change meanwhile.
    pub unsafe fn sum(&self, jobs: &mut [SumJob<'_>]) {
        let places: Vec<Regions> = jobs.iter().map(|job| Regions::One(job.of)).collect();
        self.share(&jobs.iter_mut().zip(&places).map(|(job, of)| Task::summing(job, of)).collect::<Vec<_>>(), |_| ());
    }

    /// Does `tasks`, for which the caller has promised what they need, and tells how many of the first are done.
    fn share(&self, tasks: &[Task<'_>], mut tell: impl FnMut(usize)) {
        let total = tasks.iter().map(|task| task.len).sum();
        let alone = total < SHARED_MIN || self.helpers.is_empty();
        match if alone { None } else { self.turn.try_lock() } {
            Some(_turn) => {
                let batch = Batch::new(tasks, total, self.helpers.len() as u64 + 1);
                self.shared.copy_together(&batch, &mut tell);
            }
            None => {
                tasks.iter().for_each(|task| task.copy(0, task.len, total >= super::STREAMING_MIN as u64));
                stream::fence();
            }
        }
        tell(tasks.len());
    }
}

impl Drop for CopyPool {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        self.shared.number.fetch_add(1, Ordering::Release);
        drop(state);
        self.shared.wake.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper has nothing that can panic; if it did, there is nothing left to tidy.
            let _ = helper.join();
        }
    }
}

/// A job as the threads see it.
struct Task<'a> {
    /// Nothing where checksums are all that is wanted.
    to: Option<&'a Regions>,
    from: &'a Regions,
    len: u64,
    checksums: Option<(&'a BlockChecksum, u64, *mut u32)>,
}

// SAFETY: a task is addresses, a length and a checksum's seed. The caller of `run` promised memory that any thread may
// use; `run` keeps it borrowed until all threads are done, and each piece writes its own bytes and checksums only.
unsafe impl Sync for Task<'_> {}

impl<'a> Task<'a> {
    /// `out` is where the job's checksums go.
    fn new(job: &'a CopyJob<'_>, out: *mut u32) -> Self {
        assert!(job.to.total() >= job.len && job.from.total() >= job.len, "a copy job is longer than its memory");
        let checksums = job.checksums.as_ref().map(|into| {
            assert_eq!(into.out.len() as u64, chunk_count(job.len), "one checksum per chunk");
            (&into.checksum, into.first_chunk, out)
        });
        Self { to: Some(&job.to), from: &job.from, len: job.len, checksums }
    }

    fn summing(job: &'a mut SumJob<'_>, of: &'a Regions) -> Self {
        let (into, len) = (&mut job.checksums, job.of.len as u64);
        assert_eq!(into.out.len() as u64, chunk_count(len), "one checksum per chunk");
        Self { to: None, from: of, len, checksums: Some((&into.checksum, into.first_chunk, into.out.as_mut_ptr())) }
    }

    /// Copies `len` bytes at `start`, which is a multiple of the chunk length. Not fenced.
    fn copy(&self, start: u64, len: u64, streaming: bool) {
        let mut from = self.from.cursor_at(start);
        let mut to = self.to.map_or_else(|| Cursor::new(&[]), |to| to.cursor_at(start));
        // SAFETY: whoever called `run` promised both places for the whole job, of which this is a part that no other thread
        // has; the checksums written are those of this part's chunks, inside the job's slice (checked in `new`).
        unsafe {
            match self.checksums {
                Some((checksum, first_chunk, out)) => {
                    let chunk = start / CHUNK_LEN;
                    let out = std::slice::from_raw_parts_mut(out.add(chunk as usize), chunk_count(len) as usize);
                    match self.to {
                        Some(_) => {
                            checksummed::copy_chunks(&mut to, &mut from, len, checksum, first_chunk + chunk, out)
                        }
                        None => checksummed::sum_chunks(&mut from, len, checksum, first_chunk + chunk, out),
                    }
                }
                None if streaming => {
                    for_each_pair(&mut to, &mut from, len as usize, |to, from, len| stream::copy(to, from, len))
                }
                None => copy_scattered(&mut to, &mut from, len as usize),
            }
        }
    }
}

/// A run of bytes that one thread copies: from `start` of task `task` on, over as many tasks as `len` covers.
struct Piece {
    task: usize,
    start: u64,
    len: u64,
}

/// Tasks cut into pieces, the next piece to claim, and which are in place.
struct Batch<'a> {
    tasks: &'a [Task<'a>],
    pieces: Vec<Piece>,
    next: AtomicUsize,
    copied: Vec<AtomicBool>,
}

impl<'a> Batch<'a> {
    fn new(tasks: &'a [Task<'a>], total: u64, threads: u64) -> Self {
        let target = (total / (threads * 16)).clamp(*PIECE.start(), *PIECE.end()) / CHUNK_LEN * CHUNK_LEN;
        let pieces = cut(tasks, target);
        let copied = pieces.iter().map(|_| AtomicBool::new(false)).collect();
        Self { tasks, pieces, next: AtomicUsize::new(0), copied }
    }

    /// Copies the next piece; false when none is left to claim.
    fn copy_next(&self) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(piece) = self.pieces.get(number) else { return false };
        let (mut start, mut left) = (piece.start, piece.len);
        for task in &self.tasks[piece.task..] {
            let len = left.min(task.len - start);
            task.copy(start, len, true);
            (start, left) = (0, left - len);
            if left == 0 {
                break;
            }
        }
        // Each thread orders its own stores before it says that they are done.
        stream::fence();
        self.copied[number].store(true, Ordering::Release);
        true
    }

    /// How many of the first tasks are in place, by the pieces from `piece` on, before which all are; moves `piece` on.
    fn in_place(&self, piece: &mut usize) -> usize {
        let is_copied = |copied: &&AtomicBool| copied.load(Ordering::Acquire);
        *piece += self.copied[*piece..].iter().take_while(is_copied).count();
        self.pieces.get(*piece).map_or(self.tasks.len(), |piece| piece.task)
    }
}

/// Cuts tasks into pieces of about `target` bytes; a cut inside a task is at a multiple of the chunk length.
fn cut(tasks: &[Task<'_>], target: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut open = Piece { task: 0, start: 0, len: 0 };
    for (number, task) in tasks.iter().enumerate() {
        let mut start = 0;
        while start < task.len {
            if open.len == 0 {
                open = Piece { task: number, start, len: 0 };
            }
            // What is left of the piece, rounded up so that a cut stays on a chunk boundary.
            let len = (target - open.len).next_multiple_of(CHUNK_LEN).min(task.len - start);
            open.len += len;
            start += len;
            if open.len >= target {
                pieces.push(std::mem::replace(&mut open, Piece { task: 0, start: 0, len: 0 }));
            }
        }
    }
    if open.len > 0 {
        pieces.push(open);
    }
    pieces
}

/// What the caller and the helpers meet over.
#[derive(Debug, Default)]
struct Shared {
    /// Short sections only: handing a batch over and counting who works on it.
    state: Mutex<State>,
    wake: Condvar,
    finished: Condvar,
    /// The latest batch's number, so that helpers can spin without the lock.
    number: AtomicU64,
    /// Where helpers run.
    apart: Apart,
    /// How many callers keep the helpers awake.
    sleepless: AtomicUsize,
    /// Helpers inside the batch, readable without the lock; changed only under it.
    inside: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The batch that may be joined; the caller takes it back before it returns.
    batch: Option<BatchPointer>,
    /// How often helpers have been roused.
    roused: u64,
    stop: bool,
}

/// A batch on its caller's stack.
#[derive(Debug, Clone, Copy)]
struct BatchPointer(*const Batch<'static>);

// SAFETY: the batch is shared memory for its threads (see `Task`), and `copy_together` keeps it alive while anyone is inside.
unsafe impl Send for BatchPointer {}

impl Shared {
    /// Publishes a batch, works on it and tells between pieces how many of its first tasks are in place, if not yet all, and
    /// returns once it is done and no helper can reach it any more.
    fn copy_together(&self, batch: &Batch<'_>, tell: &mut impl FnMut(usize)) {
        self.apart.keep_off();
        let pointer = std::ptr::from_ref(batch).cast::<Batch<'static>>();
        let mut state = self.state.lock();
        state.batch = Some(BatchPointer(pointer));
        // Under the lock: a helper that has just looked and is about to sleep must not miss it.
        self.number.fetch_add(1, Ordering::Release);
        drop(state);
        let leave = Leave(self);
        self.wake.notify_all();
        tell(0);
        let (mut piece, mut told) = (0, 0);
        while batch.copy_next() {
            let in_place = batch.in_place(&mut piece);
            if in_place > told && in_place < batch.tasks.len() {
                tell(in_place);
                told = in_place;
            }
        }
        drop(leave);
    }

    /// Wakes helpers that sleep, for a batch that is yet to come.
    fn rouse(&self) -> Awake<'_> {
        self.apart.keep_off();
        self.sleepless.fetch_add(1, Ordering::Relaxed);
        self.state.lock().roused += 1;
        self.wake.notify_all();
        Awake(self)
    }

    /// Looks for a batch other than the one last seen: for a moment, or while helpers are to stay awake. Others may have the
    /// core meanwhile.
    fn look_for_next(&self, seen: u64) {
        if self.spin_for_next(seen) && self.is_sleepless() {
            let until = Instant::now() + AWAKE;
            while self.spin_for_next(seen) && self.is_sleepless() && Instant::now() < until {
                std::thread::yield_now();
            }
        }
    }

    fn is_sleepless(&self) -> bool {
        self.sleepless.load(Ordering::Relaxed) > 0
    }

    /// Looks for a batch other than the one last seen, for a moment. True when there is none.
    fn spin_for_next(&self, seen: u64) -> bool {
        for _ in 0..SPINS {
            if self.number.load(Ordering::Acquire) != seen {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// A helper's life: join each batch that is offered, until told to stop.
    fn help(&self) {
        self.apart.join();
        let (mut seen, mut roused) = (0, 0);
        loop {
            self.look_for_next(seen);
            let mut state = self.state.lock();
            while self.number.load(Ordering::Acquire) == seen && state.roused == roused {
                self.wake.wait(&mut state);
            }
            if state.stop {
                return;
            }
            (seen, roused) = (self.number.load(Ordering::Acquire), state.roused);
            let Some(BatchPointer(batch)) = state.batch else { continue };
            self.inside.fetch_add(1, Ordering::Relaxed);
            drop(state);
            // SAFETY: the batch was on offer under the lock and `inside` now counts this thread, so `Leave` keeps the
            // batch alive until the count goes down below.
            unsafe { while (*batch).copy_next() {} };
            let state = self.state.lock();
            self.inside.fetch_sub(1, Ordering::Release);
            self.finished.notify_all();
            drop(state);
        }
    }
}

/// Keeps helpers awake while it lives.
#[derive(Debug)]
pub struct Awake<'a>(&'a Shared);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.sleepless.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a batch back when dropped, also by a panic: no helper may reach it afterwards.
struct Leave<'a>(&'a Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.state.lock().batch = None;
        for _ in 0..SPINS {
            if self.0.inside.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = self.0.state.lock();
        while self.0.inside.load(Ordering::Acquire) != 0 {
            if self.0.finished.wait_for(&mut state, PIECE_TAKES).timed_out() {
                // Others have the helpers' cores, and this one is free.
                self.0.apart.anywhere();
            }
        }
    }
}
