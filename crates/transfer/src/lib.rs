//! Moves bytes between memory and nodes.
//!
//! [`transport::Transport`] is one way of moving bytes to and from one node: submit operations on blocks, reservations and
//! registered ranges ([`ops`]), poll their completions. [`tcp`] is the way over the network, [`memory`] its twin without one,
//! [`fault`] a wrapper that breaks things on purpose, [`carriers`] the table from which a transport to a node is chosen. [`fetch`] reads from many nodes at once, over transports that are kept
//! ([`lent`]). Below it, [`conn`] carries the frames of the data plane over Unix and TCP sockets for clients and nodes, and
//! [`copy`] moves bytes through shared memory at the machine's speed. [`door`] is what a GPU's driver is asked for. `conformance` (feature `testing`) checks the promises
//! that every transport makes.
//!
//! Not here: who holds which block (catalog, client), what a node does with its memory (store, node), retries on other
//! replicas (client).
//!
//! ```
//! use std::time::Duration;
//! use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
//! use tidepool_transfer::ops::{Destination, Done, Op, ReadOp};
//! use tidepool_transfer::transport::Transport;
//! use tidepool_types::{BlockId, Deadline, Epoch};
//!
//! let node = MemoryNode::new(Epoch(1));
//! let id = BlockId::from_bytes([1; 16]);
//! node.put(id, b"state".to_vec());
//!
//! let mut transport = MemoryTransport::new(node);
//! let read = ReadOp::whole(1, id, Destination::Allocate);
//! let deadline = Deadline::after(Duration::from_secs(1));
//! transport.submit(vec![Op::Read(read)], deadline);
//! let mut done = Vec::new();
//! transport.poll(&mut done, deadline);
//! let Ok(Done::Read { data: Some(data), .. }) = &done[0].outcome else { panic!("a held block is read") };
//! assert_eq!(data, b"state");
//! ```

pub mod carriers;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod conn;
pub mod copy;
mod cores;
pub mod direct;
pub mod door;
pub mod fault;
pub mod fetch;
pub mod lent;
pub mod memory;
pub mod ops;
pub mod regions;
pub mod tcp;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
