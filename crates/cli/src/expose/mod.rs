//! `/metrics` and `/health` over HTTP: a daemon's pages.
//!
//! This is a server of our own rather than hyper: two read-only pages need no runtime, no keep-alive and no bodies. One
//! thread with `poll` and a few bounded connections is less to trust than a library's defaults. It also answers while
//! the rest of the process starts or stops, which is when operators look.
//!
//! Bounds: [`MOST_CONNECTIONS`] connections, beyond which the oldest is dropped (so slow clients cannot block others);
//! [`LONGEST_HEAD`] bytes of request; [`PATIENCE`] for a whole exchange.

mod connection;
mod request;
#[cfg(test)]
mod tests;
mod text;

use connection::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io::{self, PipeReader, PipeWriter},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};
use tidepool_types::{Metric, Value};

pub use text::render;

/// Connections open at once.
pub const MOST_CONNECTIONS: usize = 32;
/// Bytes of a request's head.
pub const LONGEST_HEAD: usize = 8 << 10;
/// Time from accepting a connection to dropping it, in any case.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The rest after a failed accept, which most likely lacked a descriptor that will be free again.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// The source of the pages.
pub trait Source: Send + Sync {
    /// The current metrics.
    fn metrics(&self) -> Vec<Metric>;
    /// The current health.
    fn health(&self) -> Health;
}

/// The content of `/health`.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Whether it serves: 200 or 503.
    pub serving: bool,
    /// The page, a JSON object.
    pub page: serde_json::Value,
}

/// A running endpoint; dropping it closes every connection.
pub struct Endpoint {
    address: SocketAddr,
    /// Closing this pipe wakes the thread and ends it.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens on `address` and serves `source` on a thread of its own.
    pub fn start(address: SocketAddr, source: Arc<dyn Source>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stopped, stop) = io::pipe()?;
        let server = Server { listener, stopped, source, connections: Vec::new(), dropped: 0 };
        let thread = std::thread::Builder::new().name("tp-metrics".to_owned()).spawn(move || server.run())?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    listener: TcpListener,
    stopped: PipeReader,
    source: Arc<dyn Source>,
    /// Oldest first.
    connections: Vec<Connection>,
    /// Connections dropped to make room.
    dropped: u64,
}

impl Server {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            if ready[0] {
                return;
            }
            let mut at = 0;
            let page = Pages { source: &*self.source, dropped: self.dropped };
            self.connections.retain_mut(|connection| {
                at += 1;
                connection.is_within_time() && (!ready[at + 1] || connection.advance(&page))
            });
            if ready[1] {
                self.accept();
            }
        }
    }

    /// Sleeps until some work is possible. Returns this for the stop, the listener, and each connection in turn.
    fn wait(&self) -> Vec<bool> {
        let mut fds = vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.connections.iter().map(|connection| PollFd::new(connection.socket(), connection.wants())));
        let patience = self.connections.iter().map(Connection::time_left).min();
        let limit = patience.and_then(|left| Timespec::try_from(left).ok());
        // An interrupted poll is an early one.
        let _ = poll(&mut fds, limit.as_ref());
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                if self.connections.len() >= MOST_CONNECTIONS {
                    self.connections.remove(0);
                    self.dropped += 1;
                }
                self.connections.push(Connection::new(stream));
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "accepting a connection to /metrics");
                std::thread::sleep(ACCEPT_REST);
            }
        }
    }
}

/// The pages that a request may get.
struct Pages<'a> {
    source: &'a dyn Source,
    dropped: u64,
}

impl Pages<'_> {
    fn metrics(&self) -> String {
        const NAME: &str = "tidepool_metrics_connections_dropped_total";
        const HELP: &str = "Connections to /metrics and /health dropped to make room for others.";
        let mut metrics = self.source.metrics();
        metrics.push(Metric::new(NAME, HELP, Value::Counter(self.dropped)));
        render(&metrics)
    }
}
