//! A peer that stops, trickles or answers late costs its deadline and no more: the operation times out, its memory is let
//! go, and nothing is written there afterwards.

use std::time::Duration;
use tidepool_transfer::conformance::{collect, read, run};
use tidepool_transfer::ops::{Completion, Destination, Failure, Op, Region, Regions};
use tidepool_transfer::tcp::TcpTransport;
use tidepool_transfer::testing::{Break, Proxy, block_bytes, block_id, connect, start_node};
use tidepool_transfer::transport::Transport;
use tidepool_types::Deadline;

/// A block that threads of the transport receive, and one that its caller does.
const LENS: [usize; 2] = [3 << 20, 100_000];

/// Reads block 1 into `target` through a proxy that breaks `after` bytes into the answer.
fn submit(transport: &mut TcpTransport, target: &mut [u8], budget: Duration) {
    let destination = Destination::Into(Regions::One(Region::of_mut(target)));
    let answers = transport.submit(vec![Op::Read(read(1, destination))], Deadline::after(budget));
    assert!(answers[0].is_ok());
}

fn outcome(mut completions: Vec<Completion>) -> Failure {
    completions.remove(0).outcome.expect_err("the answer never came")
}

#[test]
fn a_peer_that_stops_in_an_answer_times_out_and_lets_go() {
    let node = start_node();
    // Before the answer, inside its header, inside its body, inside its payload.
    let places = [0, 10, 60, 5000, 1 << 20];
    for (len, after) in
        LENS.into_iter().flat_map(|len| places.map(|after| (len, after))).filter(|at| at.1 < at.0 as u64)
    {
        node.memory.put(block_id(1), block_bytes(1, len));
        let proxy = Proxy::start(node.address(), Break::Never);
        let mut transport = connect(proxy.address(), 1);
        proxy.set(Break::Stall(proxy.passed() + after));
        let mut target = vec![0; len];
        submit(&mut transport, &mut target, Duration::from_millis(100));
        assert_eq!(outcome(collect(&mut transport, 1)), Failure::TimedOut, "stopped after {after} bytes");
        target.fill(0xcc);
        // Now the rest of the answer comes, late.
        proxy.set(Break::Never);
        let next = run(&mut transport, vec![Op::Read(read(1, Destination::Allocate))]).remove(0);
        assert!(next.outcome.is_ok(), "after {after} bytes: {next:?}");
        assert!(target.iter().all(|byte| *byte == 0xcc), "a late answer landed, stopped after {after} bytes");
    }
}

#[test]
fn a_peer_that_trickles_does_not_extend_the_deadline() {
    let node = start_node();
    for (len, after) in [(LENS[0], 0), (LENS[0], 100_000), (LENS[1], 0), (LENS[1], 10_000)] {
        node.memory.put(block_id(1), block_bytes(1, len));
        let proxy = Proxy::start(node.address(), Break::Never);
        let mut transport = connect(proxy.address(), 1);
        proxy.set(Break::Trickle(proxy.passed() + after, Duration::from_millis(5)));
        let mut target = vec![0; len];
        submit(&mut transport, &mut target, Duration::from_millis(150));
        assert_eq!(outcome(collect(&mut transport, 1)), Failure::TimedOut);
        target.fill(0xcc);
        drop(transport);
        assert!(target.iter().all(|byte| *byte == 0xcc));
    }
}

#[test]
fn a_cancelled_operation_completes_and_lets_go() {
    let node = start_node();
    for (len, after) in [(LENS[0], 0), (LENS[0], 1 << 20), (LENS[1], 0), (LENS[1], 10_000)] {
        node.memory.put(block_id(1), block_bytes(1, len));
        let proxy = Proxy::start(node.address(), Break::Never);
        let mut transport = connect(proxy.address(), 1);
        proxy.set(Break::Stall(proxy.passed() + after));
        let mut target = vec![0; len];
        submit(&mut transport, &mut target, Duration::from_millis(300));
        transport.cancel(1);
        assert_eq!(outcome(collect(&mut transport, 1)), Failure::Cancelled);
        target.fill(0xcc);
        proxy.set(Break::Never);
        let next = run(&mut transport, vec![Op::Read(read(1, Destination::Allocate))]).remove(0);
        assert!(next.outcome.is_ok(), "{next:?}");
        assert!(target.iter().all(|byte| *byte == 0xcc), "a late answer landed");
    }
}

#[test]
fn dropping_a_transport_lets_go_of_everything_under_way() {
    let node = start_node();
    node.memory.put(block_id(1), block_bytes(1, LENS[0]));
    let proxy = Proxy::start(node.address(), Break::Never);
    let mut transport = connect(proxy.address(), 2);
    proxy.set(Break::Stall(proxy.passed() + (1 << 20)));
    let mut target = vec![0; LENS[0]];
    submit(&mut transport, &mut target, Duration::from_secs(3600));
    while proxy.passed() < 1 << 20 {
        std::thread::yield_now();
    }
    drop(transport);
    target.fill(0xcc);
    proxy.set(Break::Never);
    drop(proxy);
    assert!(target.iter().all(|byte| *byte == 0xcc));
}

#[test]
fn other_operations_of_a_closed_stream_still_succeed() {
    let node = start_node();
    node.memory.put(block_id(1), block_bytes(1, LENS[0]));
    let proxy = Proxy::start(node.address(), Break::Never);
    let mut transport = connect(proxy.address(), 1);
    proxy.set(Break::Stall(proxy.passed() + (1 << 20)));
    let mut target = vec![0; LENS[0]];
    submit(&mut transport, &mut target, Duration::from_millis(100));
    let patient = Op::Read(tidepool_transfer::ops::ReadOp { token: 2, ..read(1, Destination::Allocate) });
    assert!(transport.submit(vec![patient], Deadline::after(Duration::from_secs(20)))[0].is_ok());
    assert_eq!(outcome(collect(&mut transport, 1)), Failure::TimedOut);
    proxy.set(Break::Never);
    assert!(collect(&mut transport, 1)[0].outcome.is_ok());
}

#[test]
fn a_small_answer_whose_caller_does_not_wait_is_received_all_the_same() {
    let node = start_node();
    node.memory.put(block_id(1), block_bytes(1, LENS[1]));
    let proxy = Proxy::start(node.address(), Break::Never);
    let mut transport = connect(proxy.address(), 2);
    // Stopped before the answer, and inside it where the caller has begun to receive it.
    for after in [0, 10_000] {
        proxy.set(Break::Stall(proxy.passed() + after));
        let mut target = vec![0; LENS[1]];
        submit(&mut transport, &mut target, Duration::from_secs(20));
        let mut done = Vec::new();
        assert_eq!(transport.poll(&mut done, Deadline::after(Duration::from_millis(20))), 0);
        proxy.set(Break::Never);
        assert!(collect(&mut transport, 1)[0].outcome.is_ok());
        assert!(target == block_bytes(1, LENS[1]), "stopped after {after} bytes");
    }
}
