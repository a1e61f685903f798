//! The one way to a node: connect, say hello, check which incarnation answers, ask for leases.

use super::{ConnError, Connection, Socket, TcpOptions};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tidepool_types::{ClientId, Deadline, Epoch};
use tidepool_wire::message::{Hello, Request, Welcome};

/// Where a node listens.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// A Unix socket on this host: the node hands out its memory over it.
    Socket(&'a Path),
    /// An address anywhere, and how to set up the socket.
    Network(SocketAddr, &'a TcpOptions),
}

/// Who dials, and whom.
#[derive(Debug, Clone, Copy)]
pub struct Dial {
    /// The client's incarnation.
    pub client: ClientId,
    /// The node's incarnation; `None` for whichever answers.
    pub epoch: Option<Epoch>,
    /// For how many milliseconds the node leases what this connection reads; zero for not at all.
    pub lease_millis: u32,
}

/// A node that has answered.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub connection: Connection,
    /// What the node said of itself.
    pub welcome: Welcome,
    /// The descriptors that came with it: see [`Welcome`].
    pub fds: Vec<OwnedFd>,
}

impl Dial {
    /// Dials the node at `place`. [`ConnError::WrongEpoch`] when another incarnation answers than the one that was wanted.
    pub fn to(&self, place: Place<'_>, until: Deadline) -> Result<Dialled, ConnError> {
        self.watched(place, until, |_| {})
    }

    /// As [`Dial::to`]; whoever is `told` of the socket may close it to end the attempt.
    pub fn watched(
        &self,
        place: Place<'_>,
        until: Deadline,
        told: impl FnOnce(&Arc<Socket>),
    ) -> Result<Dialled, ConnError> {
        let hello = Hello { client: self.client, wants_memory: matches!(place, Place::Socket(_)) };
        let mut dialled = match place {
            Place::Socket(path) => {
                let (connection, welcome, fds) = Connection::connect_unix(path, hello, until)?;
                Dialled { connection, welcome, fds }
            }
            Place::Network(address, options) => {
                let (connection, welcome) = Connection::connect_tcp_watched(address, options, hello, until, told)?;
                Dialled { connection, welcome, fds: Vec::new() }
            }
        };
        if self.epoch.is_some_and(|wanted| wanted != dialled.welcome.epoch) {
            return Err(ConnError::WrongEpoch(dialled.welcome.epoch));
        }
        if self.lease_millis > 0 {
            dialled.connection.send(&Request::Lease(self.lease_millis), &[], until)?;
        }
        Ok(dialled)
    }
}
