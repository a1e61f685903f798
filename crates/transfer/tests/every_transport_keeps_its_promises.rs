//! The conformance checks, run on every transport of this crate.

use std::time::Duration;
use tidepool_transfer::conformance::{Owner, check_all};
use tidepool_transfer::conn::TcpOptions;
use tidepool_transfer::fault::{FaultPlan, Faulty};
use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::testing::{EPOCH, TestNode, block_id};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline};
use tidepool_wire::message::{RangeName, SlotName};

/// A node without a node, and a way to connect to it.
struct Twin<C> {
    memory: MemoryNode,
    connect: C,
}

impl<T: Transport + 'static, C: Fn() -> T> Owner for Twin<C> {
    fn put(&self, number: u64, bytes: &[u8]) -> CopyName {
        self.memory.put(block_id(number), bytes.to_vec())
    }

    fn damage(&self, number: u64, at: u64) {
        self.memory.damage(&block_id(number), at as usize);
    }

    fn reserve(&self, number: u64, len: usize) -> (SlotName, u64) {
        (self.memory.reserve(block_id(number), len), 0)
    }

    fn written(&self, slot: &SlotName) -> Option<Vec<u8>> {
        self.memory.written(slot)
    }

    fn reports(&self) -> Vec<(BlockId, CopyName)> {
        self.memory.reports()
    }

    fn register(&self, bytes: Vec<u8>) -> Option<RangeName> {
        Some(self.memory.register(bytes))
    }

    fn registered(&self, name: &RangeName) -> Vec<u8> {
        self.memory.registered(name).expect("it was registered")
    }

    fn transport(&self) -> Box<dyn Transport> {
        Box::new((self.connect)())
    }
}

/// Checks what `wrapped` makes of TCP transports to a node in front of the twin.
fn check_tcp<T: Transport + 'static>(config: TcpConfig, wrapped: impl Fn(TcpTransport) -> T) {
    let node = TestNode::start(MemoryNode::new(EPOCH), TcpOptions::default());
    let connect = || {
        let deadline = Deadline::after(Duration::from_secs(10));
        wrapped(TcpTransport::connect(node.address(), EPOCH, ClientId(1), config.clone(), deadline).unwrap())
    };
    check_all(&Twin { memory: node.memory.clone(), connect });
}

#[test]
fn memory_keeps_its_promises() {
    let memory = MemoryNode::new(EPOCH);
    check_all(&Twin { memory: memory.clone(), connect: || MemoryTransport::new(memory.clone()) });
}

#[test]
fn tcp_keeps_its_promises() {
    check_tcp(TcpConfig::default(), |tcp| tcp);
}

#[test]
fn tcp_with_one_stream_and_a_tiny_window_keeps_its_promises() {
    let config = TcpConfig { streams: 1, window_bytes: 1, slice_bytes: 128 << 10, ..TcpConfig::default() };
    check_tcp(config, |tcp| tcp);
}

#[test]
fn a_plan_without_faults_changes_nothing() {
    let plan = FaultPlan { seed: 9, ..FaultPlan::default() };
    check_tcp(TcpConfig::default(), |tcp| Faulty::new(tcp, plan.clone()));
}
