//! A catalog connection driven by the calling thread, without a background task.
//!
//! A background task that drives a connection is woken by the question, and again by the answer before it wakes the caller.
//! Here the calling thread sends, waits and reads. Each catalog has one such connection: a second caller at the same time
//! goes through the background. Nothing watches the connection while it is idle. It may turn out to be broken at its next
//! use, which says nothing about the catalog.

use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_schema as wire;
use tidepool_schema::catalog_client::CatalogClient;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::error::Elapsed;
use tonic::transport::Channel;

/// See the file's head.
pub(super) struct OwnConnection {
    address: String,
    connect_within: Duration,
    // Held while the connection is taken or given back, not while it is used.
    place: Mutex<Place>,
}

enum Place {
    /// Nobody has connected yet, or the last connection was given up.
    Empty,
    /// Waits for the next asker.
    Idle(Box<Open>),
    /// Somebody asks over it.
    Lent,
}

struct Open {
    /// Present until it is dropped.
    runtime: Option<Runtime>,
    client: CatalogClient<Channel>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Not waited for: this may be a thread of another runtime, where that is forbidden.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl OwnConnection {
    pub(super) fn new(address: &str, connect_within: Duration) -> Self {
        Self { address: address.to_owned(), connect_within, place: Mutex::new(Place::Empty) }
    }

    /// Runs `ask` on this thread, for as long as `within`; `None` when the connection is in use or cannot be made. It is kept when
    /// `is_sound` says that the answer does not speak against it.
    pub(super) fn drive<T, F>(
        &self,
        within: Duration,
        ask: impl FnOnce(CatalogClient<Channel>) -> F,
        is_sound: impl FnOnce(&Result<T, Elapsed>) -> bool,
    ) -> Option<Result<T, Elapsed>>
    where
        F: Future<Output = T>,
    {
        // A thread of somebody's asynchronous runtime cannot drive another one.
        if Handle::try_current().is_ok() {
            return None;
        }
        let open = self.take()?;
        let asked = ask(open.client.clone());
        let answer = open.runtime.as_ref()?.block_on(async { tokio::time::timeout(within, asked).await });
        *self.place.lock() = if is_sound(&answer) { Place::Idle(open) } else { Place::Empty };
        Some(answer)
    }

    fn take(&self) -> Option<Box<Open>> {
        let mut place = self.place.lock();
        match std::mem::replace(&mut *place, Place::Lent) {
            Place::Idle(open) => Some(open),
            Place::Lent => None,
            Place::Empty => {
                let open = self.open();
                if open.is_none() {
                    *place = Place::Empty;
                }
                open
            }
        }
    }

    /// Prepares a connection; it is made by the first question.
    fn open(&self) -> Option<Box<Open>> {
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let inside = runtime.enter();
        let channel = wire::endpoint(&self.address, self.connect_within).ok()?.connect_lazy();
        drop(inside);
        Some(Box::new(Open { runtime: Some(runtime), client: wire::client(channel) }))
    }
}
