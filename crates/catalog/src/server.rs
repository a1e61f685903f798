//! A running catalog: its socket, its threads, its end.

use crate::config::{CatalogConfig, InvalidConfig};
use crate::core::Core;
use crate::guests::Voice;
use crate::incoming::Incoming;
use crate::members::NameConflict;
use crate::service::Service;
use crate::sweeper;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thiserror::Error;
use tidepool_types::Metric;
use tidepool_wire::catalog::catalog_server::CatalogServer;
use tidepool_wire::catalog::{CONNECTION_WINDOW, MAX_FRAME_LEN, MAX_MESSAGE_LEN, STREAM_WINDOW};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
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

/// How long calls under way may take when the catalog stops. Most take a millisecond; clients that keep an idle
/// connection without looking at it take no notice of its end, and are not waited for any longer.
const GRACE: Duration = Duration::from_millis(200);

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
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Starts a catalog with threads of its own.
    pub fn start(config: CatalogConfig) -> Result<Self, StartError> {
        config.validate()?;
        let listen_error = |source| StartError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.workers)
            .thread_name("tp-catalog")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let core = Arc::new(Core::new(&config));
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        {
            let _inside = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener).map_err(listen_error)?;
            let incoming = Incoming::new(listener, config.max_connections, core.clone());
            tasks.spawn(serve(core.clone(), incoming, stopped));
            tasks.spawn(sweeper::run(core.clone()));
            tasks.spawn(tick(core.clone()));
        }
        tracing::info!(%address, incarnation = core.incarnation, "catalog listens");
        Ok(Self { address, core, running: Some(Running { runtime, stop, tasks }) })
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
        let Some(Running { runtime, stop, mut tasks }) = self.running.take() else { return };
        self.core.stopping.store(true, Ordering::Release);
        let _ = stop.send(());
        self.core.directory.end_all();
        runtime.block_on(async {
            // The first task to end is the server: the others run until they are told not to.
            let _ = tokio::time::timeout(GRACE, tasks.join_next()).await;
            tasks.shutdown().await;
        });
        runtime.shutdown_timeout(GRACE);
        tracing::info!(address = %self.address, "catalog stopped");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(core: Arc<Core>, incoming: Incoming, stopped: oneshot::Receiver<()>) {
    let service = CatalogServer::new(Service(core.clone()))
        .max_decoding_message_size(MAX_MESSAGE_LEN)
        .max_encoding_message_size(MAX_MESSAGE_LEN);
    let serves = move |request: tonic::Request<()>| {
        // Whoever asks keeps its connection.
        request.extensions().get().into_iter().for_each(Voice::raise);
        // A catalog that stops has ended its streams: what it would say of nodes is no longer true.
        match core.stopping.load(Ordering::Acquire) {
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
    let stop = async {
        let _ = stopped.await;
    };
    if let Err(error) = server.serve_with_incoming_shutdown(service, incoming, stop).await {
        tracing::error!(%error, "catalog stopped serving");
    }
}

async fn tick(core: Arc<Core>) {
    loop {
        tokio::time::sleep(TICK).await;
        core.directory.tick();
    }
}
