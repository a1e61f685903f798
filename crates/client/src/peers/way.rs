//! The way to a node: its mapped memory and Unix socket on this host, or its address on the network.

use super::context::Context;
use super::mapped_node::MappedNode;
use super::pool;
use crate::catalogs::NodeKey;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidepool_store::{LeaseWriter, Mapping};
use tidepool_transfer::conn::dial::{Dial, Dialled, Place};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_types::{Deadline, Epoch, NodeName};
use tidepool_wire::message::{Reply, Request, Welcome};

/// How long a node may take to welcome a connection.
pub(super) const WELCOME: Duration = Duration::from_secs(1);
/// How long a host may take to refuse a connection to a node that has ended.
const REFUSAL: Duration = Duration::from_millis(250);

/// See the file's head.
pub(crate) enum Way {
    /// On this host.
    Memory(Arc<MappedNode>),
    /// Anywhere.
    Network(SocketAddr),
}

/// What a host says of a node that does not answer.
pub(super) enum HostSays {
    /// Nobody listens: the node's process has ended.
    Refused,
    /// Nothing, for as long as it was given.
    Nothing,
    /// Something else: the connection was taken, or there was no time to ask.
    Unknown,
}

impl Way {
    /// The way to the node that listens at `path`, if that is a node of this pool (the catalogs name it, or see [`pool`]) whose
    /// memory can be mapped.
    pub(super) fn on_this_host(
        path: &Path,
        context: &Context,
        is_named: impl FnOnce(&NodeKey) -> bool,
        until: Deadline,
    ) -> Result<(NodeKey, Self), ConnError> {
        let dial = Dial { client: context.client, epoch: None, lease_millis: 0 };
        let Dialled { connection: mut control, welcome, fds } = dial.to(Place::Socket(path), until.capped(WELCOME))?;
        let key = key_of(&welcome)?;
        tracing::debug!(node = %key.name, build = welcome.build, "connected to a node on this host");
        if !is_named(&key) && !pool::is_shared(&context.catalogs, &announced(&mut control, until)?) {
            return Err(ConnError::Unexpected("the node is another pool's: it announces to other catalogs"));
        }
        let (map, slab, writable) = match &fds[..] {
            [map, slab] => (map, slab, None),
            [map, slab, writable] => (map, slab, Some(writable)),
            _ => return Err(ConnError::Unexpected("the node hands out no memory")),
        };
        let unmappable = |error| ConnError::Io(std::io::Error::other(error));
        let mapping = Mapping::open(map, slab, writable).map_err(unmappable)?;
        let ring = if context.leases { open_ring(&mut control, until.capped(WELCOME)) } else { None };
        let memory = MappedNode::new(mapping, path.to_owned(), welcome.writable, control, ring);
        Ok((key, Self::Memory(Arc::new(memory))))
    }

    /// The node's memory, while it is mapped and its owner there.
    pub(super) fn memory(&self) -> Option<&Arc<MappedNode>> {
        match self {
            Self::Memory(memory) if !memory.is_gone() => Some(memory),
            _ => None,
        }
    }

    /// A new connection to the node in the life `epoch`.
    pub(super) fn connect(&self, context: &Context, epoch: Epoch, until: Deadline) -> Result<Connection, ConnError> {
        let dial = Dial { client: context.client, epoch: Some(epoch), lease_millis: context.lease_millis() };
        let options = TcpOptions::default();
        let place = match self {
            // Mapped writes and views are only for connections that asked for memory; the descriptors are not needed.
            Self::Memory(memory) => Place::Socket(&memory.socket_path),
            Self::Network(address) => Place::Network(*address, &options),
        };
        let Dialled { connection, welcome, .. } = dial.to(place, until.capped(WELCOME))?;
        tracing::debug!(node = welcome.node, build = welcome.build, "connected to a node");
        Ok(connection)
    }

    /// Asks the node's host whether the node's process has ended.
    pub(super) fn ask_host(&self, until: Deadline) -> HostSays {
        let within = until.remaining().min(REFUSAL);
        match self {
            Self::Memory(memory) if memory.socket().has_hung_up() => HostSays::Refused,
            Self::Memory(_) => HostSays::Unknown,
            Self::Network(_) if within.is_zero() => HostSays::Unknown,
            Self::Network(address) => match TcpStream::connect_timeout(address, within).map_err(|error| error.kind()) {
                Err(ErrorKind::ConnectionRefused) => HostSays::Refused,
                Err(ErrorKind::TimedOut) if within == REFUSAL => HostSays::Nothing,
                _ => HostSays::Unknown,
            },
        }
    }
}

/// A ring to note leases in; without one, reads through the node's memory are not leased.
fn open_ring(control: &mut Connection, until: Deadline) -> Option<LeaseWriter> {
    let (_, fds) = control.call_for_fds(&Request::LeaseRing, until).ok()?;
    let opened = LeaseWriter::open(fds.first()?);
    opened.inspect_err(|error| tracing::debug!(%error, "the node's ring for leases")).ok()
}

/// The catalogs that a node announces to; none if it does not say.
fn announced(connection: &mut Connection, until: Deadline) -> Result<Vec<String>, ConnError> {
    match connection.call(&Request::Catalogs, &[], until) {
        Ok(Reply::Catalogs(addresses)) => Ok(addresses),
        Ok(_) | Err(ConnError::Refused(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn key_of(welcome: &Welcome) -> Result<NodeKey, ConnError> {
    let bad_name = |_| ConnError::Unexpected("the node's name is not a node's name");
    let name = NodeName::new(welcome.node.clone()).map_err(bad_name)?;
    Ok(NodeKey { name, epoch: welcome.epoch })
}
