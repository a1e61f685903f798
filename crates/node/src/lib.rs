//! Owns memory and serves blocks: as a daemon, or embedded in an engine's process.
//!
//! [`Node::start`] makes the pool, listens on a Unix socket and a TCP address, announces what it holds to the catalogs and
//! scrubs its memory in the background. Every connection has a thread; dropping the node ends them all. What a process
//! on this host holds (views, late writes) is freed when it lets go or has ended, whatever becomes of its sockets.
//!
//! ```
//! use tidepool_node::{Node, NodeConfig};
//!
//! # let dir = std::env::temp_dir().join(format!("tidepool-doc-{}", std::process::id()));
//! let config = NodeConfig { dir: dir.clone(), ..NodeConfig::small("example") };
//! let node = Node::start(config)?;
//! println!("serving {}", node.data_address());
//! # drop(node);
//! # std::fs::remove_dir_all(dir).ok();
//! # Ok::<(), tidepool_node::StartError>(())
//! ```

pub mod announce;

mod access;
mod config;
mod counters;
mod descriptors;
mod desk;
mod draining;
mod leases;
mod listen;
mod node;
mod process;
mod pull;
mod pulls;
mod reservations;
mod scrub;
mod serving;
mod spaces;

pub use access::{Access, UnknownAccess};
pub use config::NodeConfig;
pub use node::{Node, StartError};
