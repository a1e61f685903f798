//! What moves one catalog's stream: whoever waits for it, on his own thread.
//!
//! A thread that does nothing but move the stream would be woken for each message out and for each answer, and would wake
//! the put that waits for that: two wake-ups more on the way of every put. Between puts the sender's heartbeats move it.

use std::future::Future;
use std::io;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};

/// A catalog that is well answers within this time.
const AWAKE: Duration = Duration::from_micros(200);

/// See the file's head.
pub(super) struct Driver {
    /// Present until it is dropped.
    runtime: Option<Runtime>,
}

impl Driver {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { runtime: Some(Builder::new_current_thread().enable_all().build()?) })
    }

    /// Moves the stream until `work` is done. Several threads may: one moves it, and the others hear of what they wait for.
    pub(super) fn drive<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        let runtime = self.runtime.as_ref().expect("it is there until it is dropped");
        if Handle::try_current().is_err() {
            return runtime.block_on(work);
        }
        // A thread of somebody's asynchronous runtime cannot drive another one.
        let driven = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
        driven.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// As [`Driver::drive`], for what is expected at once: looks for it again and again for a moment before it sleeps, since
    /// waking up takes about as long as an answer.
    pub(super) fn drive_awake<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        self.drive(async {
            let mut work = std::pin::pin!(work);
            let asleep = Instant::now() + AWAKE;
            while Instant::now() < asleep {
                if let Poll::Ready(done) =
                    std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await
                {
                    return done;
                }
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
            work.await
        })
    }

    /// Moves what can be moved without waiting.
    pub(super) fn turn(&self) {
        // A message goes from the queue to the stream and from there to the connection, which writes it.
        const TASKS: usize = 4;
        self.drive(async {
            for _ in 0..TASKS {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Not waited for: this may be a thread of another runtime, where that is forbidden, and a thread that looks up a name
        // may hang.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
