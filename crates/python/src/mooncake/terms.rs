//! Terms: how blocks are stored, as Python's `ReplicateConfig` has it.

use crate::lists::List;
use pyo3::prelude::*;
use tidepool_client::{NodeName, Pin, PutOptions};

/// Number of copies; segments to try first; whether blocks replace older ones; whether they are pinned for good; for
/// how many milliseconds they are evicted last; the group of each block, or none at all.
#[derive(FromPyObject)]
pub(super) struct Terms(u32, List<String>, bool, bool, u32, List<String>);

impl Terms {
    /// Whether blocks replace older ones.
    pub(super) fn is_upsert(&self) -> bool {
        self.2
    }

    pub(super) fn options(self) -> PutOptions {
        let Self(replicas, prefer, _, hard, soft_millis, groups) = self;
        // A segment with an invalid name for a node does not exist, and so is not preferred.
        let prefer = prefer.into_iter().filter_map(|name| NodeName::new(name).ok()).collect();
        let pin = match (hard, soft_millis) {
            (true, _) => Pin::Hard,
            (false, 0) => Pin::None,
            (false, millis) => Pin::Soft { millis },
        };
        PutOptions { replicas: replicas.max(1), prefer, pin, groups: groups.into() }
    }
}
