//! What is emulated.

use std::ops::RangeInclusive;
use thiserror::Error;
use tidepool_client::ClientConfig;
use tidepool_sim::cluster::Cluster;

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
    allowed: &'static str,
}

/// The most threads that a replay takes.
const MOST_THREADS: u64 = 4096;

impl Settings {
    /// What [`Settings::pace`] may be.
    pub const PACES: RangeInclusive<f64> = 1e-3..=1e6;

    pub(crate) fn validate(&self) -> Result<(), InvalidSettings> {
        let wrong = |field, value: String, allowed| Err(InvalidSettings { field, value, allowed });
        let threads = u64::from(self.cluster.engines) * u64::from(self.cluster.batch);
        if !(1..=MOST_THREADS).contains(&threads) {
            return wrong("engines times batch", threads.to_string(), "1 to 4096");
        }
        if !Self::PACES.contains(&self.pace) {
            return wrong("pace", self.pace.to_string(), "0.001 to 1000000");
        }
        if !(1..=1 << 30).contains(&self.cluster.block_bytes) {
            return wrong("bytes of a block", self.cluster.block_bytes.to_string(), "1 byte to 1 GiB");
        }
        Ok(())
    }
}
