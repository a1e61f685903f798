//! A crew: a few threads with a bounded queue of work. A full queue hands work back. Dropping the crew drops queued
//! work and waits for work that has begun.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tidepool_locks::{Condvar, Mutex};

/// The threads. `T` is a piece of work.
pub(crate) struct Crew<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T> {
    /// Short sections: handing work over.
    queue: Mutex<VecDeque<T>>,
    wake: Condvar,
    most: usize,
    ended: AtomicBool,
}

/// Tells work whether the crew is being dropped, so that long work can end early.
pub(crate) struct Ending<'a>(&'a AtomicBool);

impl Ending<'_> {
    pub(crate) fn is_near(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Crew<T> {
    /// Starts `threads` threads that run `work`, with at most `most` pieces queued.
    pub(crate) fn start(
        name: &str,
        threads: usize,
        most: usize,
        work: impl Fn(T, &Ending<'_>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let queue = Mutex::new(VecDeque::new());
        let shared = Arc::new(Shared { queue, wake: Condvar::new(), most, ended: AtomicBool::new(false) });
        let work = Arc::new(work);
        let mut crew = Self { shared, threads: Vec::new() };
        for index in 0..threads {
            let (shared, work) = (Arc::clone(&crew.shared), Arc::clone(&work));
            let thread = std::thread::Builder::new().name(format!("{name}-{index}"));
            crew.threads.push(thread.spawn(move || shared.serve(&*work))?);
        }
        Ok(crew)
    }

    /// Queues work, or hands it back when the queue is full.
    pub(crate) fn give(&self, work: T) -> Result<(), T> {
        let mut queue = self.shared.queue.lock();
        if queue.len() >= self.shared.most {
            return Err(work);
        }
        queue.push_back(work);
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl<T> Shared<T> {
    fn serve(&self, work: &impl Fn(T, &Ending<'_>)) {
        while let Some(next) = self.next() {
            // On a panic, dropping the work tells its owner; the thread goes on.
            let _ = catch_unwind(AssertUnwindSafe(|| work(next, &Ending(&self.ended))));
        }
    }

    fn next(&self) -> Option<T> {
        let mut queue = self.queue.lock();
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(work) = queue.pop_front() {
                return Some(work);
            }
            self.wake.wait(&mut queue);
        }
    }
}

impl<T: Send + 'static> Drop for Crew<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut queue = self.shared.queue.lock();
            self.shared.ended.store(true, Ordering::Relaxed);
            std::mem::take(&mut *queue)
        };
        self.shared.wake.notify_all();
        drop(waiting);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_full_queue_hands_work_back() {
        let (begun, begins) = sync_channel(1);
        let (gate, gated) = sync_channel::<()>(0);
        let gated = Mutex::new(gated);
        let crew = Crew::start("test", 1, 1, move |_: u32, _: &Ending<'_>| {
            let _ = begun.send(());
            let _ = gated.lock().recv();
        });
        let crew = crew.unwrap();
        crew.give(1).unwrap();
        begins.recv().unwrap();
        crew.give(2).unwrap();
        assert_eq!(crew.give(3), Err(3));
        drop(gate);
    }

    #[test]
    fn a_panic_loses_one_piece_of_work_only() {
        let (done, dones) = sync_channel(4);
        let crew = Crew::start("test", 1, 4, move |work: u32, _: &Ending<'_>| {
            assert!(work != 1, "for the test");
            let _ = done.send(work);
        });
        let crew = crew.unwrap();
        (1..=2).for_each(|work| crew.give(work).unwrap());
        assert_eq!(dones.recv(), Ok(2));
    }
}
