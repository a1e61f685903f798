//! A node in this process and a plain client of it: frames over its sockets, and its memory mapped.
#![expect(dead_code, reason = "each test file uses a part of this")]

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use tidepool_node::{Node, NodeConfig};
use tidepool_store::{Mapping, ShmTransport};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::ops::{Destination, Done, Failure, Op, ReadOp, Region, Regions, WriteOp};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, ClientId, Deadline, Key, TenantSecret};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{
    Hello, Reply, Request, Reserve, ReserveItem, ReserveOutcome, Seal, SealItem, SealOutcome, SlotName, Welcome, Write,
};

/// A node with a directory of its own.
pub(crate) struct TestNode {
    pub(crate) node: Node,
    pub(crate) dir: Arc<tempfile::TempDir>,
}

pub(crate) fn start(name: &str) -> TestNode {
    start_with(name, |_| {})
}

pub(crate) fn start_with(name: &str, change: impl FnOnce(&mut NodeConfig)) -> TestNode {
    let dir = Arc::new(tempfile::tempdir_in("/dev/shm").unwrap());
    let mut config = NodeConfig { dir: dir.path().to_owned(), ..NodeConfig::small(name) };
    change(&mut config);
    TestNode { node: Node::start(config).unwrap(), dir }
}

impl TestNode {
    /// The value of a metric.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.node.metrics();
        metrics.iter().find(|m| m.full_name() == name).unwrap_or_else(|| panic!("no metric {name}")).number()
    }

    pub(crate) fn unix(&self, client: u64) -> Client {
        let hello = Hello { client: ClientId(client), wants_memory: true };
        let (connection, welcome, fds) = Connection::connect_unix(self.node.socket_path(), hello, soon()).unwrap();
        let mapping = Arc::new(Mapping::open(&fds[0], &fds[1], fds.get(2)).unwrap());
        Client { connection, welcome, mapping: Some(mapping) }
    }

    pub(crate) fn tcp(&self, client: u64) -> Client {
        let hello = Hello { client: ClientId(client), wants_memory: false };
        let address = self.node.data_address();
        let (connection, welcome) = Connection::connect_tcp(address, &TcpOptions::default(), hello, soon()).unwrap();
        Client { connection, welcome, mapping: None }
    }
}

/// A connection, and the node's memory when it is on this host.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) welcome: Welcome,
    pub(crate) mapping: Option<Arc<Mapping>>,
}

impl Client {
    pub(crate) fn call(&mut self, request: &Request) -> Result<Reply, ConnError> {
        self.connection.call(request, &[], soon())
    }

    pub(crate) fn reserve(&mut self, key: &[u8], len: u64) -> ReserveOutcome {
        let items = vec![ReserveItem { key: key.to_vec(), len }];
        let reserve = Reserve { wait_millis: 50, mapped: self.mapping.is_some(), items, ..Reserve::default() };
        match self.call(&Request::Reserve(reserve)).unwrap() {
            Reply::Reserved(outcomes) => outcomes[0],
            other => panic!("{other:?}"),
        }
    }

    /// Fills a reservation, through the mapping or the socket, and returns the checksums.
    pub(crate) fn fill(&mut self, key: &[u8], slot: SlotName, offset: u64, bytes: &[u8]) -> Sums {
        let Some(mapping) = &self.mapping else {
            let write = Request::Write(Write { slot, offset: 0 });
            assert_eq!(self.connection.call(&write, &[IoSlice::new(bytes)], soon()).unwrap(), Reply::Written);
            return BlockChecksum::new(id(key), bytes.len() as u64).range(0, bytes);
        };
        let mut transport = ShmTransport::new(Arc::clone(mapping), Arc::new(CopyPool::new(0)), false);
        let source = Regions::One(Region::of(bytes));
        transport.submit(vec![Op::Write(WriteOp { token: 1, id: id(key), slot, slab_offset: offset, source })], soon());
        let mut done = Vec::new();
        transport.poll(&mut done, soon());
        match done.pop().unwrap().outcome {
            Ok(Done::Written { checksums }) => checksums,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn seal(&mut self, slot: SlotName, checksums: Sums) -> SealOutcome {
        let seal = Seal { wait_millis: 1000, items: vec![SealItem { slot, checksums }] };
        match self.call(&Request::Seal(seal)).unwrap() {
            Reply::Sealed(outcomes) => outcomes[0],
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], bytes: &[u8]) {
        match self.reserve(key, bytes.len() as u64) {
            ReserveOutcome::Taken { slot, offset } => {
                let checksums = self.fill(key, slot, offset, bytes);
                assert!(matches!(self.seal(slot, checksums), SealOutcome::Sealed(_)));
            }
            ReserveOutcome::Held(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Reads through the mapping.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Vec<u8>, Failure> {
        read(&mut ShmTransport::new(Arc::clone(self.mapping.as_ref().unwrap()), Arc::new(CopyPool::new(0)), true), key)
    }

    pub(crate) fn holds(&mut self, key: &[u8]) -> bool {
        match self.call(&Request::Confirm(vec![id(key)].into())).unwrap() {
            Reply::Found(found) => found.copies[0].is_some(),
            other => panic!("{other:?}"),
        }
    }
}

/// Reads one block through any transport.
pub(crate) fn read(transport: &mut impl Transport, key: &[u8]) -> Result<Vec<u8>, Failure> {
    let destination = Destination::Allocate;
    let op = ReadOp::whole(9, id(key), destination);
    assert_eq!(transport.submit(vec![Op::Read(op)], soon()), [Ok(())]);
    let mut done = Vec::new();
    while done.is_empty() {
        transport.poll(&mut done, soon());
    }
    match done.pop().unwrap().outcome {
        Ok(Done::Read { data, .. }) => Ok(data.unwrap()),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure),
    }
}

pub(crate) fn id(key: &[u8]) -> BlockId {
    BlockId::derive(&TenantSecret::DEFAULT, Key::new(key).unwrap())
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// Bytes that depend on the key.
pub(crate) fn content(key: &[u8], len: usize) -> Vec<u8> {
    let seed = id(key).words()[0];
    (0..len as u64).map(|i| (seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
