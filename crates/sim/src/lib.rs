//! Simulation of caches and clusters: the hits and times that a trace would have.
//!
//! - [`Pool`] is one cache, exactly. A request's hits are the blocks of the longest held run from its start; then the
//!   cache uses all of its blocks, from the last to the first, and evicts down to its size.
//! - [`Clairvoyant`] is the order of eviction that knows the future, as a bound for all others.
//! - [`Curve`] is LRU's hit rate at every size, in one pass; [`plan`] is what that means for engines.
//! - [`cluster`] is a whole cluster in virtual time.
//!
//! ```
//! use tidepool_sim::{Blocks, Pool};
//! use tidepool_policy::eviction::Policy;
//! use tidepool_trace::{BlockHash, Millis, Request};
//!
//! let blocks = [1, 2, 3].map(BlockHash).to_vec();
//! let request = Request { at: Millis(0), input_tokens: 1400, output_tokens: 10, blocks, origin: None };
//! let mut pool = Pool::new(Blocks(2), Policy::Lru.build());
//! assert_eq!(pool.serve(&request), Blocks(0));
//! // Two of three blocks fit, and they are the ones at the start: the last ones were touched first.
//! assert_eq!(pool.serve(&request), Blocks(2));
//! ```
#![forbid(unsafe_code)]

mod clairvoyant;
pub mod cluster;
mod curve;
mod hash;
mod over_time;
pub mod plan;
mod pool;
mod prefill;
mod quantiles;
mod stack;
mod stat;
mod tally;

pub use clairvoyant::{Clairvoyant, Future, Ties};
pub use curve::{Curve, CurveBuilder};
pub use over_time::OverTime;
pub use pool::Pool;
pub use prefill::Prefill;
pub use quantiles::Quantiles;
pub use stat::{StatBuilder, TraceStat};
pub use tally::Tally;

/// A number of blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocks(pub u64);

impl Blocks {
    /// More blocks than there can be.
    pub const UNLIMITED: Self = Self(u64::MAX);
}
