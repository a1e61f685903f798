//! A block that is replaced while it is being read in slices is read whole from one copy, or missed.

use std::time::Duration;
use tidepool_transfer::conformance::{collect, read};
use tidepool_transfer::ops::{Destination, Done, Failure, Op};
use tidepool_transfer::testing::{Break, Proxy, block_bytes, block_id, connect, start_node};
use tidepool_transfer::transport::Transport;
use tidepool_types::Deadline;

/// Several slices long.
const LEN: usize = 20 << 20;

#[test]
fn a_block_replaced_between_slices_is_a_miss() {
    let node = start_node();
    for streams in [1, 3] {
        node.memory.put(block_id(1), block_bytes(1, LEN));
        let proxy = Proxy::start(node.address(), Break::Never);
        let mut transport = connect(proxy.address(), streams);
        let held = proxy.passed() + 4096;
        proxy.set(Break::Stall(held));
        let op = Op::Read(read(1, Destination::Allocate));
        assert!(transport.submit(vec![op], Deadline::after(Duration::from_secs(20)))[0].is_ok());
        // The first slice has been answered from the old copy and is on its way.
        while proxy.passed() <= held {
            std::thread::yield_now();
        }
        node.memory.put(block_id(1), block_bytes(2, LEN));
        proxy.set(Break::Never);
        let completion = collect(&mut transport, 1).remove(0);
        assert_eq!(completion.outcome.unwrap_err(), Failure::Miss, "{streams} streams");
    }
}

#[test]
fn a_block_replaced_at_any_time_is_never_mixed() {
    let node = start_node();
    node.memory.put(block_id(1), block_bytes(1, LEN));
    let (old, new) = (block_bytes(1, LEN), block_bytes(2, LEN));
    let mut transport = connect(node.address(), 4);
    for round in 0..10 {
        let op = Op::Read(read(1, Destination::Allocate));
        assert!(transport.submit(vec![op], Deadline::after(Duration::from_secs(20)))[0].is_ok());
        node.memory.put(block_id(1), if round % 2 == 0 { new.clone() } else { old.clone() });
        match collect(&mut transport, 1).remove(0).outcome {
            Ok(Done::Read { data: Some(data), .. }) => assert!(data == old || data == new, "mixed in round {round}"),
            outcome => assert_eq!(outcome.unwrap_err(), Failure::Miss),
        }
    }
}
