//! The benchmark: the pool's speed as a ratio to the machine's, in one run.
//!
//! Every side of a comparison is a process of its own: this program with the hidden command `bench-side` and a
//! [`SidePlan`]. The parent ([`side::Side`]) sends it `run` and `verify` over a pipe; [`serve`] is the other end. Sides
//! take turns ([`compare`]). All memory is touched before the first timing, the first round is a warm-up that does not
//! count, and every byte is verified after each timing and outside of it. The table in [`goals`] has the fields and the
//! values that they must reach; a field that was not measured is null. [`against`] compares two builds of this program
//! by such runs.

pub mod against;
pub mod baselines;
pub mod compare;
pub mod content;
pub mod fields;
pub mod goals;
pub mod machine;
#[expect(unsafe_code, reason = "maps shared memory; nothing else here needs it")]
mod memory;
pub mod report;
pub mod serve;
pub mod side;
pub mod sides;
mod stopwatch;

use std::time::Duration;
use tidepool_types::{ByteSize, Deadline};

pub use report::Report;
pub use sides::{SideArgs, SidePlan};
pub use stopwatch::PlantedDelay;

/// Smaller footprints measure the caches, not the memory.
pub const FULL_FOOTPRINT: ByteSize = ByteSize(1 << 30);

/// Settings of a benchmark.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Timings per side, after the warm-up; the result is their median.
    pub samples: usize,
    /// Bytes of source and of destination of every copy.
    pub footprint: ByteSize,
    /// The seed of contents and orders, the same in every process.
    pub seed: u64,
    /// TCP connections, each with a thread on both ends.
    pub streams: u32,
    /// Size of socket buffers; none for the kernel's choice.
    pub socket_buffer: Option<ByteSize>,
    /// Fields to measure; all if empty.
    pub only: Vec<String>,
    /// Planted delay of the pool's own side, to check that a comparison of builds sees it.
    pub planted_delay: PlantedDelay,
    /// The end of the whole benchmark.
    pub deadline: Deadline,
}

impl Plan {
    /// Whether `field` is to be measured.
    pub fn wants(&self, field: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == field)
    }
}

/// Why a benchmark could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A side's process could not be started, or its pipe failed.
    #[error("side {side}: {source}")]
    Io {
        /// The side.
        side: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A side reported an error, or gave no valid answer.
    #[error("side {side}: {message}")]
    Side {
        /// The side.
        side: String,
        /// The side's message.
        message: String,
    },
    /// A side did not answer in time.
    #[error("side {side}: no answer within {waited:?}")]
    TimedOut {
        /// The side.
        side: String,
        /// The time waited.
        waited: Duration,
    },
    /// The time for the whole benchmark is over.
    #[error("the time for the benchmark is over")]
    OutOfTime,
}
