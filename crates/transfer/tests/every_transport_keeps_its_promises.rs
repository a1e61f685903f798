//! The conformance checks, run on every transport of this crate.

use std::time::Duration;
use tidepool_transfer::conformance::{Peer, check_all};
use tidepool_transfer::conn::TcpOptions;
use tidepool_transfer::fault::{FaultPlan, Faulty};
use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::testing::TestNode;
use tidepool_transfer::transport::Transport;
use tidepool_types::{ClientId, Deadline, Epoch};

struct Memory(MemoryNode);

impl Peer for Memory {
    fn node(&self) -> &MemoryNode {
        &self.0
    }

    fn transport(&self) -> Box<dyn Transport> {
        Box::new(MemoryTransport::new(self.0.clone()))
    }
}

struct Tcp(TestNode, TcpConfig);

impl Tcp {
    fn new(config: TcpConfig) -> Self {
        Self(TestNode::start(MemoryNode::new(Epoch(3)), TcpOptions::default()), config)
    }

    fn connect(&self) -> TcpTransport {
        let deadline = Deadline::after(Duration::from_secs(10));
        TcpTransport::connect(self.0.address(), Epoch(3), ClientId(1), self.1.clone(), deadline).unwrap()
    }
}

impl Peer for Tcp {
    fn node(&self) -> &MemoryNode {
        &self.0.memory
    }

    fn transport(&self) -> Box<dyn Transport> {
        Box::new(self.connect())
    }
}

struct WithoutFaults(Tcp);

impl Peer for WithoutFaults {
    fn node(&self) -> &MemoryNode {
        self.0.node()
    }

    fn transport(&self) -> Box<dyn Transport> {
        Box::new(Faulty::new(self.0.connect(), FaultPlan { seed: 9, ..FaultPlan::default() }))
    }
}

#[test]
fn memory_keeps_its_promises() {
    check_all(&Memory(MemoryNode::new(Epoch(1))));
}

#[test]
fn tcp_keeps_its_promises() {
    check_all(&Tcp::new(TcpConfig::default()));
}

#[test]
fn tcp_with_one_stream_and_a_tiny_window_keeps_its_promises() {
    check_all(&Tcp::new(TcpConfig { streams: 1, window_bytes: 1, slice_bytes: 128 << 10, ..TcpConfig::default() }));
}

#[test]
fn a_plan_without_faults_changes_nothing() {
    check_all(&WithoutFaults(Tcp::new(TcpConfig::default())));
}
