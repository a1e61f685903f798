//! The library inside an engine: finds blocks, moves them, and turns every failure into a miss.
//!
//! A [`Client`] is blocking and thread-safe; make one per process and clone it. It finds the nodes of its own host by their
//! sockets, maps their memory and reads blocks there without asking anybody; for the rest it asks the catalogs, and reads
//! over TCP. Writes go to a node of this host if there is one. Every call has a deadline.
//!
//! ```no_run
//! use tidepool_client::{Client, ClientConfig, PutOptions};
//!
//! let catalogs = vec!["127.0.0.1:7411".to_owned()];
//! let client = Client::connect(ClientConfig { catalogs, ..ClientConfig::default() })?;
//!
//! let stored = client.put("prefix/0", &[7; 4096], &PutOptions::default())?;
//! assert_eq!(stored.replicas, 1);
//!
//! let mut buffer = vec![0; 4096];
//! match client.get_into("prefix/0", &mut buffer)? {
//!     Some(bytes) => println!("read {bytes} bytes"),
//!     None => println!("not there: compute it again"),
//! }
//!
//! // How much of a prefix is worth not computing again?
//! let matches = client.match_prefix(&[["prefix/0", "prefix/1"]])?;
//! println!("{} blocks", matches.shortest);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where things are: `get` and `put` hold the two long paths, `view`, `device`, `lookup`, `remove`, `upsert`, `list`, `copies` and `members`
//! one family of calls each; `peers` knows the nodes, [`catalogs`] asks the catalogs, `background` keeps both current.
//!
//! What a caller lends (`get_into`, `put`) belongs to the call until it returns; [`Client::spawn`] takes owned values only,
//! so dropping a [`Call`] is safe at any moment.
// Not `forbid`: `view` reads borrowed memory, and a device's memory is known by address.
#![deny(unsafe_code)]

pub mod catalogs;

mod background;
mod bell;
mod buffers;
mod call;
mod client;
mod config;
mod copies;
mod core;
mod counters;
mod device;
mod error;
mod fan_out;
mod get;
mod known;
mod list;
mod lookup;
mod members;
mod peers;
mod put;
mod recorded;
mod remove;
mod upsert;
mod view;

pub use buffers::{Buffers, Parts};
pub use call::{Call, Lost, Overloaded};
pub use client::Client;
pub use config::{ClientConfig, InvalidConfig, Verify};
pub use copies::{BlockCopy, Whereabouts};
pub use counters::ClientStats;
pub use device::{DeviceParts, GetToDevice, PinnedForDevice};
pub use error::{ConnectError, GetError, NodeError, PutError};
pub use get::GetInto;
pub use list::{ListCursor, ListPage, Listed, Pattern};
pub use lookup::{ChainMatch, Matches, Place};
pub use members::PoolNode;
pub use put::{PutItem, PutOptions, Stored};
pub use remove::{Removal, Removals};
pub use tidepool_transfer::door;
pub use tidepool_types::{ClientId, Deadline, InvalidInput, Millis, NodeName, Origin, SessionId, Tier, ToolId};
pub use tidepool_wire::message::Pin;
pub use upsert::Upserted;
pub use view::View;
