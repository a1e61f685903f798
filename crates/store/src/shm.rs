//! The shared-memory transport: reads and writes a node's slab in place, for the host's memory and, through
//! [`device`](crate::device), for a device's.
//!
//! Everything is done inside `submit`; `poll` only hands out what it left. A batch is looked up in passes, so that the
//! cache misses of its index lines, headers and first bytes overlap. Blocks large enough to share go to the copy threads
//! together, and each is checked after all are copied. The clock is looked at every [`RUN_BYTES`], inside a block too.

use crate::mapping::{Found, Mapping};
use crate::memory_file::prefetch;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use tidepool_transfer::copy::{self, ChecksumsInto, CopyJob, CopyPool};
use tidepool_transfer::ops::{
    Completion, Destination, DevicePlace, Done, Failure, Op, ReadOp, Refused, Region, Regions, WriteOp,
};
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::{CHUNK_LEN, Deadline, chunk_count};
use tidepool_wire::checksum::BlockChecksum;

/// A batch of this many bytes may still be in the second-level cache from the last time.
const WARM_BYTES: u64 = 512 << 10;
/// Reads of at least this many bytes go to the copy threads.
const SHARED_READ: u64 = 64 << 10;
/// Bytes copied between two looks at the clock; whole chunks.
const RUN_BYTES: u64 = 64 << 20;
/// Lines of a block that are asked for while the one before it is copied: the hardware notices a new block only after
/// its first few lines.
const PREFETCHED_LINES: usize = 16;

/// The transport to a node on this host.
pub struct ShmTransport {
    pub(crate) mapping: Arc<Mapping>,
    copies: Arc<CopyPool>,
    verify: bool,
    done: VecDeque<Completion>,
}

/// A read that is ready to be copied.
pub(crate) struct Ready {
    token: u64,
    pub(crate) found: Found,
    pub(crate) offset: u64,
    len: u64,
    pub(crate) to: Target,
}

/// Where the bytes go.
pub(crate) enum Target {
    Lent(Regions),
    Own(Vec<u8>),
    Device(Box<DevicePlace>),
}

impl Target {
    fn regions(&mut self, len: u64) -> Regions {
        match self {
            Self::Lent(regions) => regions.clone(),
            Self::Device(_) => Regions::Many(Vec::new()),
            Self::Own(bytes) => {
                let spare = bytes.spare_capacity_mut();
                Regions::One(Region { start: spare.as_mut_ptr().cast(), len: spare.len().min(len as usize) })
            }
        }
    }
}

/// Whether the destination is likely to be in cache: it begins where this thread's last one did, and fits. Readers that take
/// one batch after the other into the same buffer read it at once, too.
fn is_warm(reads: &[Ready], bytes: u64) -> bool {
    thread_local!(static LAST: Cell<usize> = const { Cell::new(0) });
    let start = match reads.first().map(|ready| &ready.to) {
        Some(Target::Lent(Regions::One(to))) => to.start as usize,
        _ => 0,
    };
    LAST.replace(start) == start && start != 0 && bytes <= WARM_BYTES
}

/// A piece of work.
trait Piece {
    fn token(&self) -> u64;
    fn len(&self) -> u64;
}

impl Piece for Ready {
    fn token(&self) -> u64 {
        self.token
    }
    fn len(&self) -> u64 {
        self.len
    }
}

impl Piece for WriteOp {
    fn token(&self) -> u64 {
        self.token
    }
    fn len(&self) -> u64 {
        self.source.total()
    }
}

impl ShmTransport {
    /// A transport over `mapping`. `verify` checks every read against its checksums, not only its generation.
    pub fn new(mapping: Arc<Mapping>, copies: Arc<CopyPool>, verify: bool) -> Self {
        Self { mapping, copies, verify, done: VecDeque::new() }
    }

    fn finish(&mut self, token: u64, outcome: Result<Done, Failure>) {
        self.done.push_back(Completion { token, outcome });
    }

    fn read_all(&mut self, reads: Vec<ReadOp>, deadline: Deadline) {
        reads.iter().for_each(|read| self.mapping.prefetch_index(&read.id));
        reads.iter().for_each(|read| self.mapping.prefetch_header(&read.id));
        let (mut large, mut on_device) = (Vec::new(), Vec::new());
        let (mut small, mut small_bytes) = (Vec::with_capacity(reads.len()), 0);
        self.done.reserve(reads.len());
        for read in reads {
            let token = read.token;
            match self.prepare(read) {
                Ok(ready) if matches!(ready.to, Target::Device(_)) => on_device.push(ready),
                Ok(ready) if ready.len >= SHARED_READ => large.push(ready),
                Ok(ready) => {
                    small_bytes += ready.len;
                    small.push(ready);
                }
                Err(failure) => self.finish(token, Err(failure)),
            }
        }
        let streaming = small_bytes as usize >= copy::STREAMING_MIN && !is_warm(&small, small_bytes);
        self.in_runs(small, deadline, |this, run| this.read_small(run, streaming));
        self.in_runs(large, deadline, |this, run| this.read_large(run, deadline));
        if !on_device.is_empty() {
            self.read_to_devices(on_device, deadline);
        }
    }

    /// Works on a few items at a time, so that a deadline is noticed between them; those left over have timed out. An item
    /// longer than a run is alone in it.
    fn in_runs<T: Piece>(&mut self, mut items: Vec<T>, deadline: Deadline, mut work: impl FnMut(&mut Self, Vec<T>)) {
        while !items.is_empty() && !deadline.has_passed() {
            let mut bytes = 0;
            let fits = |item: &&T| {
                bytes += item.len();
                bytes <= RUN_BYTES
            };
            let run = items.iter().take_while(fits).count().max(1);
            // Almost always all of them.
            let rest = items.split_off(run);
            work(self, std::mem::replace(&mut items, rest));
        }
        items.iter().for_each(|item| self.finish(item.token(), Err(Failure::TimedOut)));
    }

    /// Looks the block up and checks that what is asked of it can be had.
    fn prepare(&self, read: ReadOp) -> Result<Ready, Failure> {
        let found = self.mapping.find(&read.id).ok_or(Failure::Miss)?;
        if read.copy.is_some_and(|copy| copy != self.mapping.copy_name(&found)) {
            return Err(Failure::Miss);
        }
        let block_len = found.len();
        let len = read.len.unwrap_or_else(|| block_len.saturating_sub(read.offset));
        if tidepool_types::check_range(read.offset, len, block_len).is_err() {
            return Err(Failure::BadRange { block_len });
        }
        let to = match read.destination {
            Destination::Into(regions) if regions.total() < len => return Err(Failure::TooSmall { block_len }),
            Destination::Into(regions) => Target::Lent(regions),
            Destination::Allocate => Target::Own(Vec::with_capacity(len as usize)),
            Destination::Device(place) if place.total() != len => return Err(Failure::TooSmall { block_len }),
            Destination::Device(place) => Target::Device(place),
        };
        Ok(Ready { token: read.token, found, offset: read.offset, len, to })
    }

    /// Asks for the first lines of what is copied next, and of where it goes: a copy that starts on pages that the
    /// processor has not translated yet waits for both translations, one after the other.
    fn prefetch_bytes(&self, ready: &Ready) {
        if let Target::Lent(Regions::One(to)) = &ready.to {
            prefetch(to.start);
        }
        if let Some(start) = self.mapping.readable_at(ready.found.offset() + ready.offset, ready.len) {
            let lines = PREFETCHED_LINES.min((ready.len as usize).div_ceil(64));
            (0..lines).for_each(|line| prefetch(start.wrapping_add(line * 64)));
        }
    }

    /// Copies blocks one after the other. A batch as large as a large block bypasses the cache, as that would.
    fn read_small(&mut self, small: Vec<Ready>, streaming: bool) {
        let mut small = small.into_iter();
        while let Some(mut ready) = small.next() {
            if let Some(next) = small.as_slice().first() {
                self.prefetch_bytes(next);
            }
            if let Some(job) = self.job(&mut ready) {
                let (mut to, mut from) = (job.to.cursor(), job.from.cursor());
                let copy = if streaming { copy::stream_scattered } else { copy::copy_scattered };
                // SAFETY: the source lies inside the mapping and may change under the copy, which the check in `conclude`
                // then finds; the destination is the caller's promise, or ours and large enough.
                unsafe { copy(&mut to, &mut from, ready.len as usize) };
            }
            self.conclude(ready);
        }
        copy::fence();
    }

    fn read_large(&mut self, mut large: Vec<Ready>, deadline: Deadline) {
        let mut jobs: Vec<CopyJob<'_>> = large.iter_mut().filter_map(|ready| self.job(ready)).collect();
        // SAFETY: as in `read_small`, for each job.
        let in_time = unsafe { copy_jobs(&self.copies, &mut jobs, deadline, |_| ()) };
        drop(jobs);
        for ready in large {
            match in_time {
                true => self.conclude(ready),
                false => self.finish(ready.token, Err(Failure::TimedOut)),
            }
        }
    }

    fn job(&self, ready: &mut Ready) -> Option<CopyJob<'static>> {
        let start = self.mapping.readable_at(ready.found.offset() + ready.offset, ready.len)?;
        let from = Regions::One(Region { start: start.cast_mut(), len: ready.len as usize });
        Some(CopyJob { to: ready.to.regions(ready.len), from, len: ready.len, checksums: None })
    }

    /// A read came to nothing.
    pub(crate) fn fail(&mut self, ready: &Ready, failure: Failure) {
        self.finish(ready.token, Err(failure));
    }

    /// Decides what a copy was worth.
    pub(crate) fn conclude(&mut self, ready: Ready) {
        let intact = !self.verify || self.is_intact(&ready);
        let outcome = if !self.mapping.is_current(&ready.found) {
            Err(Failure::LostRace)
        } else if !intact {
            Err(Failure::Corrupt(self.mapping.copy_name(&ready.found)))
        } else {
            Ok(self.delivered(&ready.found, ready.len, ready.to))
        };
        self.finish(ready.token, outcome);
    }

    fn delivered(&self, found: &Found, len: u64, to: Target) -> Done {
        let data = match to {
            Target::Lent(_) | Target::Device(_) => None,
            Target::Own(mut bytes) => {
                // SAFETY: `len` bytes were reserved and have just been copied in.
                unsafe { bytes.set_len(len as usize) };
                Some(bytes)
            }
        };
        let (copy, slot, writer) = (self.mapping.copy_name(found), Some(found.slot()), found.writer());
        Done::Read { copy, slot, writer, block_len: found.len(), bytes: len, data, checksums: None }
    }

    /// Whether the chunks that were read match their checksums, in the slab.
    fn is_intact(&self, ready: &Ready) -> bool {
        let block_len = ready.found.len();
        let (first, last) = (ready.offset / CHUNK_LEN, (ready.offset + ready.len).div_ceil(CHUNK_LEN));
        let (start, end) = (first * CHUNK_LEN, (last * CHUNK_LEN).min(block_len));
        let bytes = self.mapping.readable_at(ready.found.offset() + start, end - start);
        let sums = self.mapping.readable_at(ready.found.checksums_at() + 4 * first, 4 * (last - first));
        let (Some(bytes), Some(sums)) = (bytes, sums) else { return false };
        // SAFETY: both ranges lie inside the mapping. If the slot is reused meanwhile the bytes are garbage, which at
        // worst makes a read fail that had lost its race anyway. Nothing promises that the sums are aligned.
        let (bytes, sums) = unsafe {
            let sum = |n: u64| sums.cast::<u32>().add(n as usize).read_unaligned();
            let sums: Vec<u32> = (0..last - first).map(sum).collect();
            (std::slice::from_raw_parts(bytes, (end - start) as usize), sums)
        };
        BlockChecksum::new(ready.found.id(), block_len).verify(start, bytes, &sums).is_ok()
    }

    /// Writes, as `submit` does, for a caller who has something else to do: `tell` has what is done, as it is done. It is called
    /// at least once, at the end; while copy threads copy also at the beginning, when nothing is done.
    pub fn write_in_turn(
        &mut self,
        writes: Vec<WriteOp>,
        deadline: Deadline,
        mut tell: impl FnMut(&mut VecDeque<Completion>),
    ) {
        self.in_runs(writes, deadline, |this, run| this.write_all(run, deadline, &mut tell));
        tell(&mut self.done);
    }

    fn write_all(&mut self, writes: Vec<WriteOp>, deadline: Deadline, mut tell: impl FnMut(&mut VecDeque<Completion>)) {
        let chunks = |write: &WriteOp| chunk_count(write.source.total()) as usize;
        let mut sums = vec![0; writes.iter().map(chunks).sum()];
        let (mut left, mut jobs, mut tokens) =
            (&mut *sums, Vec::with_capacity(writes.len()), Vec::with_capacity(writes.len()));
        for write in writes {
            let len = write.source.total();
            let Some(start) = self.mapping.writable_at(write.slab_offset, len) else {
                self.finish(write.token, Err(Failure::Unavailable));
                continue;
            };
            let out = left.split_off_mut(..chunks(&write)).expect("there is room for all");
            tokens.push(write.token);
            jobs.push(CopyJob {
                to: Regions::One(Region { start, len: len as usize }),
                from: write.source,
                len,
                checksums: Some(ChecksumsInto { checksum: BlockChecksum::new(write.id, len), first_chunk: 0, out }),
            });
        }
        let mut told = 0;
        let done = &mut self.done;
        let written = |in_place: &[CopyJob<'_>]| {
            for (job, token) in in_place.iter().zip(&tokens).skip(told) {
                let checksums = job.checksums.iter().flat_map(|into| into.out.iter().copied()).collect();
                done.push_back(Completion { token: *token, outcome: Ok(Done::Written { checksums }) });
            }
            told = told.max(in_place.len());
            tell(done);
        };
        // SAFETY: each destination lies inside the writable mapping and is this writer's reservation, which the node gives
        // to nobody else while this process lives; the sources are the caller's promise.
        unsafe { copy_jobs(&self.copies, &mut jobs, deadline, written) };
        tokens[told..].iter().for_each(|token| self.finish(*token, Err(Failure::TimedOut)));
    }
}

/// Copies the jobs of one run; a block that is longer than a run in parts, with a look at the clock between them. False when
/// the deadline passed first. `tell` has those of the first that are in place, as in [`CopyPool::run_in_turn`].
///
/// # Safety
/// As for [`CopyPool::run`].
unsafe fn copy_jobs(
    copies: &CopyPool,
    jobs: &mut [CopyJob<'_>],
    deadline: Deadline,
    mut tell: impl FnMut(&[CopyJob<'_>]),
) -> bool {
    let job = match jobs {
        [job] if job.len > RUN_BYTES => job,
        jobs => {
            // SAFETY: passed on from the caller.
            unsafe { copies.run_in_turn(jobs, tell) };
            return true;
        }
    };
    let (mut start, len) = (0, job.len);
    while start < len {
        if start > 0 && deadline.has_passed() {
            return false;
        }
        let part = RUN_BYTES.min(len - start);
        // SAFETY: passed on from the caller: a part of a job's memory is valid if the whole is.
        unsafe { copies.run_in_turn(&mut [part_of(job, start, part)], |_| tell(&[])) };
        start += part;
    }
    tell(jobs);
    true
}

/// `len` bytes of a job, from the chunk at `start` on.
fn part_of<'a>(job: &'a mut CopyJob<'_>, start: u64, len: u64) -> CopyJob<'a> {
    let part = |regions: &Regions| {
        let mut pieces = Vec::new();
        regions.cursor_at(start).pieces(len, usize::MAX, &mut pieces);
        Regions::Many(pieces)
    };
    let (to, from) = (part(&job.to), part(&job.from));
    let checksums = job.checksums.as_mut().map(|into| {
        let chunk = start / CHUNK_LEN;
        let out = &mut into.out[chunk as usize..][..chunk_count(len) as usize];
        ChecksumsInto { checksum: into.checksum, first_chunk: into.first_chunk + chunk, out }
    });
    CopyJob { to, from, len, checksums }
}

impl Transport for ShmTransport {
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>> {
        let answers = vec![Ok(()); ops.len()];
        let (mut reads, mut writes) = (Vec::with_capacity(ops.len()), Vec::new());
        for op in ops {
            match op {
                Op::Read(read) => reads.push(read),
                Op::Write(write) => writes.push(write),
                // A range is another process's memory.
                Op::ReadRange(_) | Op::WriteRange(_) => self.finish(op.token(), Err(Failure::Unavailable)),
            }
        }
        self.read_all(reads, deadline);
        if !writes.is_empty() {
            self.write_in_turn(writes, deadline, |_| ());
        }
        answers
    }

    fn poll(&mut self, done: &mut Vec<Completion>, _until: Deadline) -> usize {
        let count = self.done.len();
        done.extend(self.done.drain(..));
        count
    }

    fn cancel(&mut self, _token: u64) {}

    fn cancel_all(&mut self) {}

    fn health(&self) -> Health {
        Health::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock was looked at between blocks only: a read of 1 GiB that had 5 ms took as long as it took.
    #[test]
    fn a_deadline_is_noticed_inside_a_block() {
        let len = RUN_BYTES as usize + 2;
        let (from, mut to) = (vec![7u8; len], vec![0u8; len]);
        let (from, into) = (Region::of(&from), Region::of_mut(&mut to));
        let mut jobs = [CopyJob { to: Regions::One(into), from: Regions::One(from), len: len as u64, checksums: None }];
        let memory = CopyPool::new(0);
        // SAFETY: both buffers are this test's own.
        assert!(!unsafe { copy_jobs(&memory, &mut jobs, Deadline::after(std::time::Duration::ZERO), |_| ()) });
        assert!(to[..RUN_BYTES as usize].iter().all(|byte| *byte == 7) && to[RUN_BYTES as usize..] == [0, 0]);
        let later = Deadline::after(std::time::Duration::from_secs(60));
        // SAFETY: as above.
        assert!(unsafe { copy_jobs(&memory, &mut jobs, later, |_| ()) });
        assert!(to.iter().all(|byte| *byte == 7));
    }
}
