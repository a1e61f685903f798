//! Who has lately copied what from this node. Whoever makes a block obsolete must reach those nodes too: no catalog need know
//! of their copies yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_store::host_time;
use tidepool_types::{BlockId, NodeName};

/// Copies that are remembered; past them the oldest are forgotten.
const MOST: usize = 1 << 16;
/// For how long: far longer than a copy takes and a catalog needs to hear of it.
const LATELY: Duration = Duration::from_secs(60);

/// See the file's head.
#[derive(Default)]
pub(crate) struct LatePulls {
    /// Short sections: noting a batch, looking through all of them.
    pulls: Mutex<VecDeque<Pull>>,
}

struct Pull {
    id: BlockId,
    by: Arc<NodeName>,
    at: Duration,
}

impl LatePulls {
    /// Notes that `by` is about to copy blocks.
    pub(crate) fn note(&self, by: NodeName, ids: &[BlockId]) {
        let (by, at) = (Arc::new(by), host_time());
        let mut pulls = self.pulls.lock();
        while pulls.front().is_some_and(|pull| pull.at + LATELY <= at) {
            pulls.pop_front();
        }
        pulls.extend(ids.iter().map(|id| Pull { id: *id, by: Arc::clone(&by), at }));
        let over = pulls.len().saturating_sub(MOST);
        pulls.drain(..over);
    }

    /// Who has lately copied any of the blocks of which `is_asked` says yes.
    pub(crate) fn pullers(&self, is_asked: impl Fn(&BlockId) -> bool) -> Vec<String> {
        let now = host_time();
        let mut names: Vec<String> = Vec::new();
        for pull in self.pulls.lock().iter().filter(|pull| pull.at + LATELY > now && is_asked(&pull.id)) {
            if names.iter().all(|name| name != pull.by.as_str()) {
                names.push(pull.by.to_string());
            }
        }
        names
    }
}
