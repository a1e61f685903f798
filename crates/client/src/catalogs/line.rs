//! A connection to a catalog that whoever asks drives himself.
//!
//! Over a connection that a background thread drives, a question wakes that thread, and the answer wakes it again before
//! it wakes the asker. Over a line the asker's own thread sends, waits and reads. There is one per catalog: a second asker
//! at the same time goes through the background. Nobody looks at an idle line, so it may turn out to be broken only when
//! it is used next, which says nothing about the catalog.

use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_schema as wire;
use tidepool_schema::catalog_client::CatalogClient;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::error::Elapsed;
use tonic::transport::Channel;

/// See the file's head.
pub(super) struct Line {
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

impl Line {
    pub(super) fn new(address: &str, connect_within: Duration) -> Self {
        Self { address: address.to_owned(), connect_within, place: Mutex::new(Place::Empty) }
    }

    /// Runs `ask` on this thread, for as long as `within`; `None` when the line is not to be had. The line is kept when
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
