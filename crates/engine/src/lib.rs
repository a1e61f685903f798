//! The part of an engine's connector that is the same for every engine. The connector says where the engine's paged KV
//! memory lies and which blocks to move; threads of this crate do everything that takes time.
//!
//! It has one part for each side of an engine:
//!
//! - [`Lookup`], for the scheduler: the length of a request's prefix that can be loaded, and where its blocks are. An answer
//!   comes at once or on a later call, so that no step blocks. `Lookup` makes the keys from the engine's packed block hashes,
//!   for all ranks and KV groups at once, and [`plan`] makes one length of the answers.
//! - [`Transfers`], for a worker: saves and loads of blocks, submitted as jobs and polled. A [`Mover`] reaches the
//!   engine's memory: [`HostMover`] memory of this process, [`DeviceMover`] a GPU's. A [`Layout`] says where the blocks
//!   lie.
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
//! This crate knows nothing of Python, of any engine's interface or of its scheduling. It uses a block of the engine's
//! memory no longer than the job that names the block.
// Not `forbid`: `mover` reads and writes the engine's memory.
#![deny(unsafe_code)]

mod crew;
mod found;
mod keys;
mod layout;
mod lookup;
mod mover;
pub mod plan;
mod replicas;
mod transfers;

pub use found::Found;
pub use keys::{Hashes, KeyPrefix};
pub use layout::{Layout, LayoutError, Piece};
pub use lookup::{Chain, Lookup, LookupConfig, LookupStats};
pub use mover::{DeviceMover, GoOn, HostMover, Mover, Placed};
pub use transfers::{Direction, Finished, Job, Part, TransferConfig, TransferStats, Transfers};
