//! Nodes as callers see them.

use crate::peers::NodeKey;
use std::path::PathBuf;
use tidepool_types::{Epoch, NodeName};

/// What a catalog thinks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Heard of lately.
    Alive,
    /// Silent for a moment: read from last, and not written to.
    Suspect,
    /// Silent for long, or gone on purpose.
    Dead,
    /// Known from its socket on this host only.
    Unannounced,
}

/// A node of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: NodeName,
    /// Its incarnation.
    pub epoch: Epoch,
    /// Where it serves the data protocol, `host:port`; empty when unannounced.
    pub data_address: String,
    /// Its Unix socket on its own host.
    pub socket_path: Option<PathBuf>,
    /// What the catalog thinks of it.
    pub state: NodeState,
    /// Bytes that it has for blocks; zero when unknown.
    pub capacity: u64,
    /// Bytes of these in use.
    pub used: u64,
    /// Whether this client has its memory mapped.
    pub mapped: bool,
}

impl Member {
    pub(crate) fn key(&self) -> NodeKey {
        NodeKey { name: self.name.clone(), epoch: self.epoch }
    }

    /// Whether it is worth reading from.
    pub(crate) fn is_usable(&self) -> bool {
        self.state != NodeState::Dead
    }
}
