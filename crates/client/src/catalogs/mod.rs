//! The catalogs a client asks: any that answers will do, a complete one is preferred.
//!
//! Blocking and thread-safe; also from inside an asynchronous runtime, whose thread a call then blocks. A catalog that does not answer costs one
//! time-out; then it is skipped, and probed in the background. When none answers, nothing is found and the answer is not
//! complete: that is not an error. A "no" is never remembered.

mod answers;
mod ask;
mod census;
mod own_connection;
mod peer;
mod pool_map;
mod record;
mod subscription;
#[cfg(test)]
mod tests;
mod wait;
mod waits;

pub use answers::{Holder, Located, Member, Node, NodeKey, NodeState};
pub use pool_map::PoolMap;
pub use record::{Heard, HeardLookup, Recorder};
pub use subscription::{Followed, Subscription};
pub use tidepool_schema::Missing;

use peer::Peer;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tidepool_schema::LookupReport;
use tidepool_types::{BlockId, Deadline};
use tokio::runtime::Runtime;

/// How to ask.
#[derive(Debug, Clone)]
pub struct CatalogsConfig {
    /// What a catalog that does not answer costs a call, once.
    pub attempt: Duration,
    /// Time between probes of a catalog that does not answer.
    pub probe_every: Duration,
}

impl Default for CatalogsConfig {
    fn default() -> Self {
        Self { attempt: Duration::from_millis(250), probe_every: Duration::from_millis(100) }
    }
}

/// Why catalogs cannot be asked at all.
#[derive(Debug, Error)]
pub enum CatalogsError {
    /// An address is none.
    #[error("catalog address {address:?}: {reason}; an address is host:port")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The thread that does the waiting cannot be started.
    #[error("cannot start the catalogs' thread: {0}")]
    Thread(#[from] io::Error),
}

/// What became of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Who holds each id.
    pub located: Located,
    /// Whether a "no" is a no.
    pub complete: bool,
    /// Whether any catalog answered.
    pub answered: bool,
    /// The nodes that `complete` vouches for: of these, every copy of the ids is in `located`. Empty unless asked for.
    pub vouched: HashSet<NodeKey>,
}

/// What became of a plain existence check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exists {
    /// One per id.
    pub found: Vec<bool>,
    /// Whether a "no" is a no.
    pub complete: bool,
}

/// What became of a prefix match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    /// One per chain: how many of its first ids the pool holds, and who holds them.
    pub runs: Vec<Located>,
    /// Whether longer runs are ruled out.
    pub complete: bool,
    /// Whether a catalog answered at all.
    pub answered: bool,
}

impl Prefixes {
    /// The length of the shortest run; zero without chains.
    #[must_use]
    pub fn shortest(&self) -> usize {
        self.runs.iter().map(Located::len).min().unwrap_or(0)
    }
}

/// The nodes that catalogs know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The nodes, by name.
    pub members: Vec<Member>,
    /// Whether a catalog answered that is complete.
    pub complete: bool,
    /// For how long blocks are leased to clients that want it; `None` when no catalog says.
    pub lease: Option<Duration>,
    /// The kinds of look-ups that somebody records.
    pub recorded: u32,
}

/// Every node that may hold something, as all catalogs that answer know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Census {
    /// The nodes, each life of a node by itself; also those that lists hide.
    pub members: Vec<Member>,
    /// Lives of nodes that operators had forgotten.
    pub forgotten: Vec<NodeKey>,
    /// For how long every node that may come back has been known; `None` when no catalog answered.
    pub known_for: Option<Duration>,
}

/// What became of having a node forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// Catalogs that knew the node and forgot it.
    pub by: usize,
    /// Catalogs that did not answer: they may still know the node.
    pub unanswered: Vec<String>,
    /// Why a catalog refused, in its own words.
    pub refused: Option<String>,
}

/// One catalog's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogStat {
    /// The catalog's address.
    pub address: String,
    /// How often this client found that it does not answer.
    pub failures: u64,
    /// Its numbers; `None` when it did not answer.
    pub answer: Option<StatAnswer>,
}

/// What a catalog says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatAnswer {
    /// Whether it is complete.
    pub complete: bool,
    /// Drawn when it started.
    pub incarnation: u64,
    /// Numbers under the names of its metrics.
    pub numbers: Vec<(String, u64)>,
}

/// See the module's head.
pub struct Catalogs {
    peers: Vec<Arc<Peer>>,
    config: CatalogsConfig,
    runtime: Option<Runtime>,
}

impl Catalogs {
    /// Prepares to ask the catalogs at `addresses`, each `host:port`. Connects when the first is asked.
    pub fn new(addresses: &[String], config: CatalogsConfig) -> Result<Self, CatalogsError> {
        if addresses.is_empty() {
            return Ok(Self { peers: Vec::new(), config, runtime: None });
        }
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("tp-catalogs").enable_all().build()?;
        let inside = runtime.enter();
        let peer = |address: &String| match Peer::new(address, &config) {
            Ok(peer) if has_port(address) => Ok(Arc::new(peer)),
            Ok(_) => Err(CatalogsError::Address {
                address: address.clone(),
                reason: "its host, or its port from 0 to 65535, is missing".to_owned(),
            }),
            Err(error) => Err(CatalogsError::Address { address: address.clone(), reason: error.to_string() }),
        };
        let peers = addresses.iter().map(peer).collect::<Result<_, _>>()?;
        drop(inside);
        Ok(Self { peers, config, runtime: Some(runtime) })
    }

    /// Who holds each of `ids`.
    #[must_use]
    pub fn lookup(&self, ids: &[BlockId], deadline: Deadline) -> Lookup {
        self.ask_lookup(ids, false, deadline)
    }

    /// Who holds each of `ids`, and of which nodes that is the whole truth.
    #[must_use]
    pub fn lookup_vouched(&self, ids: &[BlockId], deadline: Deadline) -> Lookup {
        self.ask_lookup(ids, true, deadline)
    }

    /// Which of `ids` the pool holds; with `lease`, those are leased at the catalog that says so.
    #[must_use]
    pub fn exists(&self, ids: &[BlockId], lease: bool, deadline: Deadline) -> Exists {
        self.ask_exists(ids, lease, deadline)
    }

    /// Waits at a catalog until a node holds one of `ids`, and says which are held then; only the first
    /// [`tidepool_schema::MAX_IDS`] count. `None` after a second at most, or at the deadline, or when no catalog lets the caller
    /// wait: then the caller looks again.
    #[must_use]
    pub fn wait(&self, ids: &[BlockId], deadline: Deadline) -> Option<Vec<bool>> {
        self.wait_a_round(ids, deadline)
    }

    /// Which of `ids` any catalog that answers has leased.
    #[must_use]
    pub fn leased(&self, ids: &[BlockId], deadline: Deadline) -> Vec<bool> {
        self.ask_leased(ids, deadline)
    }

    /// The longest run of each chain that the pool holds, with its holders. All chains together have at most
    /// [`tidepool_schema::MAX_IDS`] ids; what goes beyond is not looked up.
    #[must_use]
    pub fn match_prefix(&self, chains: &[&[BlockId]], deadline: Deadline) -> Prefixes {
        self.ask_prefixes(chains, deadline)
    }

    /// The nodes that the catalogs know.
    #[must_use]
    pub fn members(&self, deadline: Deadline) -> Members {
        self.ask_members(deadline)
    }

    /// Every node that any catalog knows. All catalogs are asked at once; one that did not answer lately has less time.
    #[must_use]
    pub fn census(&self, deadline: Deadline) -> Census {
        self.ask_census(deadline)
    }

    /// Has every catalog forget a life of a node that is over, and refuse it from then on.
    #[must_use]
    pub fn forget(&self, node: &NodeKey, deadline: Deadline) -> Forgotten {
        self.ask_forget(node, deadline)
    }

    /// Whether one of them answered when it was last asked, or was not asked yet.
    pub(crate) fn any_answers(&self) -> bool {
        self.peers.iter().any(|peer| peer.standing() != peer::Standing::Down)
    }

    /// Tells a catalog of look-ups. False when none took them.
    pub(crate) fn report(&self, report: LookupReport, deadline: Deadline) -> bool {
        self.ask_report(report, deadline)
    }

    /// Every catalog's numbers, those included that do not answer.
    #[must_use]
    pub fn stat(&self, deadline: Deadline) -> Vec<CatalogStat> {
        self.ask_stat(deadline)
    }
}

/// Whether `address` is `host:port`.
#[must_use]
pub fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl Drop for Catalogs {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            match tokio::runtime::Handle::try_current() {
                // Another runtime's thread must not wait for this one.
                Ok(_) => runtime.shutdown_background(),
                // A look-up of a name may hang; nobody waits for it.
                Err(_) => runtime.shutdown_timeout(Duration::from_millis(100)),
            }
        }
    }
}
