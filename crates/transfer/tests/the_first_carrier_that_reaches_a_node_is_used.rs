//! A table of carriers: the first one that reaches a node is used, and no carrier is tried for a node that is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tidepool_transfer::carriers::{Carrier, Carriers, Target};
use tidepool_transfer::conformance::{read, run};
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::fault::FaultPlan;
use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
use tidepool_transfer::ops::{Destination, Failure, Op};
use tidepool_transfer::tcp::TcpConfig;
use tidepool_transfer::testing::{EPOCH, TestNode, block_id, start_node};
use tidepool_transfer::transport::Transport;
use tidepool_types::{ClientId, Deadline, Epoch};

/// A carrier that reaches one node of this process, while it reaches anything.
#[derive(Debug)]
struct Near {
    memory: MemoryNode,
    reaches: bool,
    asked: Arc<AtomicU32>,
}

impl Carrier for Near {
    fn open(&self, target: &Target, _until: Deadline) -> Result<Box<dyn Transport>, ConnError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if target.epoch != self.memory.epoch() {
            return Err(ConnError::WrongEpoch(self.memory.epoch()));
        }
        match self.reaches {
            true => Ok(Box::new(MemoryTransport::new(self.memory.clone()))),
            false => Err(ConnError::Unexpected("no way")),
        }
    }
}

fn table(reaches: bool, faults: FaultPlan) -> (Carriers, MemoryNode, Arc<AtomicU32>) {
    let (memory, asked) = (MemoryNode::new(EPOCH), Arc::new(AtomicU32::new(0)));
    let near = Near { memory: memory.clone(), reaches, asked: Arc::clone(&asked) };
    (Carriers::tcp(TcpConfig::default(), faults).preferring(Box::new(near)), memory, asked)
}

fn target(node: &TestNode, epoch: Epoch) -> Target {
    Target { address: node.address(), epoch, client: ClientId(1), lease_millis: 0 }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// Reads block 1; what the near carrier's node holds differs from what the far one's does.
fn has_block(transport: &mut dyn Transport) -> Result<(), Failure> {
    let done = run(transport, vec![Op::Read(read(1, Destination::Allocate))]).remove(0);
    done.outcome.map(drop)
}

#[test]
fn carriers_are_tried_in_the_order_of_the_table() {
    let node = start_node();
    let (near, memory, _) = table(true, FaultPlan::default());
    memory.put(block_id(1), vec![1]);
    assert_eq!(has_block(&mut *near.open(&target(&node, EPOCH), 0, soon()).unwrap()), Ok(()));
    let (far, _, asked) = table(false, FaultPlan::default());
    node.memory.put(block_id(1), vec![1]);
    assert_eq!(has_block(&mut *far.open(&target(&node, EPOCH), 0, soon()).unwrap()), Ok(()));
    assert_eq!(asked.load(Ordering::Relaxed), 1, "TCP was tried first");
}

#[test]
fn another_incarnation_ends_the_search() {
    let node = start_node();
    let (carriers, ..) = table(true, FaultPlan::default());
    let error = carriers.open(&target(&node, Epoch(99)), 0, soon()).map(drop).unwrap_err();
    assert!(matches!(error, ConnError::WrongEpoch(EPOCH)), "{error}");
    assert_eq!(node.accepted(), 0, "TCP was tried for a node that is gone");
}

#[test]
fn faults_strike_whatever_the_carrier() {
    let node = start_node();
    let (carriers, memory, _) = table(true, FaultPlan { failed: 1000, ..FaultPlan::default() });
    memory.put(block_id(1), vec![1]);
    assert_eq!(has_block(&mut *carriers.open(&target(&node, EPOCH), 0, soon()).unwrap()), Err(Failure::Unavailable));
}
