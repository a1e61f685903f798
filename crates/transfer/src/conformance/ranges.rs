//! Registered ranges: pieces of them are read and written, by whoever was told their names and by nobody else.

use super::{Owner, PATIENCE, SIZES, collect, failed, run};
use crate::ops::{Completion, Destination, Done, Failure, Op, ReadRangeOp, Region, Regions, WriteRangeOp};
use crate::testing::block_bytes;
use std::time::Duration;
use tidepool_types::Deadline;
use tidepool_wire::message::RangeName;

/// Bytes before and behind the pieces of a range.
const MARGIN: usize = 777;

/// Runs every check, where transports reach ranges. Others say that they do not.
pub(super) fn check_all(owner: &dyn Owner) {
    let Some(name) = owner.register(block_bytes(1, SIZES[SIZES.len() - 1] + 2 * MARGIN)) else {
        return a_transport_without_ranges_says_so(owner);
    };
    pieces_of_every_size_come_and_go(owner, &name);
    what_is_not_in_a_range_is_neither_read_nor_written(owner, &name);
    pieces_and_blocks_share_a_batch(owner, &name);
    a_passed_deadline_is_a_time_out(owner, &name);
    cancelled_pieces_complete_once_and_let_go_of_their_memory(owner, &name);
}

fn read(range: RangeName, token: u64, offset: usize, len: usize) -> Op {
    let destination = Destination::Allocate;
    Op::ReadRange(ReadRangeOp { token, range, offset: offset as u64, len: len as u64, destination })
}

fn write(range: RangeName, token: u64, offset: usize, source: Regions) -> Op {
    Op::WriteRange(WriteRangeOp { token, range, offset: offset as u64, source })
}

fn bytes_read(completion: Completion) -> Vec<u8> {
    match completion.outcome {
        Ok(Done::RangeRead { data: Some(data) }) => data,
        other => panic!("operation {}: {other:?}", completion.token),
    }
}

fn a_transport_without_ranges_says_so(owner: &dyn Owner) {
    let (nowhere, bytes) = (RangeName { range: 1, key: 2 }, [7; 10]);
    let mut transport = owner.transport();
    let ops = vec![read(nowhere, 0, 0, 10), write(nowhere, 1, 0, Regions::One(Region::of(&bytes)))];
    let failures: Vec<Failure> = run(&mut *transport, ops).into_iter().map(failed).collect();
    assert!(matches!(failures[..], [Failure::Unavailable | Failure::Miss, Failure::Unavailable]), "{failures:?}");
}

fn pieces_of_every_size_come_and_go(owner: &dyn Owner, name: &RangeName) {
    let mut transport = owner.transport();
    for (number, len) in (1100u64..).zip(SIZES) {
        let (before, mut bytes) = (owner.registered(name), block_bytes(number, len));
        let (head, tail) = bytes.split_at_mut(len / 3);
        let source = Regions::Many(vec![Region::of_mut(head), Region::of_mut(tail)]);
        let written = run(&mut *transport, vec![write(*name, number, MARGIN, source)]).remove(0);
        assert!(matches!(written.outcome, Ok(Done::RangeWritten)), "{written:?}");
        let after = owner.registered(name);
        assert!(after[MARGIN..MARGIN + len] == bytes, "write of {len} bytes");
        assert!(after[..MARGIN] == before[..MARGIN], "bytes before a piece of {len} have changed");
        assert!(after[MARGIN + len..] == before[MARGIN + len..], "bytes behind a piece of {len} have changed");
        let mut into = vec![0; len + 2];
        let regions = Regions::Many(vec![Region::of_mut(&mut into[1..len / 2 + 1]), Region::of_mut(&mut [])]);
        let mut places = regions.as_slice().to_vec();
        places.push(Region::of_mut(&mut into[len / 2 + 1..=len]));
        let scattered = Op::ReadRange(ReadRangeOp {
            token: 1,
            range: *name,
            offset: MARGIN as u64,
            len: len as u64,
            destination: Destination::Into(Regions::Many(places)),
        });
        let mut done = run(&mut *transport, vec![read(*name, 0, MARGIN, len), scattered]).into_iter();
        assert!(bytes_read(done.next().expect("there are two")) == bytes, "read of {len} bytes");
        let scattered = done.next().expect("there are two");
        assert!(matches!(scattered.outcome, Ok(Done::RangeRead { data: None })), "{scattered:?}");
        assert!(into[1..=len] == bytes && into[0] == 0 && into[len + 1] == 0, "scattered read of {len} bytes");
    }
}

fn what_is_not_in_a_range_is_neither_read_nor_written(owner: &dyn Owner, name: &RangeName) {
    let mut transport = owner.transport();
    let before = owner.registered(name);
    let (range_len, bytes) = (before.len(), [0xee; 100]);
    let guessed = RangeName { key: name.key ^ 1, ..*name };
    let mut small = [0; 99];
    let into = Destination::Into(Regions::One(Region::of_mut(&mut small)));
    let too_small = ReadRangeOp { token: 6, range: *name, offset: 0, len: 100, destination: into };
    let source = || Regions::One(Region::of(&bytes));
    let ops = vec![
        read(guessed, 0, 0, 100),
        read(*name, 1, range_len - 99, 100),
        read(*name, 2, range_len + 1, 100),
        write(guessed, 3, 0, source()),
        write(*name, 4, range_len - 99, source()),
        write(*name, 5, usize::MAX - 50, source()),
        Op::ReadRange(too_small),
        read(*name, 7, usize::MAX - 50, 100),
        read(*name, 8, 0, 0),
        read(*name, 9, 0, 1 << 50),
        write(*name, 10, 0, Regions::Many(Vec::new())),
    ];
    let failures: Vec<Failure> = run(&mut *transport, ops).into_iter().map(failed).collect();
    let bad = Failure::BadRange { block_len: range_len as u64 };
    let refused = Failure::Unavailable;
    assert_eq!(failures[..6], [Failure::Miss, bad, bad, refused, refused, refused]);
    let impossible = |failure: &Failure| matches!(failure, Failure::BadRange { .. } | Failure::Unavailable);
    assert!(failures[7..].iter().all(impossible), "{failures:?}");
    assert!(matches!(failures[6], Failure::TooSmall { .. }), "{failures:?}");
    assert!(owner.registered(name) == before, "a write that was refused was applied");
}

/// A request has items of one kind only: each is answered by its own.
fn pieces_and_blocks_share_a_batch(owner: &dyn Owner, name: &RangeName) {
    const COUNT: u64 = 100;
    owner.put(1200, &block_bytes(1200, 5000));
    let range = owner.registered(name);
    let place = |token: u64| (token as usize * 900, 1 + token as usize * 70);
    let op = |token: u64| match token % 3 {
        0 => Op::Read(crate::ops::ReadOp { token, ..super::read(1200, Destination::Allocate) }),
        _ => read(*name, token, place(token).0, place(token).1),
    };
    for completion in run(&mut *owner.transport(), (0..COUNT).map(op).collect()) {
        let (start, len) = place(completion.token);
        match completion.token % 3 {
            0 => assert!(super::allocated(completion) == block_bytes(1200, 5000)),
            _ => assert!(bytes_read(completion) == range[start..start + len], "{len} bytes at {start}"),
        }
    }
}

fn a_passed_deadline_is_a_time_out(owner: &dyn Owner, name: &RangeName) {
    let (mut transport, before, bytes) = (owner.transport(), owner.registered(name), [0xdd; 500]);
    let ops = vec![read(*name, 0, 0, 500), write(*name, 1, 0, Regions::One(Region::of(&bytes)))];
    assert!(transport.submit(ops, Deadline::after(Duration::ZERO)).iter().all(Result::is_ok));
    for completion in collect(&mut *transport, 2) {
        assert_eq!(failed(completion), Failure::TimedOut);
    }
    assert!(owner.registered(name) == before, "a write that timed out was applied");
}

fn cancelled_pieces_complete_once_and_let_go_of_their_memory(owner: &dyn Owner, name: &RangeName) {
    const CANARY: u8 = 0xcc;
    let len = SIZES[SIZES.len() - 1];
    for all_at_once in [false, true] {
        let mut transport = owner.transport();
        let (mut target, mut source) = (vec![0; len], block_bytes(7, len));
        let into = Destination::Into(Regions::One(Region::of_mut(&mut target)));
        let read = ReadRangeOp { token: 0, range: *name, offset: 0, len: len as u64, destination: into };
        let ops = vec![Op::ReadRange(read), write(*name, 1, 0, Regions::One(Region::of_mut(&mut source)))];
        assert!(transport.submit(ops, Deadline::after(PATIENCE)).iter().all(Result::is_ok));
        match all_at_once {
            true => transport.cancel_all(),
            false => (0..2).for_each(|token| transport.cancel(token)),
        }
        for completion in collect(&mut *transport, 2) {
            let is_over = matches!(completion.outcome, Ok(_) | Err(Failure::Cancelled));
            assert!(is_over, "{completion:?}");
        }
        target.fill(CANARY);
        source.fill(CANARY);
        // The transport goes on, and what was on its way has landed before what comes now.
        let bytes = block_bytes(8, 1000);
        let again = write(*name, 2, 0, Regions::One(Region::of(&bytes)));
        assert!(matches!(run(&mut *transport, vec![again])[0].outcome, Ok(Done::RangeWritten)));
        drop(transport);
        assert!(target.iter().all(|byte| *byte == CANARY), "bytes landed in memory that had been let go");
        let is_reused = owner.registered(name).chunks_exact(64).any(|bytes| *bytes == [CANARY; 64]);
        assert!(!is_reused, "bytes were taken from memory that had been let go");
    }
}
