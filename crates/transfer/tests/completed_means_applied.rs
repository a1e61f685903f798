//! A write completes only once the node has its bytes in place.

use std::time::Duration;
use tidepool_transfer::conformance::collect;
use tidepool_transfer::ops::{Op, Region, Regions, WriteOp};
use tidepool_transfer::testing::{block_bytes, block_id, connect, start_node};
use tidepool_transfer::transport::Transport;
use tidepool_types::Deadline;

#[test]
fn a_write_that_is_received_and_not_applied_does_not_complete() {
    let node = start_node();
    let mut transport = connect(node.address(), 2);
    let bytes = block_bytes(1, 3 << 20);
    let slot = node.memory.reserve(block_id(1), bytes.len());
    node.suspend_writes(true);
    let source = Regions::One(Region::of(&bytes));
    let op = WriteOp { token: 1, id: block_id(1), slot, slab_offset: 0, source };
    assert!(transport.submit(vec![Op::Write(op)], Deadline::after(Duration::from_secs(30)))[0].is_ok());
    while node.waiting_writes() == 0 {
        std::thread::yield_now();
    }
    let mut done = Vec::new();
    assert_eq!(transport.poll(&mut done, Deadline::after(Duration::from_millis(100))), 0, "completed before applied");
    node.suspend_writes(false);
    assert!(collect(&mut transport, 1)[0].outcome.is_ok());
    assert!(node.memory.written(&slot).unwrap() == bytes);
}
