//! What a connector inside an engine needs from the pool, whatever the engine: it says where its paged KV memory lies and
//! which blocks to move, and everything that takes time happens on threads here.
//!
//! Two things, one for each side of an engine:
//!
//! - [`Lookup`], for the scheduler: how much of a request's prefix can be had? A question is answered at once or later, never
//!   by waiting. Keys are made here from the engine's packed block hashes, for all ranks and KV groups at once, and
//!   [`plan`] decides what the answers amount to.
//! - [`Transfers`], for a worker: saves and loads of blocks, submitted as jobs and polled for. A [`Mover`] knows how to get at
//!   the engine's memory; [`HostMover`] is the one for memory that this process can address, described by a [`Layout`].
//!
//! What it does not do: it knows nothing of Python, of any engine's interface or of its scheduling, and it never holds a block
//! of the engine's memory for longer than the job that named it.
// Not `forbid`: `layout` reads and writes the engine's memory.
#![deny(unsafe_code)]

mod crew;
mod keys;
mod layout;
mod lookup;
mod mover;
pub mod plan;
mod transfers;

pub use keys::{Hashes, KeyPrefix};
pub use layout::{Layout, LayoutError, Piece};
pub use lookup::{Chain, Lookup, LookupConfig, LookupStats};
pub use mover::{HostMover, Mover, Placed};
pub use transfers::{Direction, Finished, Job, Part, TransferConfig, TransferStats, Transfers};
