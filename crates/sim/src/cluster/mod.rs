//! A cluster in virtual time: engines with caches of their own, and a pool on their hosts that they share.
//!
//! A request goes to an engine ([`Routing`]), which gets to it when it has computed the prompts before it. The engine
//! looks up the blocks that it has itself and those that the pool has, loads the latter, computes the rest
//! ([`Prefill`]) and decodes the answer. Engines compute prompts one after another and decode beside that. They save
//! the blocks of prompts and answers ([`Decoded`]) in the pool, on their own host. GPUs, links, disks and catalogs are
//! queues with a rate ([`Kind`]). A transfer joins all queues on its way at once and is done when the last of them has
//! served it. The same requests, settings and seed give the same report.

mod config;
mod decoded;
mod engine;
mod fabric;
mod history;
mod queue;
mod report;
mod route;
mod run;
mod source;
mod store;
mod throughput;

pub use config::{Cluster, Routing, Speed};
pub use decoded::{Decoded, Made};
pub use queue::{Kind, Load};
pub use report::{Answer, Report};
pub use route::Router;
pub use run::run;
pub use source::{ClosedLoop, OpenLoop};
pub use throughput::Throughput;
pub use tidepool_trace::Source;

use crate::Prefill;
use std::time::Duration;
use tidepool_trace::Millis;

/// A time from the start of the run, in nanoseconds. It holds more than any trace's milliseconds, so that no time is
/// too late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Nanos(u128);

impl Nanos {
    fn of_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u128)
    }

    const fn of_millis(Millis(millis): Millis) -> Self {
        Self(millis as u128 * 1_000_000)
    }

    /// Whole milliseconds, rounded up.
    fn millis(self) -> Millis {
        Millis(u64::try_from(self.0.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    fn duration(self) -> Duration {
        let part = (self.0 % 1_000_000_000) as u32;
        u64::try_from(self.0 / 1_000_000_000).map_or(Duration::MAX, |seconds| Duration::new(seconds, part))
    }
}
