//! The trait that every way of moving bytes implements.

use crate::ops::{Completion, Op, Refused};
use tidepool_types::Deadline;

/// One way of moving bytes to and from one node.
///
/// *Completed means applied*: a completed read has its bytes in the destination, verified where they crossed a machine; a
/// completed write has them in the reservation. An operation's memory belongs to the transport from `submit` until its
/// completion has been returned by `poll`, also when it was cancelled or its deadline passed. A transport that is dropped
/// first waits until nothing touches the callers' memory.
pub trait Transport: Send {
    /// Starts operations, in order; `answers[i]` says whether `ops[i]` started. All must be over by `deadline`: what is not
    /// completes with [`crate::ops::Failure::TimedOut`] soon after.
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>>;

    /// Appends finished operations to `done`. Waits until there is at least one, nothing is under way or `until` has
    /// passed; returns how many were appended.
    fn poll(&mut self, done: &mut Vec<Completion>, until: Deadline) -> usize;

    /// As [`Transport::poll`], but waits for `least` completions, or as many as there are operations under way: a caller that
    /// has nothing to do before they are all in is not woken for each.
    fn poll_many(&mut self, done: &mut Vec<Completion>, least: usize, until: Deadline) -> usize {
        let _ = least;
        self.poll(done, until)
    }

    /// Gives up an operation. It still completes, as cancelled unless it had finished, once its memory is let go.
    fn cancel(&mut self, token: u64);

    /// Gives up all operations, as [`Transport::cancel`] does one.
    fn cancel_all(&mut self);

    /// Whether the peer can be reached, as far as this transport knows without asking.
    fn health(&self) -> Health;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>> {
        (**self).submit(ops, deadline)
    }

    fn poll(&mut self, done: &mut Vec<Completion>, until: Deadline) -> usize {
        (**self).poll(done, until)
    }

    fn poll_many(&mut self, done: &mut Vec<Completion>, least: usize, until: Deadline) -> usize {
        (**self).poll_many(done, least, until)
    }

    fn cancel(&mut self, token: u64) {
        (**self).cancel(token);
    }

    fn cancel_all(&mut self) {
        (**self).cancel_all();
    }

    fn health(&self) -> Health {
        (**self).health()
    }
}

/// What a transport knows of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Working.
    Up,
    /// Working with fewer rails than it should have.
    Degraded,
    /// Closed: make a new one.
    Down,
}
