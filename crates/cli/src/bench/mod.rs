//! The benchmark: what the pool reaches, as a ratio to what this machine can do, in one run.
//!
//! Every side of a comparison is a process of its own: this program started again with the hidden command `bench-side` and
//! a [`SidePlan`]. The parent ([`side::Side`]) tells it `run` and `verify` over a pipe; [`serve`] is the other end. Sides take
//! turns ([`compare`]), all memory is touched before the first timing, the first round is a warm-up that is thrown away,
//! and every byte is verified after each timing and outside of it. What is measured and what it must reach is the table in
//! [`goals`]; a field that was not measured is null. [`against`] compares two builds of this program by such runs.

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

/// Footprints below this measure the caches, not the memory.
pub const FULL_FOOTPRINT: ByteSize = ByteSize(1 << 30);

/// How to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Timings per side, after the warm-up; the result is their median.
    pub samples: usize,
    /// Bytes of source and of destination of every copy.
    pub footprint: ByteSize,
    /// Decides contents and orders, the same in every process.
    pub seed: u64,
    /// TCP connections, each with a thread on both ends.
    pub streams: u32,
    /// Socket buffers, or what the kernel chooses.
    pub socket_buffer: Option<ByteSize>,
    /// Fields to measure; all when empty.
    pub only: Vec<String>,
    /// How much longer the pool's own side is to take, for checking that a comparison of builds sees it.
    pub planted_delay: PlantedDelay,
    /// When the whole benchmark must be over.
    pub deadline: Deadline,
}

impl Plan {
    /// Whether `field` is to be measured.
    pub fn wants(&self, field: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == field)
    }
}

/// Why a benchmark could not be carried through.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A side's process could not be started or talked to.
    #[error("side {side}: {source}")]
    Io {
        /// The side.
        side: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A side reported an error, or something that is not an answer.
    #[error("side {side}: {message}")]
    Side {
        /// The side.
        side: String,
        /// What it said.
        message: String,
    },
    /// A side did not answer in time.
    #[error("side {side}: no answer within {waited:?}")]
    TimedOut {
        /// The side.
        side: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The time for the whole benchmark is over.
    #[error("the time for the benchmark is over")]
    OutOfTime,
}
