//! Which node holds which block, and which nodes are alive.
//!
//! ```text
//!   nodes -- inventory streams --> streams (judge, apply) --> index   (id -> stream slots)
//!                                      |                        |
//!                                      v                        v
//!                                  members (alive, suspect, dead; slot -> node) --> service --> look-ups
//! ```
//!
//! All state is soft: it comes from the nodes' streams and is gone with the process. A catalog that has just started is
//! exact as soon as the nodes have found it, and says until then that it is not complete. It holds no keys, no bytes of
//! blocks, and nothing that has to survive.
//!
//! ```
//! use tidepool_catalog::{CatalogConfig, Server};
//!
//! let catalog = Server::start(CatalogConfig::default())?;
//! println!("listening on {}", catalog.address());
//! catalog.shutdown();
//! # Ok::<(), tidepool_catalog::StartError>(())
//! ```
// Not `forbid`: `heap`, `index::arena` and `index::prefetch` are the exceptions.
#![deny(unsafe_code)]

pub mod config;
mod core;
pub mod generated;
mod heap;
mod incoming;
pub mod index;
pub mod members;
mod metrics;
mod recorders;
mod requests;
mod server;
mod service;
pub mod streams;
mod subscribers;
mod sweeper;
mod waiters;

pub use config::CatalogConfig;
pub use members::NameConflict;
pub use server::{Server, StartError};
