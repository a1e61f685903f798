//! What all parts of one catalog share.

use crate::config::CatalogConfig;
use crate::index::Index;
use crate::members::state::NodeState;
use crate::members::{Directory, View};
use crate::metrics::{self, Counters};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidepool_types::{Metric, Value};

/// See the file's head.
pub(crate) struct Core {
    pub(crate) index: Arc<Index>,
    pub(crate) directory: Directory,
    pub(crate) counters: Counters,
    /// Drawn at random: tells a client that a catalog was restarted.
    pub(crate) incarnation: u64,
    /// Whether the catalog stops, and answers nothing any more.
    pub(crate) stopping: AtomicBool,
}

impl Core {
    pub(crate) fn new(config: &CatalogConfig) -> Self {
        let index = Arc::new(Index::default());
        let directory = Directory::new(config.clone(), index.clone());
        let incarnation = RandomState::new().hash_one(0);
        Self { index, directory, counters: Counters::default(), incarnation, stopping: AtomicBool::new(false) }
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

    /// Every metric of the catalog.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let view = self.directory.view();
        let in_state = |state| view.members.iter().filter(|member| member.state == state).count() as u64;
        let gauge = |name, help, value| Metric::new(name, help, Value::Gauge(value));
        let complete = u64::from(self.directory.is_complete(&view));
        let mut all = vec![
            gauge("tidepool_catalog_blocks", "Ids in the index.", self.index.blocks()),
            gauge("tidepool_catalog_complete", "1 while a \"no\" from this catalog is a no.", complete),
            gauge("tidepool_catalog_nodes_alive", "Nodes heard of lately.", in_state(NodeState::Alive)),
            gauge("tidepool_catalog_nodes_suspect", "Nodes silent for a moment.", in_state(NodeState::Suspect)),
            gauge("tidepool_catalog_nodes_dead", "Nodes silent for long or gone.", in_state(NodeState::Dead)),
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
