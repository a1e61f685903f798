//! What all parts of one catalog share.

use crate::config::CatalogConfig;
use crate::index::Index;
use crate::members::state::NodeState;
use crate::members::{Directory, View};
use crate::metrics::{self, Counters};
use crate::recorders::Recorders;
use crate::subscribers::Subscribers;
use crate::waiters::Waiters;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_policy::Leases;
use tidepool_types::{BlockId, Metric, Value, drawn};

/// Leases that a catalog remembers; past them the oldest are forgotten.
const MOST_LEASES: usize = 1 << 19;

/// See the file's head.
pub(crate) struct Core {
    pub(crate) index: Arc<Index>,
    pub(crate) directory: Directory,
    pub(crate) counters: Counters,
    /// Drawn at random: tells a client that a catalog was restarted.
    pub(crate) incarnation: u64,
    /// For how long blocks that were found are leased.
    pub(crate) lease: Duration,
    /// Short sections: noting a batch, looking through the table.
    leases: Mutex<Leases>,
    pub(crate) recorders: Recorders,
    pub(crate) waiters: Waiters,
    pub(crate) subscribers: Subscribers,
    /// Whether the catalog stops, and answers nothing any more.
    stopping: AtomicBool,
}

impl Core {
    pub(crate) fn new(config: &CatalogConfig) -> Self {
        let index = Arc::new(Index::default());
        let directory = Directory::new(config.clone(), index.clone());
        let incarnation = drawn();
        Self {
            index,
            directory,
            counters: Counters::default(),
            incarnation,
            stopping: AtomicBool::new(false),
            lease: config.lease,
            leases: Mutex::new(Leases::new(MOST_LEASES)),
            recorders: Recorders::default(),
            waiters: Waiters::new(config),
            subscribers: Subscribers::new(config.max_subscribers, config.subscriber_queue_bytes),
        }
    }

    /// Whether the catalog stops: what it would say of nodes is no longer true.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends all that goes on for as long as somebody listens or waits.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.directory.end_all();
        self.recorders.end();
        self.waiters.end();
        self.subscribers.end();
    }

    /// Runs one read of the index against one view of the members, and says whether the answer is complete: it is only if
    /// it was before and still is after, with no stream come or gone in between.
    pub(crate) fn answer<T>(&self, read: impl FnOnce(&View) -> T) -> (T, bool) {
        let view = self.directory.view();
        let before = self.directory.is_complete(&view);
        let answer = read(&view);
        let unchanged = self.directory.view().version == view.version;
        let complete = before && unchanged && self.directory.is_complete(&view);
        if !complete {
            metrics::add(&self.counters.incomplete_answers, 1);
        }
        (answer, complete)
    }

    /// Leases those of `ids` that were found: whoever was told of them may come to read them.
    pub(crate) fn note_leases(&self, ids: &[[u8; BlockId::LEN]], found: &[u8]) {
        if !self.lease.is_zero() {
            let now = self.directory.now();
            let found = ids.iter().zip(found).filter(|(_, count)| **count > 0).map(|(id, _)| BlockId::from_bytes(*id));
            self.leases.lock().note(found, now + self.lease, now);
        }
    }

    /// Which of `ids` are leased.
    pub(crate) fn leased(&self, ids: &[BlockId]) -> Vec<bool> {
        self.leases.lock().leased(ids, self.directory.now())
    }

    /// Every metric of the catalog.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let view = self.directory.view();
        let now = self.directory.now();
        let shown = || view.members.iter().filter(|member| self.directory.shows(member, now));
        let in_state = |state| shown().filter(|member| member.state == state).count() as u64;
        let gauge = |name, help, value| Metric::new(name, help, Value::Gauge(value));
        let complete = u64::from(self.directory.is_complete(&view));
        let (waits, waited_ids) = self.waiters.counts();
        let mut all = vec![
            gauge("tidepool_catalog_blocks", "Ids in the index.", self.index.blocks()),
            gauge("tidepool_catalog_complete", "1 while a \"no\" from this catalog is a no.", complete),
            gauge("tidepool_catalog_nodes_alive", "Nodes heard of lately.", in_state(NodeState::Alive)),
            gauge("tidepool_catalog_nodes_suspect", "Nodes silent for a moment.", in_state(NodeState::Suspect)),
            gauge("tidepool_catalog_nodes_dead", "Nodes silent for long or gone.", in_state(NodeState::Dead)),
            gauge(
                "tidepool_catalog_leases",
                "Leases noted, expired ones that have not been dropped yet included.",
                self.leases.lock().len() as u64,
            ),
            gauge("tidepool_catalog_recorders", "Recorders that listen to look-ups.", self.recorders.count() as u64),
            gauge("tidepool_catalog_waits", "Calls that wait for a block to be held.", waits as u64),
            gauge("tidepool_catalog_waited_ids", "Ids that calls wait for.", waited_ids as u64),
            gauge("tidepool_catalog_subscribers", "Subscribers to changes.", self.subscribers.count() as u64),
            gauge(
                "tidepool_catalog_name_conflicts",
                "Names that two live nodes claim, of which one is refused.",
                self.directory.name_conflicts().len() as u64,
            ),
        ];
        all.extend(self.counters.read());
        all
    }
}
