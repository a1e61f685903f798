//! The carriers that bring bytes to and from nodes on the network: a table, of which the first row that reaches a node is used.
//!
//! A carrier is a crate's way of opening a [`Transport`]; TCP is the last row, because it reaches every node. Clients and nodes
//! have a table each, made where they start.

use crate::conn::ConnError;
use crate::fault::{FaultPlan, Faulty};
use crate::tcp::{TcpConfig, TcpTransport};
use crate::transport::Transport;
use std::fmt;
use std::net::SocketAddr;
use tidepool_types::{ClientId, Deadline, Epoch};

/// A node to be reached, and who reaches it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Where the node listens.
    pub address: SocketAddr,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The client's incarnation.
    pub client: ClientId,
    /// For how many milliseconds the node leases what is read; zero for not at all.
    pub lease_millis: u32,
}

/// One row of the table.
pub trait Carrier: Send + Sync + fmt::Debug {
    /// Opens a transport to a node; an error where this carrier does not reach it.
    fn open(&self, target: &Target, until: Deadline) -> Result<Box<dyn Transport>, ConnError>;
}

/// See the file's head.
#[derive(Debug)]
pub struct Carriers {
    rows: Vec<Box<dyn Carrier>>,
    /// What goes wrong on purpose, whatever the carrier.
    faults: FaultPlan,
}

impl Carriers {
    /// A table of TCP alone, whose transports fail by `faults`.
    #[must_use]
    pub fn tcp(config: TcpConfig, faults: FaultPlan) -> Self {
        Self { rows: vec![Box::new(Tcp(config))], faults }
    }

    /// The same table with a carrier that is tried before all others.
    #[must_use]
    pub fn preferring(mut self, carrier: Box<dyn Carrier>) -> Self {
        self.rows.insert(0, carrier);
        self
    }

    /// Opens a transport by the first carrier that reaches the node. Another incarnation in the node's place ends the search:
    /// no carrier reaches what is gone. `nth` tells transports apart whose faults are not to be the same.
    pub fn open(&self, target: &Target, nth: u64, until: Deadline) -> Result<Box<dyn Transport>, ConnError> {
        let mut last = ConnError::Closed;
        for carrier in &self.rows {
            match carrier.open(target, until) {
                Ok(transport) if self.faults.is_empty() => return Ok(transport),
                Ok(transport) => {
                    let seed = self.faults.seed.wrapping_add(nth);
                    return Ok(Box::new(Faulty::new(transport, FaultPlan { seed, ..self.faults.clone() })));
                }
                Err(error @ ConnError::WrongEpoch(_)) => return Err(error),
                Err(error) => {
                    tracing::debug!(?carrier, %error, "a carrier does not reach the node");
                    last = error;
                }
            }
        }
        Err(last)
    }
}

#[derive(Debug)]
struct Tcp(TcpConfig);

impl Carrier for Tcp {
    fn open(&self, target: &Target, until: Deadline) -> Result<Box<dyn Transport>, ConnError> {
        let Target { address, epoch, client, lease_millis } = *target;
        let config = TcpConfig { lease_millis, ..self.0.clone() };
        Ok(Box::new(TcpTransport::connect(address, epoch, client, config, until)?))
    }
}
