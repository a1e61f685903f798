//! How blocks are stored, as `ReplicateConfig` in Python says it.

use pyo3::prelude::*;
use tidepool_client::{NodeName, Pin, PutOptions};

/// Copies wanted; the segment to try first; whether blocks take the place of older ones; whether they stay for good; for how
/// many milliseconds they are evicted last; the group of each block, or none at all.
#[derive(FromPyObject)]
pub(super) struct Terms(u32, Option<String>, bool, bool, u32, Vec<String>);

impl Terms {
    /// Whether blocks take the place of older ones.
    pub(super) fn is_upsert(&self) -> bool {
        self.2
    }

    pub(super) fn options(self) -> PutOptions {
        let Self(replicas, prefer, _, hard, soft_millis, groups) = self;
        // A segment that cannot be a node's name is nobody's, and so prefers nobody.
        let prefer = prefer.filter(|name| !name.is_empty()).and_then(|name| NodeName::new(name).ok());
        let pin = match (hard, soft_millis) {
            (true, _) => Pin::Hard,
            (false, 0) => Pin::None,
            (false, millis) => Pin::Soft { millis },
        };
        PutOptions { replicas: replicas.max(1), prefer, pin, groups }
    }
}
