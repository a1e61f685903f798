//! What a connector inside an engine needs from the pool, whatever the engine: it says where its paged KV memory lies and
//! which blocks to move, and everything that takes time happens on threads here.
//!
//! Two things, one for each side of an engine:
//!
//! - [`Lookup`], for the scheduler: how much of a request's prefix can be had? A question is answered at once or later, never
//!   by waiting. Keys are made here from the engine's packed block hashes, for all ranks and KV groups at once, and
//!   [`plan`] decides what the answers amount to.
//! - [`Transfers`], for a worker: saves and loads of blocks, submitted as jobs and polled for. A [`Mover`] knows how to get at
//!   the engine's memory; [`HostMover`] is the one for memory that this process can address, [`DeviceMover`] the one for a GPU's. A
//!   [`Layout`] says where the blocks lie.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidepool_client::{Client, ClientConfig};
//! use tidepool_engine::{Chain, Hashes, KeyPrefix, Lookup, LookupConfig, plan::Need};
//!
//! let client = Client::connect(ClientConfig::default())?;
//! let chain = Chain { prefix: KeyPrefix::new("model/rank-0/"), step: 1, need: Need::All };
//! let lookup = Lookup::start(&client, vec![chain], LookupConfig::default())?;
//! let hashes = Hashes::new(vec![7; 3 * 32], 32).ok_or("three hashes of 32 bytes")?;
//! match lookup.ask(hashes, 0, Duration::ZERO) {
//!     Some(blocks) => println!("{blocks} blocks can be loaded"),
//!     None => println!("ask again in the next step"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it does not do: it knows nothing of Python, of any engine's interface or of its scheduling, and it never holds a block
//! of the engine's memory for longer than the job that named it.
// Not `forbid`: `mover` reads and writes the engine's memory.
#![deny(unsafe_code)]

mod crew;
mod keys;
mod layout;
mod lookup;
mod mover;
pub mod plan;
mod replicas;
mod transfers;

pub use keys::{Hashes, KeyPrefix};
pub use layout::{Layout, LayoutError, Piece};
pub use lookup::{Chain, Lookup, LookupConfig, LookupStats};
pub use mover::{DeviceMover, GoOn, HostMover, Mover, Placed};
pub use transfers::{Direction, Finished, Job, Part, TransferConfig, TransferStats, Transfers};
