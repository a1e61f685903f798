//! A node in the caller's own process: its requests are served on the caller's thread, without a socket between.
//!
//! Two threads that talk over a socket wake each other twice a request, which takes longer than serving one. An engine that
//! brings its own memory to the pool need not pay for that when it puts blocks there. Nodes make themselves known to their
//! process, and clients look there by themselves, as they do for nodes of their host.

use crate::conn::ConnError;
use std::sync::Arc;
use tidepool_locks::RwLock;
use tidepool_types::{ClientId, Epoch};
use tidepool_wire::message::{Reply, Request};

/// A node in this process.
pub trait InProcess: Send + Sync {
    /// The node's incarnation, which says which node it is.
    fn epoch(&self) -> Epoch;

    /// A desk for a client that has a connection to the node and its memory mapped; `None` when the node is gone or does not
    /// know the client.
    fn open(&self, client: ClientId) -> Option<Box<dyn Direct>>;
}

/// Serves one client's puts. What it has reserved is its own, as it is for a connection, and ends with it.
pub trait Direct: Send {
    /// Answers a Reserve, Seal or Abort; an error when the node is gone. Unlike a node at the other end of a connection it
    /// does not wait for the catalogs: a put may be in several parts.
    fn serve(&mut self, request: &Request) -> Result<Reply, ConnError>;

    /// Waits until the catalogs know of all that has been sealed, or was found to be held. Before this a put is not answered.
    fn announce(&mut self);
}

/// The nodes of this process. Short sections.
static NODES: RwLock<Vec<Arc<dyn InProcess>>> = RwLock::new(Vec::new());

/// A node's being known to its process, until dropped.
pub struct Known(Epoch);

/// Makes a node known to the clients of its process.
pub fn make_known(node: Arc<dyn InProcess>) -> Known {
    let epoch = node.epoch();
    NODES.write().push(node);
    Known(epoch)
}

impl Drop for Known {
    fn drop(&mut self) {
        NODES.write().retain(|node| node.epoch() != self.0);
    }
}

/// A desk for `client` at the node of this incarnation, if it is one of this process.
#[must_use]
pub fn open(epoch: Epoch, client: ClientId) -> Option<Box<dyn Direct>> {
    let node = NODES.read().iter().find(|node| node.epoch() == epoch).cloned();
    node?.open(client)
}
