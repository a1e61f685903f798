//! What the caller and the stream threads share: operations, the slices waiting to be moved, and what each stream has
//! under way. All of it behind one lock that is held for bookkeeping only, never while bytes move.
//!
//! The rule that keeps callers' memory safe: a thread touches an operation's memory only between a call here that counts
//! it as a user and one that counts it out, and an operation completes only without users. An answer to an operation that
//! has completed finds nothing here and is thrown away.

use super::operation::{OpKey, Operation, Slice, Work};
use super::{Limits, stream_state::StreamState};
use crate::ops::{Completion, Failure, Op, Refused};
use std::collections::VecDeque;
use tidepool_types::Deadline;

/// How many failing streams one operation's slices are moved off before it fails.
const MAX_MOVES: u32 = 16;

#[derive(Debug)]
pub(super) struct Board {
    pub(super) limits: Limits,
    ops: Vec<Option<(u64, Operation)>>,
    free: Vec<u32>,
    next_stamp: u64,
    /// Bytes that the operations on the board are charged with.
    pub(super) bytes: u64,
    pub(super) reads: VecDeque<Slice>,
    pub(super) writes: VecDeque<Slice>,
    /// Charges of `reads` together.
    pub(super) waiting_bytes: u64,
    pub(super) finished: Vec<Completion>,
    /// How many of these the caller waits for, at least one: it is not woken for fewer while more can come.
    pub(super) awaited: usize,
    pub(super) streams: Vec<StreamState>,
    /// The stream whose answers the caller receives itself.
    pub(super) left_to_caller: Option<usize>,
    pub(super) last_number: u64,
    /// The length that a block is expected to have when nothing is known: a running mean of those seen.
    pub(super) typical_len: u64,
    /// No operation's unhandled deadline is earlier.
    pub(super) next_expiry: Option<Deadline>,
    /// Streams that have failed so far.
    pub(super) incidents: u64,
    /// Set once the peer is given up.
    pub(super) closed: bool,
}

impl Board {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            ops: Vec::new(),
            free: Vec::new(),
            next_stamp: 0,
            bytes: 0,
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            waiting_bytes: 0,
            finished: Vec::new(),
            awaited: 1,
            streams: (0..limits.streams).map(|_| StreamState::default()).collect(),
            left_to_caller: None,
            last_number: 0,
            typical_len: 64 << 10,
            next_expiry: None,
            incidents: 0,
            closed: false,
            limits,
        }
    }

    /// Takes an operation on; one that is `late`, its deadline having passed, only to time out.
    pub(super) fn submit(&mut self, op: Op, deadline: Deadline, late: bool) -> Result<(), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.under_way() >= self.limits.max_ops || self.bytes >= self.limits.max_bytes {
            return Err(Refused::Full);
        }
        let mut operation = Operation::new(op, deadline);
        if late {
            operation.fail(Failure::TimedOut);
        }
        operation.charge = self.charge_of(&operation);
        self.bytes += operation.charge;
        self.next_expiry = Some(self.next_expiry.map_or(deadline, |earliest| earliest.min(deadline)));
        let key = self.insert(operation);
        self.enqueue_first(key);
        self.settle(key);
        Ok(())
    }

    /// What an operation counts against the bound on bytes under way.
    fn charge_of(&self, operation: &Operation) -> u64 {
        match &operation.work {
            Work::Read(read) if read.is_open_ended() => self.typical_len,
            Work::Read(read) => read.first_len(u64::MAX),
            Work::Write(write) => write.len,
            Work::ReadRange(read) => read.len,
            Work::WriteRange(write) => write.len,
        }
    }

    /// Queues the first slice of a block's read, or all slices of what has a known length.
    fn enqueue_first(&mut self, key: OpKey) {
        let (typical, read_slice, write_slice) = (self.typical_len, self.limits.slice, self.limits.write_slice);
        let Some(operation) = self.live(key) else { return };
        match &operation.work {
            Work::Read(read) => {
                let len = read.first_len(read_slice);
                let charge = if read.is_open_ended() { len.min(typical) } else { len };
                self.push_read(Slice { op: key, start: 0, len, charge });
            }
            Work::Write(write) => {
                let len = write.len;
                self.writes.extend(cut(key, 0, len, write_slice));
            }
            Work::ReadRange(read) => {
                let len = read.len;
                cut(key, 0, len, read_slice).for_each(|slice| self.push_read(slice));
            }
            Work::WriteRange(write) => {
                let len = write.len;
                self.writes.extend(cut(key, 0, len, write_slice));
            }
        }
    }

    /// Queues the slices of a read after its first, once the first answer has said how much there is.
    pub(super) fn enqueue_rest(&mut self, key: OpKey, from: u64) {
        let slice = self.limits.slice;
        let Some(Operation { work: Work::Read(read), .. }) = self.get(key) else { return };
        let Some(total) = read.total() else { return };
        for slice in cut(key, from, total, slice) {
            self.push_read(slice);
        }
    }

    fn push_read(&mut self, slice: Slice) {
        self.waiting_bytes += slice.charge;
        self.reads.push_back(slice);
    }

    /// Puts a slice back where it was taken from.
    pub(super) fn push_read_first(&mut self, slice: Slice) {
        self.waiting_bytes += slice.charge;
        self.reads.push_front(slice);
    }

    pub(super) fn pop_read(&mut self) -> Option<Slice> {
        let slice = self.reads.pop_front()?;
        self.waiting_bytes -= slice.charge;
        Some(slice)
    }

    /// Puts a slice of a failing stream first in line for another one.
    pub(super) fn move_slice(&mut self, slice: Slice) {
        let incident = self.incidents;
        let Some(operation) = self.live(slice.op) else { return };
        operation.moves += u32::from(operation.last_incident != incident);
        operation.last_incident = incident;
        if operation.moves > MAX_MOVES {
            operation.fail(Failure::Unavailable);
            return self.settle(slice.op);
        }
        match operation.work {
            Work::Read(_) | Work::ReadRange(_) => self.push_read_first(slice),
            Work::Write(_) => self.writes.push_front(slice),
            // Its bytes may still be applied: written again, they could overtake what their writer writes next.
            Work::WriteRange(_) => {
                operation.fail(Failure::Unavailable);
                self.settle(slice.op);
            }
        }
    }

    /// Whether as much has finished as the caller waits for, or all that there is.
    pub(super) fn is_worth_a_wake(&self) -> bool {
        self.finished.len() >= self.awaited || (self.under_way() == 0 && !self.finished.is_empty())
    }

    pub(super) fn under_way(&self) -> usize {
        self.ops.len() - self.free.len()
    }

    fn insert(&mut self, operation: Operation) -> OpKey {
        self.next_stamp += 1;
        let stamp = self.next_stamp;
        let place = self.free.pop().unwrap_or_else(|| {
            self.ops.push(None);
            self.ops.len() as u32 - 1
        });
        self.ops[place as usize] = Some((stamp, operation));
        OpKey { place, stamp }
    }

    pub(super) fn get(&mut self, key: OpKey) -> Option<&mut Operation> {
        match self.ops.get_mut(key.place as usize)? {
            Some((stamp, operation)) if *stamp == key.stamp => Some(operation),
            _ => None,
        }
    }

    /// The operation, unless it has completed or failed.
    pub(super) fn live(&mut self, key: OpKey) -> Option<&mut Operation> {
        self.get(key).filter(|operation| operation.verdict.is_none())
    }

    /// Completes the operation if it is over.
    pub(super) fn settle(&mut self, key: OpKey) {
        if self.get(key).is_some_and(|operation| operation.is_over())
            && let Some((_, operation)) = self.ops[key.place as usize].take()
        {
            self.free.push(key.place);
            self.bytes -= operation.charge;
            self.finished.push(operation.into_completion());
        }
    }

    pub(super) fn fail(&mut self, key: OpKey, failure: Failure) {
        if let Some(operation) = self.get(key) {
            operation.fail(failure);
        }
        self.settle(key);
    }

    /// Fails every operation for which `which` gives a reason.
    fn fail_where(&mut self, which: impl Fn(&Operation) -> Option<Failure>) {
        for place in 0..self.ops.len() {
            let Some((stamp, operation)) = &self.ops[place] else { continue };
            let key = OpKey { place: place as u32, stamp: *stamp };
            if let Some(failure) = which(operation) {
                self.fail(key, failure);
            }
        }
    }

    pub(super) fn cancel(&mut self, token: u64) {
        self.fail_where(|operation| (operation.token == token).then_some(Failure::Cancelled));
    }

    pub(super) fn cancel_all(&mut self) {
        self.fail_where(|_| Some(Failure::Cancelled));
    }

    /// Gives the peer up: everything under way fails and nothing new is accepted.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.fail_where(|_| Some(Failure::Unavailable));
    }

    /// Times out what is past its deadline. Where a thread is touching such an operation's memory, its stream is closed, so
    /// that it lets go.
    pub(super) fn expire(&mut self) {
        if self.next_expiry.is_none_or(|earliest| !earliest.has_passed()) {
            return;
        }
        for place in 0..self.ops.len() {
            let Some((stamp, operation)) = &mut self.ops[place] else { continue };
            let key = OpKey { place: place as u32, stamp: *stamp };
            if !operation.expired && operation.deadline.has_passed() {
                operation.expired = true;
                operation.fail(Failure::TimedOut);
                self.streams.iter().for_each(|stream| stream.close_if_using(key));
                self.settle(key);
            }
        }
        let waiting = self.ops.iter().flatten().filter(|(_, operation)| !operation.expired);
        self.next_expiry = waiting.map(|(_, operation)| operation.deadline).min();
    }
}

/// Cuts `from..to` of an operation into slices.
fn cut(op: OpKey, from: u64, to: u64, slice: u64) -> impl Iterator<Item = Slice> {
    (from..to).step_by(slice as usize).map(move |start| {
        let len = slice.min(to - start);
        Slice { op, start, len, charge: len }
    })
}
