//! What is emulated.

use std::fmt::Display;
use std::ops::RangeInclusive;
use thiserror::Error;
use tidepool_client::ClientConfig;
use tidepool_sim::cluster::Cluster;
use tidepool_types::ByteSize;

/// What is emulated, and how fast.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Engines, their own caches, speeds, routing and limits. What it says about nodes and networks does not count: these are real.
    pub cluster: Cluster,
    /// The pool; none for a run without one.
    pub pool: Option<ClientConfig>,
    /// How much faster than in the trace time passes: pauses, computing and decoding.
    pub pace: f64,
    /// What the names of this run's blocks begin with: runs with other names share nothing.
    pub name: String,
}

/// A setting that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}: allowed are {allowed}")]
pub struct InvalidSettings {
    field: &'static str,
    value: String,
    allowed: String,
}

/// Threads that a replay takes.
const THREADS: RangeInclusive<u64> = 1..=4096;
/// What a block may have.
const BLOCK_BYTES: RangeInclusive<ByteSize> = ByteSize(1)..=ByteSize(1 << 30);

impl Settings {
    /// What [`Settings::pace`] may be.
    pub const PACES: RangeInclusive<f64> = 1e-3..=1e6;

    pub(crate) fn validate(&self) -> Result<(), InvalidSettings> {
        let threads = u64::from(self.cluster.engines) * u64::from(self.cluster.batch);
        within("engines times batch", &threads, &THREADS)?;
        within("pace", &self.pace, &Self::PACES)?;
        within("bytes of a block", &ByteSize(self.cluster.block_bytes), &BLOCK_BYTES)
    }
}

fn within<T: PartialOrd + Display>(
    field: &'static str,
    value: &T,
    allowed: &RangeInclusive<T>,
) -> Result<(), InvalidSettings> {
    if allowed.contains(value) {
        return Ok(());
    }
    let allowed = format!("{} to {}", allowed.start(), allowed.end());
    Err(InvalidSettings { field, value: value.to_string(), allowed })
}
