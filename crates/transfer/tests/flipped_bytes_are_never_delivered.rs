//! Whichever byte of an answer changes on the way, a read that succeeds has the right bytes.

use std::time::Duration;
use tidepool_transfer::conformance::{read, run};
use tidepool_transfer::ops::{Destination, Done, Failure, Op};
use tidepool_transfer::testing::{Break, Proxy, block_bytes, block_id, connect, start_node};
use tidepool_types::Deadline;

const LEN: usize = 300_000;

#[test]
fn a_flipped_byte_is_corrupt_or_read_again() {
    let node = start_node();
    let bytes = block_bytes(1, LEN);
    let copy = node.memory.put(block_id(1), bytes.clone());
    for after_welcome in (0..100).step_by(3).chain([4096, 131_072, 200_000, LEN as u64 - 1]) {
        let proxy = Proxy::start(node.address(), Break::Never);
        let mut transport = connect(proxy.address(), 1);
        let flipped = proxy.passed() + after_welcome;
        proxy.set(Break::Flip(flipped));
        let completion = run(&mut transport, vec![Op::Read(read(1, Destination::Allocate))]).remove(0);
        match &completion.outcome {
            Ok(Done::Read { data, .. }) => assert!(data.as_ref() == Some(&bytes), "byte {after_welcome}: wrong bytes"),
            Err(failure) => assert_eq!(*failure, Failure::Corrupt(copy), "byte {after_welcome}"),
            other => panic!("byte {after_welcome}: {other:?}"),
        }
        if after_welcome >= 4096 {
            assert!(completion.outcome.is_err(), "byte {after_welcome} of the payload was flipped");
        }
    }
}

#[test]
fn the_owner_hears_which_copy_was_corrupt() {
    let node = start_node();
    let copy = node.memory.put(block_id(1), block_bytes(1, LEN));
    let proxy = Proxy::start(node.address(), Break::Never);
    let mut transport = connect(proxy.address(), 1);
    proxy.set(Break::Flip(proxy.passed() + 100_000));
    let completion = run(&mut transport, vec![Op::Read(read(1, Destination::Allocate))]).remove(0);
    assert_eq!(completion.outcome.unwrap_err(), Failure::Corrupt(copy));
    let until = Deadline::after(Duration::from_secs(20));
    while node.memory.reports() != [(block_id(1), copy)] {
        assert!(!until.has_passed(), "reports: {:?}", node.memory.reports());
        std::thread::yield_now();
    }
}
