//! The reads that are under way to one node.

use super::{Group, OwnTransport, Reads, SILENCE, Source};
use crate::ops::{Completion, Failure, Op, Refused};
use crate::transport::{Health, Transport as _};
use std::time::Instant;
use tidepool_types::Deadline;

pub(super) struct Flight<'a, S> {
    group: &'a Group<&'a S>,
    /// Dropped on a panic, which waits until nothing touches the reads' memory any more.
    transport: OwnTransport<'a>,
    under_way: usize,
    /// Reads that the transport had no room for yet.
    waiting: Vec<usize>,
    /// When the last read completed.
    heard: Instant,
    cancelled: bool,
}

impl<'a, S: Source> Flight<'a, S> {
    /// Asks for as many reads of the group as the transport takes.
    pub(super) fn start(
        group: &'a Group<&'a S>,
        transport: OwnTransport<'a>,
        reads: &mut impl Reads,
        deadline: Deadline,
    ) -> Self {
        let waiting = group.reads.clone();
        let mut flight = Self { group, transport, under_way: 0, waiting, heard: Instant::now(), cancelled: false };
        flight.submit(reads, deadline);
        flight
    }

    fn submit(&mut self, reads: &mut impl Reads, deadline: Deadline) {
        let waiting = std::mem::take(&mut self.waiting);
        let ops = waiting.iter().map(|&read| Op::Read(reads.op(read))).collect();
        let answers = self.transport.get().submit(ops, deadline);
        for (read, answer) in waiting.into_iter().zip(answers) {
            match answer {
                Ok(()) => self.under_way += 1,
                Err(Refused::Full) => self.waiting.push(read),
                Err(Refused::Closed) => reads.settle(read, Err(Failure::Unavailable)),
            }
        }
    }

    /// Takes in what arrives before `until`. `None` when all reads are settled.
    pub(super) fn advance(
        mut self,
        reads: &mut impl Reads,
        deadline: Deadline,
        until: Deadline,
        alone: bool,
    ) -> Option<Self> {
        let mut done = Vec::new();
        // Waking for every frame would take time from the threads that receive; but what waits for room goes out early.
        let least = if self.waiting.is_empty() && alone { self.under_way } else { 1 };
        match self.transport.get().poll_many(&mut done, least, until) {
            0 if self.heard.elapsed() >= SILENCE => self.doubt(deadline),
            0 => {}
            _ => self.heard = Instant::now(),
        }
        done.drain(..).for_each(|completion| self.settle(reads, completion));
        if !reads.go_on() {
            self.cancel();
        }
        if !self.waiting.is_empty() && !self.cancelled {
            self.submit(reads, deadline);
        }
        if self.under_way > 0 {
            return Some(self);
        }
        self.waiting.iter().for_each(|&read| reads.settle(read, Err(Failure::Unavailable)));
        match self.transport.get().health() {
            Health::Down => self.group.source.has_failed(),
            Health::Up | Health::Degraded => self.transport.give_back(),
        }
        None
    }

    /// The node keeps silent. Once others find so too, or time is up, its reads are given up.
    fn doubt(&mut self, deadline: Deadline) {
        self.group.source.is_late();
        if self.group.source.is_silent(self.heard.elapsed()) || deadline.has_passed() {
            self.cancel();
        }
    }

    /// Gives all reads up; those that have completed take no notice.
    fn cancel(&mut self) {
        if !std::mem::replace(&mut self.cancelled, true) {
            self.transport.get().cancel_all();
        }
    }

    fn settle(&mut self, reads: &mut impl Reads, completion: Completion) {
        self.under_way -= 1;
        match completion.outcome {
            Err(Failure::Unavailable) => self.group.source.has_failed(),
            Err(Failure::TimedOut | Failure::Cancelled) => self.group.source.is_late(),
            _ => {}
        }
        // A transport completes only what was submitted.
        if let Ok(read) = usize::try_from(completion.token) {
            reads.settle(read, completion.outcome);
        }
    }
}
