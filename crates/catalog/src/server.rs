//! A running catalog: its socket, its threads, its end.
//!
//! Each worker serves the connections that it was given by itself: a runtime that shares work among its threads wakes a
//! second one for most messages, which takes longer than answering them. One thread more, the keeper, accepts connections,
//! deals them out, and does what is not urgent.

use crate::config::{CatalogConfig, InvalidConfig};
use crate::core::Core;
use crate::heap::{self, Burst};
use crate::incoming::{Accepted, Incoming, Stay};
use crate::members::NameConflict;
use crate::service::Service;
use crate::sweeper;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tidepool_locks::seats::{Seats, Voice};
use tidepool_schema::catalog_server::CatalogServer;
use tidepool_schema::{CONNECTION_WINDOW, MAX_FRAME_LEN, MAX_MESSAGE_LEN, STREAM_WINDOW};
use tidepool_types::Metric;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;

/// Why a catalog did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A field of the configuration is not allowed.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The address cannot be listened on.
    #[error("the catalog cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The threads cannot be started.
    #[error("the catalog cannot start its threads: {0}")]
    Threads(io::Error),
}

/// How often node states are brought up to date.
const TICK: Duration = Duration::from_millis(20);

/// How often it is looked whether a burst of connections is over.
const LULL: Duration = Duration::from_secs(1);

/// How long calls under way may take when the catalog stops. Most take a millisecond; clients that keep an idle
/// connection without looking at it take no notice of its end, and are not waited for any longer.
const GRACE: Duration = Duration::from_millis(200);

/// Connections that wait to be accepted. One that finds no room is tried again by its own kernel, a second later.
const BACKLOG: i32 = 4096;

/// Connections that wait for a worker to take them; with more, accepting waits.
const ARRIVALS: usize = 64;

/// Calls that one connection may have under way.
const CALLS_PER_CONNECTION: u32 = 256;

/// Connections whose other end has gone without a word are closed after twice this time.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A running catalog. Dropping it stops it, as [`Server::shutdown`] does.
pub struct Server {
    address: SocketAddr,
    core: Arc<Core>,
    running: Option<Running>,
}

struct Running {
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a catalog with threads of its own.
    pub fn start(config: CatalogConfig) -> Result<Self, StartError> {
        config.validate()?;
        let listen_error = |source| StartError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).map_err(listen_error)?;
        rustix::net::listen(&listener, BACKLOG).map_err(|error| listen_error(error.into()))?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let core = Arc::new(Core::new(&config));
        let (stop, stopped) = watch::channel(false);
        let (mut workers, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..config.workers {
            let (worker, arrivals) = mpsc::channel(ARRIVALS);
            workers.push(worker);
            let (core, stopped) = (core.clone(), stopped.clone());
            threads.push(start_thread(serve(core, arrivals, stopped))?);
        }
        let keep = keep(core.clone(), listener, Seats::new(config.max_connections), workers, stopped);
        threads.push(start_thread(keep)?);
        tracing::info!(%address, incarnation = core.incarnation, "catalog listens");
        Ok(Self { address, core, running: Some(Running { stop, threads }) })
    }

    /// Where the catalog listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The catalog's metrics now.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.core.metrics()
    }

    /// Whether a "no" from this catalog is a no now.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.core.directory.is_complete(&self.core.directory.view())
    }

    /// Names that two live nodes claim now.
    #[must_use]
    pub fn name_conflicts(&self) -> Vec<NameConflict> {
        self.core.directory.name_conflicts()
    }

    /// Ends all streams, lets calls under way finish for a moment, and joins every thread.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let Some(Running { stop, threads }) = self.running.take() else { return };
        self.core.stop();
        stop.send_replace(true);
        for thread in threads {
            let _ = thread.join();
        }
        tracing::info!(address = %self.address, "catalog stopped");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A thread that drives `work` to its end.
fn start_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Threads)?;
    let thread = std::thread::Builder::new().name("tp-catalog".to_owned());
    let drive = move || {
        runtime.block_on(work);
        runtime.shutdown_timeout(GRACE);
    };
    thread.spawn(drive).map_err(StartError::Threads)
}

/// Ends when the catalog stops.
async fn stopping(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// What the keeper does.
async fn keep(
    core: Arc<Core>,
    listener: TcpListener,
    seats: Arc<Seats<Stay>>,
    workers: Vec<mpsc::Sender<Accepted>>,
    stopped: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the catalog cannot accept connections"),
    };
    let incoming = Incoming::new(seats.clone(), core.clone());
    let deal = async {
        for worker in workers.iter().cycle() {
            // A worker that is gone panicked: its connections are, too.
            let _ = worker.send(incoming.accept(&listener).await).await;
        }
    };
    tokio::select! {
        () = stopping(stopped) => {}
        () = deal => {}
        () = sweeper::run(core.clone()) => {}
        () = tick(core) => {}
        () = tidy_up(seats) => {}
    }
}

/// Serves the connections of one worker. When the catalog stops, calls under way may finish for a moment.
async fn serve(core: Arc<Core>, arrivals: mpsc::Receiver<Accepted>, stopped: watch::Receiver<bool>) {
    let service = CatalogServer::new(Service(core.clone()))
        .max_decoding_message_size(MAX_MESSAGE_LEN)
        .max_encoding_message_size(MAX_MESSAGE_LEN);
    let serves = move |request: tonic::Request<()>| {
        // Whoever asks keeps its connection.
        request.extensions().get().into_iter().for_each(Voice::raise);
        match core.is_stopping() {
            true => Err(Status::unavailable("the catalog is stopping")),
            false => Ok(request),
        }
    };
    let service = InterceptedService::new(service, serves);
    let server = tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME_LEN)
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE));
    let connections =
        ReceiverStream::new(arrivals).filter_map(|accepted| accepted.connect().ok().map(Ok::<_, io::Error>));
    let served = server.serve_with_incoming_shutdown(service, connections, stopping(stopped.clone()));
    let patience = async {
        stopping(stopped).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = served => served.unwrap_or_else(|error| tracing::error!(%error, "catalog stopped serving")),
        () = patience => {}
    }
}

/// Gives back what a burst of connections took.
async fn tidy_up(seats: Arc<Seats<Stay>>) {
    let mut burst = Burst::default();
    loop {
        tokio::time::sleep(LULL).await;
        if burst.is_over(&seats) {
            // Not on this thread, which accepts connections.
            let _ = tokio::task::spawn_blocking(heap::give_back).await;
        }
    }
}

async fn tick(core: Arc<Core>) {
    loop {
        tokio::time::sleep(TICK).await;
        core.directory.tick();
    }
}
