//! The promises that every transport makes, as checks that its tests run.
//!
//! A transport's test implements [`Owner`] and calls [`check_all`]. Checks panic with what they found.

mod endings;
mod ranges;

use crate::ops::{Completion, Destination, Done, Failure, Op, ReadOp, Region, Regions, WriteOp};
use crate::testing::{block_bytes, block_id};
use crate::transport::{Health, Transport};
use std::time::Duration;
use tidepool_types::{BlockId, CHUNK_LEN, CopyName, Deadline, Generation, Random};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{RangeName, SlotName};

/// Sizes around every boundary that matters, and one that is read in slices.
const SIZES: [usize; 10] = [1, 17, 4096, 65_537, 131_071, 131_072, 131_073, 1 << 20, (2 << 20) + 17, (9 << 20) + 5];
const PATIENCE: Duration = Duration::from_secs(20);

/// The node that has the blocks' memory. It needs 192 MiB for blocks and 4,096 slots.
///
/// Checks name blocks by number: block `number` has the key [`block_key`](crate::testing::block_key) and the id
/// [`block_id`].
pub trait Owner {
    /// Holds `bytes` as block `number`, in place of an earlier copy.
    fn put(&self, number: u64, bytes: &[u8]) -> CopyName;

    /// Flips a bit of byte `at` of block `number`, which is held. The checksums stay as they are.
    fn damage(&self, number: u64, at: u64);

    /// Takes space for `len` bytes of block `number`. Returns the reservation's name and its offset in the slab.
    fn reserve(&self, number: u64, len: usize) -> (SlotName, u64);

    /// What an open reservation holds so far.
    fn written(&self, slot: &SlotName) -> Option<Vec<u8>>;

    /// The copies that the owner knows to be damaged.
    fn reports(&self) -> Vec<(BlockId, CopyName)>;

    /// Does what a reader does with the copy named by [`Failure::Corrupt`]. Nothing, for a transport that tells the owner
    /// itself. A transport through mapped memory has no connection: its user tells the owner.
    fn report(&self, _id: BlockId, _copy: CopyName) {}

    /// Registers memory that its transports read and write, if they do.
    fn register(&self, _bytes: Vec<u8>) -> Option<RangeName> {
        None
    }

    /// What a registered range holds.
    fn registered(&self, _name: &RangeName) -> Vec<u8> {
        Vec::new()
    }

    /// Whether a whole block that its transports read comes with its checksums.
    fn brings_checksums(&self) -> bool {
        true
    }

    /// A new transport to it.
    fn transport(&self) -> Box<dyn Transport>;
}

/// Runs every check.
///
/// # Panics
/// If the transport breaks a promise.
pub fn check_all(owner: &dyn Owner) {
    reads_bring_the_bytes_of_blocks_of_every_size(owner);
    ranges_bring_just_the_range(owner);
    bytes_land_only_where_asked(owner, 0x5eed);
    what_cannot_be_read_says_why(owner);
    a_named_copy_is_read_or_missed(owner);
    a_read_says_what_it_read(owner);
    a_whole_block_comes_with_the_checksums_that_it_was_verified_with(owner);
    a_damaged_block_is_corrupt_and_reported(owner);
    a_range_of_a_damaged_chunk_is_not_delivered(owner);
    a_completed_write_is_applied_and_its_checksums_fit(owner);
    a_write_to_nowhere_is_refused(owner);
    many_small_blocks_come_in_one_batch(owner);
    ranges::check_all(owner);
    endings::a_passed_deadline_is_a_time_out(owner);
    endings::nothing_under_way_is_nothing_to_wait_for(owner);
    endings::operations_of_one_batch_complete_exactly_once(owner);
    endings::a_cancelled_operation_completes_once_and_lets_go_of_its_memory(owner);
    endings::a_dropped_transport_lets_go_of_what_is_under_way(owner);
}

/// A read of all of block `number`.
#[must_use]
pub fn read(number: u64, destination: Destination) -> ReadOp {
    ReadOp::whole(number, block_id(number), destination)
}

/// Submits `ops` and waits until all have completed; in order of their tokens.
///
/// # Panics
/// If one is refused or does not complete.
pub fn run(transport: &mut dyn Transport, ops: Vec<Op>) -> Vec<Completion> {
    let (count, deadline) = (ops.len(), Deadline::after(PATIENCE));
    assert!(transport.submit(ops, deadline).iter().all(Result::is_ok), "refused");
    collect(transport, count)
}

/// Waits for `count` completions; in order of their tokens.
///
/// # Panics
/// If they do not come.
pub fn collect(transport: &mut dyn Transport, count: usize) -> Vec<Completion> {
    let (mut done, until) = (Vec::new(), Deadline::after(2 * PATIENCE));
    while done.len() < count {
        assert!(transport.poll(&mut done, until) > 0, "{} of {count} operations completed", done.len());
    }
    assert_eq!(done.len(), count, "more completions than operations");
    done.sort_by_key(|completion| completion.token);
    done
}

fn allocated(completion: Completion) -> Vec<u8> {
    match completion.outcome {
        Ok(Done::Read { data: Some(data), bytes, .. }) => {
            assert_eq!(data.len() as u64, bytes);
            data
        }
        other => panic!("operation {}: {other:?}", completion.token),
    }
}

/// Why an operation failed.
fn failed(completion: Completion) -> Failure {
    match completion.outcome {
        Err(failure) => failure,
        // Without what was read, which may be megabytes.
        Ok(_) => panic!("operation {} cannot succeed, and did", completion.token),
    }
}

fn failure(transport: &mut dyn Transport, op: ReadOp) -> Failure {
    failed(run(transport, vec![Op::Read(op)]).remove(0))
}

fn reads_bring_the_bytes_of_blocks_of_every_size(owner: &dyn Owner) {
    let mut transport = owner.transport();
    let sizes = || (0u64..).zip(SIZES);
    for (number, len) in sizes() {
        owner.put(number, &block_bytes(number, len));
    }
    let ops = sizes().map(|(number, _)| Op::Read(read(number, Destination::Allocate))).collect();
    for (completion, (number, len)) in run(&mut *transport, ops).into_iter().zip(sizes()) {
        assert!(allocated(completion) == block_bytes(number, len), "block of {len} bytes");
    }
    assert_ne!(transport.health(), Health::Down);
}

fn ranges_bring_just_the_range(owner: &dyn Owner) {
    let (len, chunk) = ((9 << 20) + 5, CHUNK_LEN);
    owner.put(100, &block_bytes(100, len));
    let whole = block_bytes(100, len);
    let mut transport = owner.transport();
    let ranges = [(0, 1), (chunk - 1, 2), (chunk, chunk), (5, 3 * chunk), (len as u64 - 1, 1), (77, (8 << 20) + 1)];
    for (offset, wanted) in ranges {
        let op = ReadOp { offset, len: Some(wanted), ..read(100, Destination::Allocate) };
        let data = allocated(run(&mut *transport, vec![Op::Read(op)]).remove(0));
        assert!(data == whole[offset as usize..(offset + wanted) as usize], "{wanted} bytes at {offset}");
    }
    let rest = ReadOp { offset: 1 << 20, ..read(100, Destination::Allocate) };
    assert!(allocated(run(&mut *transport, vec![Op::Read(rest)]).remove(0)) == whole[1 << 20..]);
}

/// Random scattered destinations in one large buffer of canaries; every byte outside them must stay.
fn bytes_land_only_where_asked(owner: &dyn Owner, seed: u64) {
    let mut transport = owner.transport();
    let mut random = Random::new(seed);
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for round in 0..12 {
        let blocks: Vec<usize> = (0..12).map(|_| below([60, 5_000, 300_000, 5 << 20][round % 4]) + 1).collect();
        let mut buffer = vec![0xa5; blocks.iter().sum::<usize>() * 2 + (1 << 20)];
        let mut expected = buffer.clone();
        let (mut at, mut ops) = (0, Vec::new());
        for (number, len) in (0u64..).zip(&blocks) {
            let bytes = block_bytes(number + 500, *len);
            owner.put(number + 500, &bytes);
            let (mut left, mut regions) = (&bytes[..], Vec::new());
            while !left.is_empty() {
                at += below(40);
                let piece = left.len().min(below(len / 3 + 2) + 1);
                expected[at..at + piece].copy_from_slice(&left[..piece]);
                regions.push(Region::of_mut(&mut buffer[at..at + piece]));
                (left, at) = (&left[piece..], at + piece);
            }
            ops.push(Op::Read(read(number + 500, Destination::Into(Regions::Many(regions)))));
        }
        for completion in run(&mut *transport, ops) {
            assert!(completion.outcome.is_ok(), "seed {seed:#x} round {round}: {completion:?}");
        }
        assert!(buffer == expected, "seed {seed:#x} round {round}: bytes landed elsewhere");
    }
}

fn what_cannot_be_read_says_why(owner: &dyn Owner) {
    owner.put(200, &block_bytes(200, 1000));
    let mut transport = owner.transport();
    let block_len = 1000;
    assert_eq!(failure(&mut *transport, read(201, Destination::Allocate)), Failure::Miss);
    for (offset, len) in [(1000, None), (0, Some(1001)), (999, Some(2)), (5, Some(0)), (u64::MAX - 1, Some(1))] {
        let op = ReadOp { offset, len, ..read(200, Destination::Allocate) };
        assert_eq!(failure(&mut *transport, op), Failure::BadRange { block_len }, "{len:?} bytes at {offset}");
    }
    let mut short = vec![0; 999];
    let destination = Destination::Into(Regions::One(Region::of_mut(&mut short)));
    assert_eq!(failure(&mut *transport, read(200, destination)), Failure::TooSmall { block_len });
    assert!(short.iter().all(|byte| *byte == 0), "a refused destination was written to");
}

fn a_named_copy_is_read_or_missed(owner: &dyn Owner) {
    let old = owner.put(300, &block_bytes(300, 70_000));
    let new = owner.put(300, &block_bytes(301, 70_000));
    let mut transport = owner.transport();
    let named = |copy| ReadOp { copy: Some(copy), ..read(300, Destination::Allocate) };
    assert_eq!(failure(&mut *transport, named(old)), Failure::Miss);
    let data = allocated(run(&mut *transport, vec![Op::Read(named(new))]).remove(0));
    assert!(data == block_bytes(301, 70_000));
}

fn a_read_says_what_it_read(owner: &dyn Owner) {
    let put = owner.put(350, &block_bytes(350, 70_000));
    let mut transport = owner.transport();
    for (offset, len, expected) in [(0, None, 70_000), (69_000, None, 1000), (7, Some(20), 20)] {
        let op = ReadOp { offset, len, ..read(350, Destination::Allocate) };
        let completion = run(&mut *transport, vec![Op::Read(op)]).remove(0);
        let Ok(Done::Read { copy, block_len, bytes, .. }) = completion.outcome else { panic!("{completion:?}") };
        assert_eq!((copy, block_len, bytes), (put, 70_000, expected), "{len:?} bytes at {offset}");
    }
}

/// Parts of blocks have none: those of their ragged ends would be no block's.
fn a_whole_block_comes_with_the_checksums_that_it_was_verified_with(owner: &dyn Owner) {
    let mut transport = owner.transport();
    for (number, len) in (360u64..).zip(SIZES) {
        let bytes = block_bytes(number, len);
        owner.put(number, &bytes);
        let part = ReadOp {
            token: 0,
            len: Some(len as u64 - 1),
            wants_checksums: true,
            ..read(number, Destination::Allocate)
        };
        let mut into = vec![0; len];
        let into = Destination::Into(Regions::One(Region::of_mut(&mut into)));
        let whole = [Destination::Allocate, into]
            .map(|destination| Op::Read(ReadOp { wants_checksums: true, ..read(number, destination) }));
        let parts = if len > 1 { vec![Op::Read(part)] } else { Vec::new() };
        for completion in run(&mut *transport, parts.into_iter().chain(whole).collect()) {
            let is_part = completion.token == 0;
            let Ok(Done::Read { checksums, .. }) = completion.outcome else { panic!("{completion:?}") };
            let expected =
                (owner.brings_checksums() && !is_part).then(|| BlockChecksum::new(block_id(number), len as u64));
            assert_eq!(checksums, expected.map(|checksum| Box::new(checksum.range(0, &bytes))), "block of {len} bytes");
        }
    }
}

/// Waits until the owner knows that a copy is damaged.
fn wait_for_report(owner: &dyn Owner, number: u64, copy: CopyName) {
    let until = Deadline::after(PATIENCE);
    while !owner.reports().contains(&(block_id(number), copy)) {
        assert!(!until.has_passed(), "the owner was not told of block {number}");
        std::thread::yield_now();
    }
}

fn a_damaged_block_is_corrupt_and_reported(owner: &dyn Owner) {
    for (number, len, at) in [(400, 4096, 0), (401, 300_000, 299_999), (402, (9 << 20) + 5, 5 << 20)] {
        let copy = owner.put(number, &block_bytes(number, len));
        owner.damage(number, at);
        let mut transport = owner.transport();
        assert_eq!(failure(&mut *transport, read(number, Destination::Allocate)), Failure::Corrupt(copy));
        owner.report(block_id(number), copy);
        wait_for_report(owner, number, copy);
    }
}

/// An owner that sums a part of a chunk before it sends it finds the damage itself, and misses. The damaged byte may lie
/// outside the range.
fn a_range_of_a_damaged_chunk_is_not_delivered(owner: &dyn Owner) {
    for (number, at, offset) in [(410, CHUNK_LEN + 9, CHUNK_LEN + 5), (411, CHUNK_LEN, 2 * CHUNK_LEN - 1)] {
        let copy = owner.put(number, &block_bytes(number, 300_000));
        owner.damage(number, at);
        let op = ReadOp { offset, len: Some(10), ..read(number, Destination::Allocate) };
        match failure(&mut *owner.transport(), op) {
            Failure::Corrupt(found) if found == copy => owner.report(block_id(number), copy),
            failure => assert_eq!(failure, Failure::Miss),
        }
        wait_for_report(owner, number, copy);
    }
}

fn a_completed_write_is_applied_and_its_checksums_fit(owner: &dyn Owner) {
    let mut transport = owner.transport();
    for (number, len) in (600u64..).zip(SIZES) {
        let (id, mut bytes) = (block_id(number), block_bytes(number, len));
        let (slot, slab_offset) = owner.reserve(number, len);
        let (head, tail) = bytes.split_at_mut(len / 3);
        let source = Regions::Many(vec![Region::of_mut(head), Region::of_mut(tail)]);
        let op = WriteOp { token: number, id, slot, slab_offset, source };
        let completion = run(&mut *transport, vec![Op::Write(op)]).remove(0);
        let Ok(Done::Written { checksums }) = completion.outcome else { panic!("{completion:?}") };
        assert!(owner.written(&slot).as_ref() == Some(&bytes), "write of {len} bytes");
        assert!(BlockChecksum::new(id, len as u64).verify(0, &bytes, &checksums).is_ok(), "write of {len} bytes");
    }
}

/// Neither the reservation nor the place is there: a transport goes by one of them.
fn a_write_to_nowhere_is_refused(owner: &dyn Owner) {
    let mut transport = owner.transport();
    for slab_offset in [0, 4088, 1 << 50, u64::MAX - 3] {
        let slot = SlotName { slot: 9, generation: Generation(u64::MAX) };
        let source = Regions::One(Region::of(b"nowhere"));
        let op = WriteOp { token: 1, id: block_id(1), slot, slab_offset, source };
        let failure = failed(run(&mut *transport, vec![Op::Write(op)]).remove(0));
        assert_eq!(failure, Failure::Unavailable, "a write to {slab_offset}");
    }
}

fn many_small_blocks_come_in_one_batch(owner: &dyn Owner) {
    let count = 2000;
    for number in 0..count {
        if number % 7 != 0 {
            owner.put(1000 + number, &block_bytes(number, 100 + number as usize));
        }
    }
    let mut transport = owner.transport();
    let ops = (0..count).map(|number| Op::Read(read(1000 + number, Destination::Allocate))).collect();
    for (number, completion) in (0..).zip(run(&mut *transport, ops)) {
        assert_eq!(completion.token, 1000 + number);
        match number % 7 {
            0 => assert!(matches!(completion.outcome, Err(Failure::Miss)), "{completion:?}"),
            _ => assert!(allocated(completion) == block_bytes(number, 100 + number as usize), "block {number}"),
        }
    }
}
