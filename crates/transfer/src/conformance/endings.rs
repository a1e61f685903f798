//! How operations end: each exactly once, and from then on nothing touches its memory.

use super::{Owner, PATIENCE, allocated, collect, failed, read, run};
use crate::ops::{Completion, Destination, Done, Failure, Op, ReadOp, Region, Regions, WriteOp};
use crate::testing::{block_bytes, block_id};
use crate::transport::Transport;
use std::time::Duration;
use tidepool_types::Deadline;
use tidepool_wire::message::SlotName;

/// What a caller writes to memory that the transport has let go of.
const CANARY: u8 = 0xcc;
/// Bytes from canary to canary in a read's memory: a few are written before what may be on its way has landed.
const CANARY_STEP: usize = 997;
/// Blocks that are moved in one piece, in several, and in slices over several streams.
const LENS: [usize; 3] = [100, 300_000, (5 << 20) + 5];
/// Operations of a [`Lent`].
const LENT: usize = 2 * LENS.len();

fn an_hour() -> Deadline {
    Deadline::after(Duration::from_secs(3600))
}

pub(super) fn a_passed_deadline_is_a_time_out(owner: &dyn Owner) {
    owner.put(700, &block_bytes(700, 100));
    let mut transport = owner.transport();
    let (slot, slab_offset) = owner.reserve(701, 100);
    let source = Regions::One(Region::of(&[CANARY; 100]));
    let write = Op::Write(WriteOp { token: 701, id: block_id(701), slot, slab_offset, source });
    let ops = vec![Op::Read(read(700, Destination::Allocate)), write];
    assert!(transport.submit(ops, Deadline::after(Duration::ZERO)).iter().all(Result::is_ok));
    for completion in collect(&mut *transport, 2) {
        assert_eq!(failed(completion), Failure::TimedOut);
    }
    assert_ne!(owner.written(&slot), Some(vec![CANARY; 100]), "a write that timed out was applied");
}

pub(super) fn nothing_under_way_is_nothing_to_wait_for(owner: &dyn Owner) {
    let mut done = Vec::new();
    assert_eq!(owner.transport().poll(&mut done, an_hour()), 0);
}

/// Reads, large and small ones, and writes, and reads that fail.
pub(super) fn operations_of_one_batch_complete_exactly_once(owner: &dyn Owner) {
    const COUNT: u64 = 120;
    let source = block_bytes(802, 70_000);
    owner.put(800, &block_bytes(800, LENS[0]));
    owner.put(801, &block_bytes(801, LENS[1]));
    let whole = |token, number| Op::Read(ReadOp { token, ..read(number, Destination::Allocate) });
    let op = |token| match token % 4 {
        0 => whole(token, 800),
        1 => whole(token, 801),
        2 => whole(token, 899),
        _ => {
            let (slot, slab_offset) = owner.reserve(802, source.len());
            Op::Write(WriteOp {
                token,
                id: block_id(802),
                slot,
                slab_offset,
                source: Regions::One(Region::of(&source)),
            })
        }
    };
    let mut transport = owner.transport();
    assert!(transport.submit((0..COUNT).map(op).collect(), Deadline::after(PATIENCE)).iter().all(Result::is_ok));
    let mut done = Vec::new();
    assert_eq!(transport.poll_many(&mut done, COUNT as usize, an_hour()), COUNT as usize, "it waits for all");
    done.sort_by_key(|completion| completion.token);
    assert!(done.iter().map(|completion| completion.token).eq(0..COUNT), "an operation completed twice");
    for completion in done {
        match (completion.token % 4, &completion.outcome) {
            (0, _) => assert!(allocated(completion) == block_bytes(800, LENS[0])),
            (1, _) => assert!(allocated(completion) == block_bytes(801, LENS[1])),
            (2, Err(Failure::Miss)) | (3, Ok(Done::Written { .. })) => {}
            _ => panic!("operation {} came to something else", completion.token),
        }
    }
    assert_eq!(transport.poll(&mut Vec::new(), an_hour()), 0, "an operation completed twice");
}

/// Uses a read's memory for something else.
fn mark(target: &mut [u8]) {
    target.iter_mut().step_by(CANARY_STEP).for_each(|byte| *byte = CANARY);
}

/// The memory of a read and a write of each of [`LENS`]: operations whose tokens are `first` and those after it.
struct Lent {
    targets: Vec<Vec<u8>>,
    sources: Vec<Vec<u8>>,
    slots: Vec<SlotName>,
}

impl Lent {
    /// Submits the operations and waits until `finished` of them are: the others are under way by then.
    fn submit(
        owner: &dyn Owner,
        transport: &mut dyn Transport,
        first: u64,
        finished: usize,
    ) -> (Self, Vec<Completion>) {
        let (mut targets, mut sources, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut ops = Vec::new();
        for (number, len) in (first..).zip(LENS) {
            owner.put(number, &block_bytes(number, len));
            let mut target = vec![0; len];
            ops.push(Op::Read(read(number, Destination::Into(Regions::One(Region::of_mut(&mut target))))));
            targets.push(target);
        }
        for (number, len) in (first + LENS.len() as u64..).zip(LENS) {
            let (slot, slab_offset) = owner.reserve(number, len);
            let mut bytes = block_bytes(number, len);
            let source = Regions::One(Region::of_mut(&mut bytes));
            ops.push(Op::Write(WriteOp { token: number, id: block_id(number), slot, slab_offset, source }));
            sources.push(bytes);
            slots.push(slot);
        }
        assert!(transport.submit(ops, Deadline::after(PATIENCE)).iter().all(Result::is_ok));
        let mut done = Vec::new();
        while done.len() < finished {
            assert!(transport.poll(&mut done, an_hour()) > 0, "nothing is under way");
        }
        (Self { targets, sources, slots }, done)
    }

    /// Uses the memory for something else, now that the transport has let go of it.
    fn reuse(&mut self) {
        self.targets.iter_mut().for_each(|target| mark(target));
        self.sources.iter_mut().for_each(|source| source.fill(CANARY));
    }

    /// Checks that nothing was read into the memory, or written from it, since.
    fn check(&self, owner: &dyn Owner) {
        let mut canaries = self.targets.iter().flat_map(|target| target.iter().step_by(CANARY_STEP));
        assert!(canaries.all(|byte| *byte == CANARY), "bytes landed in memory that had been let go");
        for slot in &self.slots {
            let written = owner.written(slot).expect("the reservation is open");
            let is_reused = written.chunks_exact(64).any(|bytes| *bytes == [CANARY; 64]);
            assert!(!is_reused, "bytes were taken from memory that had been let go");
        }
    }
}

pub(super) fn a_cancelled_operation_completes_once_and_lets_go_of_its_memory(owner: &dyn Owner) {
    for finished in 0..3 {
        let (first, end) = (900, 900 + LENT as u64);
        let mut transport = owner.transport();
        let (mut lent, mut done) = Lent::submit(owner, &mut *transport, first, finished);
        // One that is not there, and one once more.
        (first..=end).chain([first]).for_each(|token| transport.cancel(token));
        let left = LENT - done.len();
        done.extend(collect(&mut *transport, left));
        done.sort_by_key(|completion| completion.token);
        assert!(done.iter().map(|completion| completion.token).eq(first..end), "an operation completed twice");
        // At once: what may be on its way has not landed yet.
        let reads = &done[..LENS.len()];
        let cancelled = reads.iter().zip(&mut lent.targets).filter(|(read, _)| read.outcome.is_err());
        cancelled.for_each(|(_, target)| mark(target));
        for (read, target) in reads.iter().zip(&lent.targets).filter(|(read, _)| read.outcome.is_ok()) {
            assert!(*target == block_bytes(read.token, target.len()), "block {} was not read", read.token);
        }
        let mut failures = done.iter().filter_map(|completion| completion.outcome.as_ref().err());
        assert!(failures.all(|failure| *failure == Failure::Cancelled), "{done:?}");
        lent.reuse();
        // The transport goes on.
        let reads = (first..).take(LENS.len()).map(|number| Op::Read(read(number, Destination::Allocate))).collect();
        for (completion, (number, len)) in run(&mut *transport, reads).into_iter().zip((first..).zip(LENS)) {
            assert!(allocated(completion) == block_bytes(number, len), "block {number} after it was cancelled");
        }
        drop(transport);
        lent.check(owner);
    }
}

/// What was on its way gets the time that another transport needs for as much.
pub(super) fn a_dropped_transport_lets_go_of_what_is_under_way(owner: &dyn Owner) {
    for finished in 0..3 {
        let mut transport = owner.transport();
        let (mut lent, _) = Lent::submit(owner, &mut *transport, 920, finished);
        drop(transport);
        lent.reuse();
        let _ = Lent::submit(owner, &mut *owner.transport(), 940, LENT);
        lent.check(owner);
    }
}
