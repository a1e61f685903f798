//! Settings of a replay.

use std::fmt::Display;
use std::ops::RangeInclusive;
use thiserror::Error;
use tidepool_client::ClientConfig;
use tidepool_sim::cluster::Cluster;
use tidepool_types::ByteSize;

/// Settings of the emulated engines, and their pace.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Engines, their caches, speeds, routing and limits. Its nodes and networks do not count: these are real.
    pub cluster: Cluster,
    /// The pool; none to run without one.
    pub pool: Option<ClientConfig>,
    /// The factor by which the trace's time (pauses, computing, decoding) runs faster than real time.
    pub pace: f64,
    /// The prefix of this run's block names: runs with other prefixes share no block.
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

/// Number of threads that a replay may take.
const THREADS: RangeInclusive<u64> = 1..=4096;
/// Size that a block may have.
const BLOCK_BYTES: RangeInclusive<ByteSize> = ByteSize(1)..=ByteSize(1 << 30);

impl Settings {
    /// Values allowed for [`Settings::pace`].
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
