//! Calls that run on the client's own threads, and the handles by which their results are fetched.
//!
//! A bounded number of threads, started as they are needed, take work from a bounded queue; when it is full, more work is
//! refused. A result is a future and a blocking wait at once.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use thiserror::Error;
use tidepool_locks::{Condvar, Mutex};

/// The client has as many calls waiting as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("too many calls are waiting for a worker")]
pub struct Overloaded;

/// Why a spawned call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lost {
    /// It panicked.
    #[error("the call panicked")]
    Panicked,
    /// The client ended before the call could start.
    #[error("the client ended before the call could start")]
    Ended,
}

/// A call that runs elsewhere. Dropping it gives the result up, not the safety of anybody's memory.
#[must_use = "a dropped call's result is thrown away"]
pub struct Call<T> {
    outcome: Arc<Outcome<T>>,
}

/// Where a result appears.
struct Outcome<T> {
    /// Short sections: leaving and fetching the result.
    state: Mutex<State<T>>,
    arrived: Condvar,
}

enum State<T> {
    Waiting(Option<Waker>),
    Arrived(Result<T, Lost>),
    Fetched,
}

impl<T> Call<T> {
    /// Blocks until the call is over.
    pub fn wait(self) -> Result<T, Lost> {
        let mut state = self.outcome.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Fetched) {
                State::Arrived(result) => return result,
                State::Fetched => return Err(Lost::Ended),
                waiting => *state = waiting,
            }
            self.outcome.arrived.wait(&mut state);
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.outcome.state.lock();
        match std::mem::replace(&mut *state, State::Fetched) {
            State::Arrived(result) => Poll::Ready(result),
            State::Fetched => Poll::Ready(Err(Lost::Ended)),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

/// Leaves the result; a job that is dropped unrun leaves [`Lost::Ended`].
struct Promise<T>(Weak<Outcome<T>>);

impl<T> Promise<T> {
    fn keep(&self, result: Result<T, Lost>) {
        let Some(outcome) = self.0.upgrade() else { return };
        let mut state = outcome.state.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Arrived(result);
            drop(state);
            outcome.arrived.notify_all();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn is_wanted(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.keep(Err(Lost::Ended));
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads that run calls.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    most: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    /// Short sections: handing jobs over.
    queue: Mutex<Queue>,
    wake: Condvar,
    most_queued: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    ended: bool,
}

impl Workers {
    pub(crate) fn new(most: usize, most_queued: usize) -> Self {
        let shared = Shared { queue: Mutex::default(), wake: Condvar::new(), most_queued };
        Self { shared: Arc::new(shared), most, threads: Mutex::default() }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Call<T>, Overloaded> {
        let outcome = Arc::new(Outcome { state: Mutex::new(State::Waiting(None)), arrived: Condvar::new() });
        let promise = Promise(Arc::downgrade(&outcome));
        let job = move || {
            if promise.is_wanted() {
                promise.keep(catch_unwind(AssertUnwindSafe(work)).map_err(|_| Lost::Panicked));
            }
        };
        self.enqueue(Box::new(job))?;
        Ok(Call { outcome })
    }

    fn enqueue(&self, job: Job) -> Result<(), Overloaded> {
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.shared.most_queued {
            return Err(Overloaded);
        }
        // Under the lock, so that a job is only ever queued for a thread that there is.
        if queue.idle <= queue.jobs.len() && !self.have_threads() {
            return Err(Overloaded);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Starts one more thread, if there may be one more; false if there is none at all.
    fn have_threads(&self) -> bool {
        let mut threads = self.threads.lock();
        if threads.len() < self.most {
            let shared = Arc::clone(&self.shared);
            let name = format!("tp-call-{}", threads.len());
            match std::thread::Builder::new().name(name).spawn(move || shared.work()) {
                Ok(thread) => threads.push(thread),
                Err(error) => tracing::warn!(%error, "no thread for a call"),
            }
        }
        !threads.is_empty()
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.queue.lock();
            } else if queue.ended {
                return;
            } else {
                queue.idle += 1;
                self.wake.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.ended = true;
        let unrun = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.shared.wake.notify_all();
        drop(unrun);
        for thread in self.threads.get_mut().drain(..) {
            // A call that held the last clone of its client ends the workers from inside: it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
