//! A transport that fails on purpose.
//!
//! [`Faulty`] wraps any transport and does to some of its operations what networks and peers do: it loses answers, delays
//! them, fails operations, finds bytes corrupt, or closes for good. A [`FaultPlan`] says how often; its seed makes a run
//! repeatable. With an empty plan it changes nothing.

use crate::ops::{Completion, Done, Failure, Op, Refused};
use crate::transport::{Health, Transport};
use std::collections::HashMap;
use std::time::Duration;
use tidepool_types::{Deadline, Random};

/// What goes wrong and how often. The rates are out of a thousand operations; one operation suffers at most one fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Decides which operations are struck.
    pub seed: u64,
    /// Answers lost: the operation runs and is reported as timed out, at its deadline.
    pub lost: u32,
    /// Answers that come late.
    pub delayed: u32,
    /// By how much they are late.
    pub delay: Duration,
    /// Operations that fail at once as if the peer were unavailable, without having run.
    pub failed: u32,
    /// Reads that succeed and are then reported as corrupt.
    pub corrupt: u32,
    /// After this many operations the transport closes.
    pub close_after: Option<u64>,
}

impl FaultPlan {
    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Lost(Deadline),
    Delayed,
    Corrupt,
}

/// A transport under a [`FaultPlan`].
#[derive(Debug)]
pub struct Faulty<T> {
    inner: T,
    plan: FaultPlan,
    random: Random,
    submitted: u64,
    /// Faults of operations under way.
    struck: HashMap<u64, Fault>,
    /// Completions to be returned once their time has come.
    held: Vec<(Deadline, Completion)>,
}

impl<T: Transport> Faulty<T> {
    /// Puts `inner` under `plan`.
    pub fn new(inner: T, plan: FaultPlan) -> Self {
        Self { random: Random::new(plan.seed), inner, plan, submitted: 0, struck: HashMap::new(), held: Vec::new() }
    }

    /// The transport itself.
    pub fn into_inner(self) -> T {
        self.inner
    }

    fn is_closed(&self) -> bool {
        self.plan.close_after.is_some_and(|after| self.submitted >= after)
    }

    /// A number below a thousand: SplitMix64, so that a seed means the same run everywhere.
    fn draw(&mut self) -> u32 {
        (self.random.next() % 1000) as u32
    }

    /// Submits one operation, or fails it instead.
    fn submit_one(&mut self, op: Op, deadline: Deadline) -> Result<(), Refused> {
        if self.is_closed() {
            return Err(Refused::Closed);
        }
        self.submitted += 1;
        let token = op.token();
        let FaultPlan { lost, delayed, failed, corrupt, .. } = self.plan;
        let draw = self.draw();
        if draw < failed {
            let failed = Completion { token, outcome: Err(Failure::Unavailable) };
            self.held.push((Deadline::after(Duration::ZERO), failed));
            return Ok(());
        }
        let fault = match draw - failed {
            draw if draw < lost => Some(Fault::Lost(deadline)),
            draw if draw < lost + delayed => Some(Fault::Delayed),
            draw if draw < lost + delayed + corrupt => Some(Fault::Corrupt),
            _ => None,
        };
        let answer = self.inner.submit(vec![op], deadline).pop().unwrap_or(Err(Refused::Closed));
        if let (Ok(()), Some(fault)) = (answer, fault) {
            self.struck.insert(token, fault);
        }
        answer
    }

    /// Does to a completion what was decided when its operation was submitted.
    fn strike(&mut self, mut completion: Completion, done: &mut Vec<Completion>) {
        match self.struck.remove(&completion.token) {
            Some(Fault::Lost(deadline)) => {
                completion.outcome = Err(Failure::TimedOut);
                self.held.push((deadline, completion));
            }
            Some(Fault::Delayed) => self.held.push((Deadline::after(self.plan.delay), completion)),
            Some(Fault::Corrupt) => {
                if let Ok(Done::Read { copy, .. }) = completion.outcome {
                    completion.outcome = Err(Failure::Corrupt(copy));
                }
                done.push(completion);
            }
            None => done.push(completion),
        }
    }

    fn release_held(&mut self, done: &mut Vec<Completion>) {
        done.extend(self.held.extract_if(.., |(due, _)| due.has_passed()).map(|(_, completion)| completion));
    }
}

impl<T: Transport> Transport for Faulty<T> {
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>> {
        if self.plan.is_empty() {
            return self.inner.submit(ops, deadline);
        }
        ops.into_iter().map(|op| self.submit_one(op, deadline)).collect()
    }

    fn poll(&mut self, done: &mut Vec<Completion>, until: Deadline) -> usize {
        if self.struck.is_empty() && self.held.is_empty() {
            return self.inner.poll(done, until);
        }
        let before = done.len();
        loop {
            self.release_held(done);
            let next_held = self.held.iter().map(|(due, _)| *due).min();
            let mut finished = Vec::new();
            let wait = if done.len() > before { Deadline::after(Duration::ZERO) } else { until };
            self.inner.poll(&mut finished, next_held.map_or(wait, |due| due.min(wait)));
            let nothing_left = finished.is_empty() && self.struck.is_empty();
            finished.into_iter().for_each(|completion| self.strike(completion, done));
            if done.len() > before || until.has_passed() || (nothing_left && self.held.is_empty()) {
                return done.len() - before;
            }
            if nothing_left && let Some(due) = next_held {
                std::thread::sleep(due.min(until).remaining());
            }
        }
    }

    fn poll_many(&mut self, done: &mut Vec<Completion>, least: usize, until: Deadline) -> usize {
        match self.struck.is_empty() && self.held.is_empty() {
            true => self.inner.poll_many(done, least, until),
            false => self.poll(done, until),
        }
    }

    fn cancel(&mut self, token: u64) {
        self.inner.cancel(token);
    }

    fn cancel_all(&mut self) {
        self.inner.cancel_all();
    }

    fn health(&self) -> Health {
        if self.is_closed() { Health::Down } else { self.inner.health() }
    }
}
