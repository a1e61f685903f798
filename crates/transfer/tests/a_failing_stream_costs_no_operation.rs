//! What a failing stream had under way moves to the others; only a peer that is gone fails operations.

use std::fs;
use std::net::TcpListener;
use std::time::Duration;
use tidepool_testing::eventually;
use tidepool_transfer::conformance::{collect, read, run};
use tidepool_transfer::conn::{ConnError, TcpOptions};
use tidepool_transfer::memory::MemoryNode;
use tidepool_transfer::ops::{Completion, Destination, Done, Failure, Op, Refused, Region, Regions, WriteOp};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::testing::{Break, EPOCH, Proxy, TestNode, block_bytes, block_id, connect, start_node};
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::{ClientId, Deadline, Epoch};

const BLOCKS: u64 = 24;

fn fill(node: &TestNode) {
    for number in 0..BLOCKS {
        node.memory.put(block_id(number), block_bytes(number, (1 << 20) + number as usize));
    }
}

fn reads() -> Vec<Op> {
    (0..BLOCKS).map(|number| Op::Read(read(number, Destination::Allocate))).collect()
}

fn assert_all_read(completions: Vec<Completion>) {
    for (number, completion) in (0..BLOCKS).zip(completions) {
        let Ok(Done::Read { data: Some(data), .. }) = completion.outcome else { panic!("{completion:?}") };
        assert!(data == block_bytes(number, (1 << 20) + number as usize), "block {number}");
    }
}

/// Whether the threads of all streams of this process wait for something.
fn streams_sleep() -> bool {
    let sleeps = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        !stat.contains("(tcp-") || stat.contains(") S ")
    };
    fs::read_dir("/proc/self/task").unwrap().flatten().all(|task| sleeps(&task))
}

#[test]
fn reads_of_a_killed_stream_move_to_another() {
    let node = start_node();
    fill(&node);
    for streams in [1, 3] {
        for after in [0, 100, 1_000_000, 9_000_000] {
            let proxy = Proxy::start(node.address(), Break::Never);
            let mut transport = connect(proxy.address(), streams);
            proxy.set(Break::Close(proxy.passed() + after));
            assert_all_read(run(&mut transport, reads()));
        }
    }
}

#[test]
fn reads_survive_connections_that_are_closed_again_and_again() {
    let node = start_node();
    fill(&node);
    let mut transport = connect(node.address(), 4);
    for _ in 0..10 {
        assert!(transport.submit(reads(), Deadline::after(Duration::from_secs(20))).iter().all(Result::is_ok));
        node.close_connections();
        assert_all_read(collect(&mut transport, BLOCKS as usize));
    }
}

#[test]
fn writes_of_a_killed_stream_move_to_another() {
    let node = start_node();
    let mut transport = connect(node.address(), 3);
    let bytes = block_bytes(9, 20 << 20);
    for _ in 0..5 {
        let slot = node.memory.reserve(block_id(9), bytes.len());
        let source = Regions::One(Region::of(&bytes));
        let op = WriteOp { token: 9, id: block_id(9), slot, slab_offset: 0, source };
        assert!(transport.submit(vec![Op::Write(op)], Deadline::after(Duration::from_secs(20)))[0].is_ok());
        node.close_connections();
        assert!(collect(&mut transport, 1)[0].outcome.is_ok());
        assert!(node.memory.written(&slot).unwrap() == bytes);
    }
}

/// A stream that was being connected again was counted as the one to wake for a waiting write: the write waited for as long as
/// nothing else woke the thread of the stream that was up.
#[test]
fn a_write_goes_out_while_another_stream_is_being_connected() {
    let node = start_node();
    fill(&node);
    let proxy = Proxy::start(node.address(), Break::Never);
    // Whatever is not woken sleeps for longer than the write may take.
    let long = Duration::from_secs(60);
    let config = TcpConfig { streams: 2, stall: long, connect: long, ..TcpConfig::default() };
    let until = Deadline::after(Duration::from_secs(10));
    let mut transport = TcpTransport::connect(proxy.address(), EPOCH, ClientId(1), config, until).unwrap();
    while proxy.connections() < 2 || transport.health() != Health::Up {
        std::thread::yield_now();
    }
    assert_all_read(run(&mut transport, reads()));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.redirect_first(silent.local_addr().unwrap());
    let _hears_nothing = silent.accept().unwrap();

    let bytes = block_bytes(9, 1 << 20);
    for _ in 0..3 {
        eventually("the streams' threads sleep", streams_sleep);
        let slot = node.memory.reserve(block_id(9), bytes.len());
        let op = WriteOp { token: 9, id: block_id(9), slot, slab_offset: 0, source: Regions::One(Region::of(&bytes)) };
        assert!(transport.submit(vec![Op::Write(op)], Deadline::after(Duration::from_secs(10)))[0].is_ok());
        let completion = collect(&mut transport, 1).remove(0);
        assert!(completion.outcome.is_ok(), "{completion:?}");
        assert!(node.memory.written(&slot).unwrap() == bytes);
    }
}

#[test]
fn reads_and_writes_at_once_do_not_wait_for_each_other() {
    let node = start_node();
    fill(&node);
    let bytes = block_bytes(9, 16 << 20);
    for streams in [1, 2, 4] {
        let mut transport = connect(node.address(), streams);
        let mut ops = reads();
        for number in 0..4 {
            let slot = node.memory.reserve(block_id(9), bytes.len());
            let source = Regions::One(Region::of(&bytes));
            ops.push(Op::Write(WriteOp { token: 100 + number, id: block_id(9), slot, slab_offset: 0, source }));
        }
        let mut completions = run(&mut transport, ops);
        let writes = completions.split_off(BLOCKS as usize);
        assert_all_read(completions);
        assert!(writes.iter().all(|completion| completion.outcome.is_ok()), "{writes:?}");
    }
}

#[test]
fn a_peer_that_is_gone_is_unavailable() {
    let node = start_node();
    fill(&node);
    let mut transport = connect(node.address(), 2);
    drop(node);
    let answers = transport.submit(reads(), Deadline::after(Duration::from_secs(20)));
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    for completion in collect(&mut transport, accepted) {
        assert_eq!(completion.outcome.unwrap_err(), Failure::Unavailable);
    }
    while transport.health() != Health::Down {
        std::thread::yield_now();
    }
    let answer = transport.submit(reads(), Deadline::after(Duration::from_secs(1))).remove(0);
    assert_eq!(answer, Err(Refused::Closed));
}

#[test]
fn another_epoch_at_the_address_is_another_node() {
    let (old, new) = (start_node(), TestNode::start(MemoryNode::new(Epoch(4)), TcpOptions::default()));
    fill(&old);
    fill(&new);
    let until = Deadline::after(Duration::from_secs(10));
    let wrong = TcpTransport::connect(new.address(), EPOCH, ClientId(1), TcpConfig::default(), until);
    assert!(matches!(wrong, Err(ConnError::WrongEpoch(Epoch(4)))), "{wrong:?}");

    let proxy = Proxy::start(old.address(), Break::Never);
    let mut transport = connect(proxy.address(), 2);
    assert_all_read(run(&mut transport, reads()));
    proxy.redirect(new.address());
    while transport.health() != Health::Down {
        std::thread::yield_now();
    }
    let answer = transport.submit(reads(), until).remove(0);
    assert_eq!(answer, Err(Refused::Closed));
}
