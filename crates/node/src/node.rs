//! Starting and stopping a node.

use crate::announce::{AnnounceConfig, Announcer, CatalogStatus, NodeInfo};
use crate::config::NodeConfig;
use crate::counters::Counters;
use crate::descriptors;
use crate::desk::Desks;
use crate::draining::Draining;
use crate::listen::{self, Listeners, SocketFile};
use crate::process::{Processes, add};
use crate::pull::Sources;
use crate::scrub;
use crate::spaces::Spaces;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use tidepool_locks::seats::Seats;
use tidepool_locks::{Condvar, Mutex};
use tidepool_store::inventory::Inventory as _;
use tidepool_store::{NodeMemory, OpenError};
use tidepool_transfer::conn::Socket;
use tidepool_transfer::direct::{self, Known};
use tidepool_types::{ClientId, Deadline, Epoch, Metric, Value, drawn};

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its memory could not be had.
    #[error(transparent)]
    Memory(#[from] OpenError),
    /// An address cannot be listened on.
    #[error("{field} {address}: {source}")]
    Listen {
        /// The setting.
        field: &'static str,
        /// Its value.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process may open too few files to serve anybody.
    #[error(
        "the process may open {limit} files, and a node needs at least {needed}: raise its limit (ulimit -n, LimitNOFILE=)"
    )]
    Descriptors {
        /// Files that it may open.
        limit: u64,
        /// Files that it should be able to.
        needed: u64,
    },
    /// The catalogs' addresses make no sense, or no thread could be had.
    #[error("{0}")]
    Announce(String),
    /// No thread or random number could be had.
    #[error("starting a thread: {0}")]
    Thread(#[from] io::Error),
}

impl StartError {
    /// The name or the address is another node's, or some other program's: another one may be free.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        match self {
            Self::Memory(OpenError::InUse { .. }) => true,
            Self::Listen { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }
}

/// How long a stopping node waits for its connections' threads.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node waits for its catalogs before it serves. Later, puts wait for those that answer.
const FIRST_CONTACT: Duration = Duration::from_secs(1);
/// How often ended processes are looked for.
const REAP_EVERY: Duration = Duration::from_millis(100);

/// A running node. Dropping it stops it and removes its files.
pub struct Node {
    shared: Arc<Shared>,
    data_address: SocketAddr,
    socket_path: PathBuf,
    /// Taken when the node stops.
    socket: Option<SocketFile>,
    problem: Option<String>,
    /// Clients of this process find the node by it. Taken when the node stops.
    known: Option<Known>,
    threads: Vec<JoinHandle<()>>,
}

/// What all threads of a node share.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) spaces: Spaces,
    /// Its first tier.
    pub(crate) counters: Arc<Counters>,
    pub(crate) processes: Processes,
    pub(crate) announcer: Announcer,
    pub(crate) stop: Stop,
    /// The node as a client of other nodes.
    pub(crate) client: ClientId,
    pub(crate) sources: Sources,
    pub(crate) seats: Arc<Seats<Arc<Socket>>>,
    pub(crate) draining: Draining,
}

/// A mark that a node is stopping, to sleep on.
#[derive(Default)]
pub(crate) struct Stop {
    stopping: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps for `pause`; true, at once, when the node is stopping.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut stopping = self.stopping.lock();
        while !*stopping && !self.changed.wait_until(&mut stopping, until).timed_out() {}
        *stopping
    }

    pub(crate) fn is_set(&self) -> bool {
        *self.stopping.lock()
    }

    fn set(&self) {
        *self.stopping.lock() = true;
        self.changed.notify_all();
    }
}

impl Node {
    /// Starts a node; when this returns it serves.
    pub fn start(config: NodeConfig) -> Result<Self, StartError> {
        Self::start_while(config, &|| true)
    }

    /// The same, for as long as `go_on` says yes: a large node allocates its memory for many seconds. Given up, it leaves
    /// nothing behind.
    pub fn start_while(mut config: NodeConfig, go_on: &dyn Fn() -> bool) -> Result<Self, StartError> {
        let wanted_connections = config.max_connections;
        config.max_connections = descriptors::affordable(wanted_connections)?;
        let problem = descriptors::problem(config.max_connections, wanted_connections);
        problem.iter().for_each(|problem| tracing::warn!("{problem}"));
        let epoch = Epoch(drawn());
        let spaces = Spaces::create(&config, epoch, go_on)?;
        let announced = spaces.announced();
        let Listeners { unix, tcp, data_address, socket } = Listeners::open(&config)?;
        let socket_path = socket.0.clone();
        let info = NodeInfo {
            name: config.name.clone(),
            epoch,
            data_address: config.data_advertise.clone().unwrap_or_else(|| data_address.to_string()),
            socket: Some(socket_path.clone()),
            capacity_bytes: announced.memory().capacity(),
            host_hint: host_name(),
        };
        let announce = AnnounceConfig { ack_bound: config.announce_timeout, ..AnnounceConfig::default() };
        let announcer =
            Announcer::start(Arc::new(announced.holdings().clone()), info, config.catalogs.clone(), announce)
                .map_err(|error| StartError::Announce(error.to_string()))?;
        // So that the first put is known to the catalogs too.
        announcer.wait_first_contact(Deadline::after(FIRST_CONTACT), go_on);
        if !go_on() {
            return Err(OpenError::Stopped.into());
        }
        let counters = Arc::new(Counters::default());
        let client = ClientId(drawn());
        let shared = Arc::new(Shared {
            sources: Sources::new(client, config.faults.clone()),
            seats: Seats::new(config.max_connections),
            config,
            spaces,
            processes: Processes::new(Arc::clone(&counters)),
            counters,
            announcer,
            stop: Stop::default(),
            client,
            draining: Draining::default(),
        });
        let known = Some(direct::make_known(Arc::new(Desks { epoch, node: Arc::downgrade(&shared) })));
        let socket = Some(socket);
        let mut node = Self { shared, data_address, socket_path, socket, problem, known, threads: Vec::new() };
        node.spawn("accept-unix", move |shared| listen::accept_unix(&shared, &unix))?;
        node.spawn("accept-tcp", move |shared| listen::accept_tcp(&shared, &tcp))?;
        node.spawn("scrub", |shared| scrub::run(&shared))?;
        node.spawn("reap", |shared| watch_processes(&shared))?;
        tracing::info!(node = %node.shared.config.name, address = %data_address, "serving");
        Ok(node)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(Arc<Shared>) + Send + 'static) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(shared))?;
        self.threads.push(thread);
        Ok(())
    }

    /// The TCP address that the node listens on.
    #[must_use]
    pub fn data_address(&self) -> SocketAddr {
        self.data_address
    }

    /// The node's Unix socket.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.socket_path
    }

    /// The node's incarnation.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.memory().epoch()
    }

    /// Every number of the node.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.shared.metrics()
    }

    /// What is wrong with how the node was set up, in a sentence, if anything is.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// How each catalog that the node announces to stands.
    #[must_use]
    pub fn catalogs(&self) -> Vec<CatalogStatus> {
        self.shared.announcer.status()
    }

    /// The node's memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<NodeMemory> {
        self.shared.spaces.announced().memory()
    }
}

impl Shared {
    /// Waits until every healthy catalog knows all that is held by now. Whatever the client's own deadline: a put that is
    /// answered is announced, and a catalog that keeps silent costs the bound once.
    pub(crate) fn announce_all(&self) {
        let until = Deadline::after(2 * self.config.announce_timeout);
        if !self.announcer.wait_announced(self.spaces.announced().holdings().latest(), until) {
            add(&self.counters.unannounced, 1);
        }
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let space = self.spaces.announced();
        let mut metrics = self.counters.collect(&space.memory().stats(), space.memory().capacity());
        let help = "Leases noted, expired ones that have not been dropped yet included.";
        metrics.push(Metric::new("tidepool_node_leases", help, Value::Gauge(space.leases.count())));
        let latest = space.holdings().latest();
        for catalog in self.announcer.status() {
            let help = "Changes that a catalog has not acknowledged yet.";
            let waiting = Value::Gauge(latest.saturating_sub(catalog.acknowledged));
            let metric = Metric::new("tidepool_node_announce_queue", help, waiting);
            let labels = vec![("catalog", catalog.address)];
            let flag = |name, help, set| Metric {
                labels: labels.clone(),
                ..Metric::new(name, help, Value::Gauge(u64::from(set)))
            };
            let help = "1 while the catalog knows all that the node holds.";
            metrics.push(flag("tidepool_node_catalog_caught_up", help, catalog.healthy));
            let help = "1 while the catalog refuses the node because another live one has its name.";
            metrics.push(flag("tidepool_node_name_in_use", help, catalog.name_in_use));
            metrics.push(Metric { labels, ..metric });
        }
        metrics
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Shared { stop, announcer, seats, spaces, config, sources, .. } = &*self.shared;
        stop.set();
        announcer.release();
        // New clients must not find a node that is going away.
        drop((self.socket.take(), self.known.take()));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let until = Instant::now() + STOP_TIMEOUT;
        while seats.end_all(|socket| socket.close()) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Said and done here, not when the last thread lets go: one that hangs must not keep the node in the catalogs, nor
        // its memory on the host.
        announcer.stop();
        sources.clear();
        spaces.all().for_each(|space| space.memory().remove_files());
        tracing::info!(node = %config.name, "stopped");
    }
}

/// Frees what ended processes held, takes in the leases of those that live, ends idle connections to other nodes, and keeps
/// the catalogs' idea of free space fresh.
fn watch_processes(shared: &Shared) {
    while !shared.stop.wait(REAP_EVERY) {
        shared.processes.reap();
        shared.spaces.all().for_each(|space| space.leases.collect());
        shared.sources.drop_idle();
        let memory = shared.spaces.announced().memory();
        shared.announcer.set_used_bytes(memory.capacity() - memory.stats().free_bytes);
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
