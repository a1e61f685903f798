//! Servers for other sides: a node or a catalog in a process of its own, never sampled itself.

use crate::bench::serve::{Measured, Sample};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tidepool_catalog::{CatalogConfig, Server, generated::Fleet};
use tidepool_node::{Node, NodeConfig};
use tidepool_types::ByteSize;

/// A node to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodePlan {
    /// The directory of its files and its socket.
    pub dir: PathBuf,
    /// Its name.
    pub name: String,
    /// Bytes for blocks.
    pub capacity: ByteSize,
    /// Catalogs to announce to.
    pub catalogs: Vec<String>,
}

/// A catalog to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CatalogPlan {}

/// Made-up nodes that fill a catalog.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FleetPlan {
    /// The catalog.
    pub catalog: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of blocks, over all nodes.
    pub blocks: u64,
    /// The kind of the blocks' keys.
    pub keys: super::KeyKind,
}

/// A server that runs until its process ends.
pub(super) struct Host<T> {
    detail: String,
    _server: T,
}

impl NodePlan {
    pub(super) fn set_up(&self) -> io::Result<Host<Node>> {
        let config = NodeConfig {
            dir: self.dir.clone(),
            capacity: self.capacity,
            catalogs: self.catalogs.clone(),
            // The scrubber would compete with the measured work, which may have only two cores.
            scrub_rate: ByteSize(0),
            ..NodeConfig::small(&self.name)
        };
        let node = Node::start(config).map_err(io::Error::other)?;
        Ok(Host { detail: node.data_address().to_string(), _server: node })
    }
}

impl CatalogPlan {
    pub(super) fn set_up(&self) -> io::Result<Host<Server>> {
        let server = Server::start(CatalogConfig::default()).map_err(io::Error::other)?;
        Ok(Host { detail: server.address().to_string(), _server: server })
    }
}

impl FleetPlan {
    pub(super) fn set_up(&self) -> io::Result<Host<Fleet>> {
        let keys = self.keys;
        let fleet = Fleet::fill(&self.catalog, self.nodes, self.blocks, Arc::new(move |n| keys.id(n)));
        Ok(Host { detail: String::new(), _server: fleet.map_err(io::Error::other)? })
    }
}

impl<T> Measured for Host<T> {
    fn detail(&self) -> String {
        self.detail.clone()
    }

    fn run(&mut self, _variant: u64) -> io::Result<Sample> {
        Err(io::Error::other("a server is not measured"))
    }

    fn verify(&mut self) -> io::Result<()> {
        Ok(())
    }
}
