//! Announces what this node holds to every catalog, and says when they know.
//!
//! One thread per catalog keeps one inventory stream open (see `docs/catalog.md`). A put calls
//! [`Announcer::wait_announced`] before it is answered: it sends the change and hears each healthy catalog's acknowledgement
//! on its own thread. A catalog that does not acknowledge in time costs that one put the bound, and later ones
//! nothing: its stream is closed, and it gets a snapshot when it answers again. A catalog that is reached under several
//! addresses gets one stream; the other addresses are tried again now and then.

mod claims;
mod complaint;
mod driver;
mod link;
mod outbox;
mod sender;
mod stream;
#[cfg(test)]
mod tests;

use claims::Claims;
use complaint::Complaint;
use driver::Driver;
use link::{Link, Waited};
use outbox::Stopped;
use sender::{Sender, Target};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_schema as wire;
use tidepool_store::inventory::Inventory;
use tidepool_types::{Deadline, Epoch, NodeName};
use tokio::sync::watch;

/// How often a wait looks whether the node stops.
const STEP: Duration = Duration::from_millis(50);

/// What a node tells catalogs about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its name.
    pub name: NodeName,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Where it serves the data protocol, `host:port`.
    pub data_address: String,
    /// The same on its own host.
    pub socket: Option<PathBuf>,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
    /// What it believes its host is called.
    pub host_hint: String,
}

impl NodeInfo {
    fn to_wire(&self, used_bytes: u64) -> wire::NodeInfo {
        wire::NodeInfo {
            name: self.name.to_string(),
            epoch: self.epoch.0,
            data_address: self.data_address.clone(),
            socket_path: self.socket.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            capacity_bytes: self.capacity_bytes,
            used_bytes,
            host_hint: self.host_hint.clone(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// How to announce.
#[derive(Debug, Clone)]
pub struct AnnounceConfig {
    /// How long a put waits for a catalog. Catalogs are told: their completeness rests on it.
    pub ack_bound: Duration,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// Silence of a catalog, heartbeats unanswered, after which its stream is closed though no put waited for it.
    pub silence: Duration,
    /// How long opening a stream may take.
    pub connect_within: Duration,
    /// Longest rest between two attempts to open a stream.
    pub retry_within: Duration,
    /// Most changes in one message.
    pub batch: usize,
}

impl Default for AnnounceConfig {
    fn default() -> Self {
        Self {
            ack_bound: Duration::from_millis(250),
            heartbeat: Duration::from_millis(25),
            silence: Duration::from_secs(1),
            connect_within: Duration::from_secs(1),
            retry_within: Duration::from_millis(200),
            batch: 8192,
        }
    }
}

/// How one catalog stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogStatus {
    /// Its address.
    pub address: String,
    /// Whether puts wait for it.
    pub healthy: bool,
    /// The latest change it has acknowledged.
    pub acknowledged: u64,
    /// Snapshots begun for it.
    pub snapshots: u64,
    /// Times that it did not acknowledge a put in time.
    pub gave_up: u64,
    /// Whether a stream to it is open.
    pub connected: bool,
    /// Why it is not healthy; `None` if it is.
    pub problem: Option<String>,
    /// Whether it refuses this node because another live one has its name.
    pub name_in_use: bool,
}

/// See the module's head. Dropping it stops it, as [`Announcer::stop`] does.
pub struct Announcer {
    inventory: Arc<dyn Inventory>,
    config: AnnounceConfig,
    used: Arc<AtomicU64>,
    targets: Vec<Arc<Target>>,
    stop: watch::Sender<bool>,
    // Taken once, by whoever stops.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Announcer {
    /// Starts to announce `inventory` to `catalogs`, each `host:port`.
    pub fn start(
        inventory: Arc<dyn Inventory>,
        info: NodeInfo,
        catalogs: Vec<String>,
        config: AnnounceConfig,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let target = |address| {
            let (link, outbox, driver) = (Arc::new(Link::new()), Mutex::default(), Driver::new()?);
            Ok(Arc::new(Target { address, link, outbox, driver }))
        };
        let targets = catalogs.into_iter().map(target).collect::<io::Result<Vec<_>>>()?;
        let (used, threads) = (Arc::default(), Mutex::default());
        let announcer = Self { inventory, config, used, targets, stop, threads };
        let claims = Arc::<Claims>::default();
        for target in &announcer.targets {
            let sender = Sender {
                target: target.clone(),
                inventory: announcer.inventory.clone(),
                info: info.clone(),
                used: announcer.used.clone(),
                config: announcer.config.clone(),
                claims: claims.clone(),
                stop: stopped.clone(),
                complaint: Complaint::default(),
            };
            let thread = std::thread::Builder::new().name("tp-announce".to_owned());
            announcer.threads.lock().push(thread.spawn(move || sender.run())?);
        }
        Ok(announcer)
    }

    /// Waits until every catalog has taken the first snapshot or has failed to, for as long as `go_on` says yes.
    pub fn wait_first_contact(&self, deadline: Deadline, go_on: &dyn Fn() -> bool) {
        for target in &self.targets {
            while go_on() && !deadline.has_passed() && !target.link.wait_first_contact(deadline.capped(STEP).instant())
            {
            }
        }
    }

    /// The node stops: no put waits for a catalog any more.
    pub fn release(&self) {
        self.targets.iter().for_each(|target| target.link.release());
    }

    /// Waits until every healthy catalog has acknowledged change `number`. True once that is so, be it because a catalog
    /// that did not within the bound is no longer healthy; false when `deadline` passes before.
    #[must_use = "a put that is not announced must not be answered as one that is"]
    pub fn wait_announced(&self, number: u64, deadline: Deadline) -> bool {
        for target in &self.targets {
            // Nothing to send, or no stream: the wait below tells them apart.
            let stopped = match target.outbox.lock().as_mut() {
                Some(outbox) => outbox.send_changes(&*self.inventory, number, &self.config),
                None => Stopped::Idle,
            };
            if stopped != Stopped::Idle {
                self.inventory.wake();
            }
        }
        if self.targets.len() > 1 {
            // Each has its message before one of them is waited for.
            self.targets.iter().filter(|target| target.link.is_healthy()).for_each(|target| target.driver.turn());
        }
        let bound = Instant::now() + self.config.ack_bound;
        let until = bound.min(deadline.instant());
        let mut all = true;
        for target in &self.targets {
            if self.waited(target, number, until) == Waited::Late {
                if Instant::now() >= bound {
                    tracing::warn!(
                        catalog = target.address,
                        "no acknowledgement in time, going on without this catalog"
                    );
                    target.link.give_up(number);
                } else {
                    all = false;
                }
            }
        }
        all
    }

    fn waited(&self, Target { link, driver, .. }: &Target, number: u64, until: Instant) -> Waited {
        let bound = self.config.ack_bound;
        let known = link.acknowledged(number, until, bound);
        known.unwrap_or_else(|| driver.drive_awake(link.wait_acknowledged(number, until, bound)))
    }

    /// Tells catalogs, with the next heartbeat, how many bytes are used.
    pub fn set_used_bytes(&self, bytes: u64) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// How each catalog stands. One with two addresses stands the same under both.
    #[must_use]
    pub fn status(&self) -> Vec<CatalogStatus> {
        let status = |target: &Arc<Target>| {
            let problem = target.link.problem();
            let same_as = problem.as_ref().and_then(|problem| problem.same_as.as_ref());
            let double = same_as.and_then(|address| self.targets.iter().find(|other| other.address == *address));
            let Target { link, .. } = &**double.unwrap_or(target);
            let (acknowledged, snapshots, gave_up) = link.numbers();
            let problem = link.problem();
            CatalogStatus {
                address: target.address.clone(),
                healthy: link.is_healthy(),
                acknowledged,
                snapshots,
                gave_up,
                connected: link.is_up(),
                name_in_use: problem.as_ref().is_some_and(|problem| problem.name_in_use),
                problem: problem.map(|problem| problem.reason),
            }
        };
        self.targets.iter().map(status).collect()
    }

    /// Says goodbye to every catalog and joins every thread.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.stop();
    }
}
