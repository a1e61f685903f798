//! How blocks are stored, as `ReplicateConfig` in Python says it.

use crate::lists::List;
use pyo3::prelude::*;
use tidepool_client::{NodeName, Pin, PutOptions};

/// Copies wanted; the segments to try first; whether blocks take the place of older ones; whether they stay for good; for how
/// many milliseconds they are evicted last; the group of each block, or none at all.
#[derive(FromPyObject)]
pub(super) struct Terms(u32, List<String>, bool, bool, u32, List<String>);

impl Terms {
    /// Whether blocks take the place of older ones.
    pub(super) fn is_upsert(&self) -> bool {
        self.2
    }

    pub(super) fn options(self) -> PutOptions {
        let Self(replicas, prefer, _, hard, soft_millis, groups) = self;
        // A segment that cannot be a node's name is nobody's, and so is not preferred.
        let prefer = prefer.into_iter().filter_map(|name| NodeName::new(name).ok()).collect();
        let pin = match (hard, soft_millis) {
            (true, _) => Pin::Hard,
            (false, 0) => Pin::None,
            (false, millis) => Pin::Soft { millis },
        };
        PutOptions { replicas: replicas.max(1), prefer, pin, groups: groups.into() }
    }
}
