//! The promises of every transport, checked between a client and a running node: over TCP, and through its memory.

mod common;

use common::{Client, TestNode, soon, start_with};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use tidepool_locks::Mutex;
use tidepool_store::ShmTransport;
use tidepool_testing::flip_bit;
use tidepool_transfer::conformance::{Owner, check_all};
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::testing::{block_id, block_key};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, ClientId, CopyName};
use tidepool_wire::message::{Request, ReserveOutcome, SlotName};

/// Who reads and writes.
const CLIENT: u64 = 1;

/// A node, who puts blocks there, and who uses the transport.
struct Served {
    node: TestNode,
    putter: Mutex<Client>,
    user: Mutex<Client>,
    slab: File,
    /// Where the user's reservations lie, and how long they are.
    open: Mutex<HashMap<SlotName, (u64, usize)>>,
    damaged: Mutex<Vec<(BlockId, CopyName)>>,
}

impl Served {
    /// A node that does not look for damage itself, so that what it knows was reported.
    fn to(user: impl Fn(&TestNode) -> Client) -> Self {
        let node = start_with("promises", |config| {
            (config.capacity.0, config.smallest_expected_block.0, config.scrub_rate.0) = (192 << 20, 16 << 10, 0);
        });
        let slab = File::options().read(true).write(true).open(node.dir.path().join("promises.slab")).unwrap();
        let (putter, user) = (Mutex::new(node.unix(2)), Mutex::new(user(&node)));
        Self { node, putter, user, slab, open: Mutex::default(), damaged: Mutex::default() }
    }
}

impl Owner for Served {
    fn put(&self, number: u64, bytes: &[u8]) -> CopyName {
        let (memory, id) = (self.node.node.memory(), block_id(number));
        memory.remove(&id);
        self.putter.lock().put(&block_key(number), bytes);
        memory.confirm(&[id])[0].expect("the block was put").0
    }

    fn damage(&self, number: u64, at: u64) {
        let held = self.node.node.memory().peek(&block_id(number)).expect("the block is held");
        flip_bit(&self.slab, held.offset() + at);
        self.damaged.lock().push((held.id(), held.copy()));
    }

    fn reserve(&self, number: u64, len: usize) -> (SlotName, u64) {
        let outcome = self.user.lock().reserve(&block_key(number), len as u64);
        let ReserveOutcome::Taken { slot, offset } = outcome else { panic!("{outcome:?}") };
        self.open.lock().insert(slot, (offset, len));
        (slot, offset)
    }

    fn written(&self, slot: &SlotName) -> Option<Vec<u8>> {
        let (offset, len) = *self.open.lock().get(slot)?;
        let mut bytes = vec![0; len];
        self.slab.read_exact_at(&mut bytes, offset).unwrap();
        Some(bytes)
    }

    /// The damaged copies that the node has taken out of sight.
    fn reports(&self) -> Vec<(BlockId, CopyName)> {
        let is_held = |(id, copy): &(_, _)| self.node.node.memory().peek(id).is_some_and(|held| held.copy() == *copy);
        self.damaged.lock().iter().filter(|damaged| !is_held(damaged)).copied().collect()
    }

    fn report(&self, id: BlockId, copy: CopyName) {
        let user = &mut self.user.lock();
        if user.mapping.is_some() {
            assert!(user.connection.send_one_way(&Request::ReportCorrupt(vec![(id, copy)])).unwrap());
        }
    }

    fn brings_checksums(&self) -> bool {
        self.user.lock().mapping.is_none()
    }

    fn transport(&self) -> Box<dyn Transport> {
        if let Some(mapping) = &self.user.lock().mapping {
            return Box::new(ShmTransport::new(Arc::clone(mapping), Arc::new(CopyPool::new(1)), true));
        }
        let (address, epoch) = (self.node.node.data_address(), self.node.node.epoch());
        let connected = TcpTransport::connect(address, epoch, ClientId(CLIENT), TcpConfig::default(), soon());
        Box::new(connected.unwrap())
    }
}

#[test]
fn tcp_to_a_node_keeps_its_promises() {
    check_all(&Served::to(|node| node.tcp(CLIENT)));
}

#[test]
fn a_nodes_mapped_memory_keeps_its_promises() {
    check_all(&Served::to(|node| node.unix(CLIENT)));
}
