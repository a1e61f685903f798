//! Write and Fill frames that come twice, overlap, or do not belong: they store the same bytes again, or are refused. A block that
//! is sealed has the bytes that its writer summed, and nobody else's block is touched.

mod common;

use common::{Client, content, id, soon, start};
use std::io::IoSlice;
use tidepool_testing::eventually;
use tidepool_transfer::conn::ConnError;
use tidepool_types::Generation;
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{Reason, Reply, Request, ReserveOutcome, Seal, SealItem, SealOutcome, SlotName, Write};

const LEN: usize = 300_000;

fn take(client: &mut Client, key: &[u8]) -> SlotName {
    match client.reserve(key, LEN as u64) {
        ReserveOutcome::Taken { slot, .. } => slot,
        other => panic!("{other:?}"),
    }
}

fn write(client: &mut Client, slot: SlotName, offset: u64, bytes: &[u8]) -> Result<Reply, ConnError> {
    client.connection.call(&Request::Write(Write { slot, offset }), &[IoSlice::new(bytes)], soon())
}

fn written(client: &mut Client, slot: SlotName, offset: usize, bytes: &[u8]) {
    assert_eq!(write(client, slot, offset as u64, bytes).unwrap(), Reply::Written);
}

fn is_refused(client: &mut Client, slot: SlotName, offset: u64, bytes: &[u8]) {
    match write(client, slot, offset, bytes) {
        Err(ConnError::Refused(refusal)) => assert_eq!(refusal.reason, Reason::Invalid),
        other => panic!("{} bytes at {offset}: {other:?}", bytes.len()),
    }
}

fn sums(key: &[u8], bytes: &[u8]) -> Sums {
    BlockChecksum::new(id(key), bytes.len() as u64).range(0, bytes)
}

#[test]
fn a_slice_that_comes_twice_or_overlaps_changes_nothing() {
    let node = start("twice");
    let (mut writer, reader) = (node.tcp(1), node.unix(2));
    // Pieces in the order in which they are sent: whole, cut inside a chunk, twice, one over the other.
    let orders: [&[(usize, usize)]; 5] = [
        &[(0, LEN), (0, LEN)],
        &[(0, 131_072), (131_072, LEN), (0, 131_072)],
        &[(0, 200_000), (100_000, LEN), (150_000, 150_001)],
        &[(70_000, LEN), (0, 70_001), (65_536, 131_072)],
        &[(LEN - 1, LEN), (0, LEN - 1), (0, 1)],
    ];
    for (number, pieces) in orders.iter().enumerate() {
        let key = format!("order-{number}").into_bytes();
        let bytes = content(&key, LEN);
        let slot = take(&mut writer, &key);
        pieces.iter().for_each(|&(start, end)| written(&mut writer, slot, start, &bytes[start..end]));
        assert!(matches!(writer.seal(slot, sums(&key, &bytes)), SealOutcome::Sealed(_)), "order {number}");
        assert_eq!(reader.get(&key), Ok(bytes));
    }
}

#[test]
fn a_slice_that_comes_again_with_other_bytes_is_never_sealed_as_the_first() {
    let node = start("changed");
    let (mut writer, reader) = (node.tcp(1), node.unix(2));
    for (number, (start, end)) in [(0, LEN), (0, 65_536), (100, 101), (LEN - 1, LEN)].into_iter().enumerate() {
        let key = format!("changed-{number}").into_bytes();
        let first = content(&key, LEN);
        let mut second = first.clone();
        second[start..end].iter_mut().for_each(|byte| *byte ^= 0x55);
        for (wanted, outcome) in [(&first, false), (&second, true)] {
            let slot = take(&mut writer, &key);
            written(&mut writer, slot, 0, &first);
            written(&mut writer, slot, start, &second[start..end]);
            let sealed = writer.seal(slot, sums(&key, wanted));
            assert_eq!(matches!(sealed, SealOutcome::Sealed(_)), outcome, "{number}: {sealed:?}");
        }
        assert_eq!(reader.get(&key), Ok(second), "the bytes that were summed");
    }
    assert_eq!(node.metric("tidepool_node_reserved"), 0);
}

#[test]
fn a_write_that_does_not_fit_its_reservation_is_refused_and_touches_no_neighbour() {
    let node = start("beyond");
    let (mut writer, mut other) = (node.tcp(1), node.tcp(2));
    let reader = node.unix(3);
    let (before, after) = (content(b"before", LEN), content(b"after", LEN));
    other.put(b"before", &before);
    let slot = take(&mut writer, b"k");
    other.put(b"after", &after);
    let bytes = content(b"k", LEN);
    let end = LEN as u64;
    let junk = [0xee; 5000];
    for offset in [end, end - 4999, end + 1, u64::MAX, u64::MAX - 4999, u64::MAX - end, 1 << 63] {
        is_refused(&mut writer, slot, offset, &junk);
    }
    is_refused(&mut writer, slot, 0, &[bytes.as_slice(), &junk].concat());
    // The connection is still in step, and the reservation as good as before.
    written(&mut writer, slot, 0, &bytes);
    assert!(matches!(writer.seal(slot, sums(b"k", &bytes)), SealOutcome::Sealed(_)));
    for (key, bytes) in [(&b"before"[..], before), (b"k", bytes), (b"after", after)] {
        assert_eq!(reader.get(key), Ok(bytes));
    }
}

#[test]
fn a_write_to_what_is_sealed_given_back_or_anothers_is_refused() {
    let node = start("foreign");
    let (mut writer, mut other) = (node.tcp(1), node.tcp(2));
    let reader = node.unix(3);
    let (bytes, junk) = (content(b"k", LEN), vec![0xee; LEN]);
    let slot = take(&mut writer, b"k");
    is_refused(&mut other, slot, 0, &junk);
    let never = SlotName { generation: Generation(slot.generation.0 + 1), ..slot };
    is_refused(&mut writer, never, 0, &junk);
    written(&mut writer, slot, 0, &bytes);
    assert_eq!(other.seal(slot, sums(b"k", &bytes)), SealOutcome::Unknown);
    assert!(matches!(writer.seal(slot, sums(b"k", &bytes)), SealOutcome::Sealed(_)));
    is_refused(&mut writer, slot, 0, &junk);
    assert_eq!(writer.seal(slot, sums(b"k", &junk)), SealOutcome::Unknown, "sealed once");
    // Given back, and its slot taken by another block: the old name reaches neither.
    let given_back = take(&mut writer, b"gone");
    assert_eq!(writer.call(&Request::Abort(vec![given_back])).unwrap(), Reply::Done);
    other.put(b"next", &content(b"next", LEN));
    is_refused(&mut writer, given_back, 0, &junk);
    assert_eq!(reader.get(b"k"), Ok(bytes));
    assert_eq!(reader.get(b"next"), Ok(content(b"next", LEN)));
}

#[test]
fn one_slice_over_many_connections_at_once_is_sealed_whole_or_not_at_all() {
    let node = start("at-once");
    let reader = node.unix(9);
    for round in 0..20 {
        let key = format!("round-{round}").into_bytes();
        let bytes = content(&key, LEN);
        let mut owner = node.tcp(1);
        let slot = take(&mut owner, &key);
        let sealed = std::thread::scope(|scope| {
            for number in 0..3 {
                let (node, bytes) = (&node, &bytes);
                // Connections of the same client: those that come after the seal are refused.
                scope.spawn(move || match write(&mut node.tcp(1), slot, 0, bytes) {
                    Ok(Reply::Written) | Err(ConnError::Refused(_)) => {}
                    other => panic!("writer {number}: {other:?}"),
                });
            }
            owner.seal(slot, sums(&key, &bytes))
        });
        match sealed {
            SealOutcome::Sealed(_) => assert_eq!(reader.get(&key), Ok(bytes), "round {round}"),
            // It came before all bytes had.
            SealOutcome::Corrupt => assert!(reader.get(&key).is_err(), "round {round}"),
            other => panic!("{other:?}"),
        }
    }
    eventually("all space is settled", || node.metric("tidepool_node_reserved") == 0);
}

fn fill(client: &mut Client, items: Vec<SealItem>, bytes: &[u8]) -> Result<Reply, ConnError> {
    client.connection.call(&Request::Fill(Seal { wait_millis: 1000, items }), &[IoSlice::new(bytes)], soon())
}

#[test]
fn a_fill_brings_and_seals_whole_blocks_and_a_damaged_one_alone_is_refused() {
    let node = start("fill");
    let (mut writer, reader) = (node.tcp(1), node.unix(2));
    let (keys, mut all, mut items): ([&[u8]; 3], _, _) = ([b"a", b"b", b"c"], Vec::new(), Vec::new());
    for key in keys {
        let bytes = content(key, LEN);
        let slot = take(&mut writer, key);
        items.push(SealItem { slot, checksums: sums(key, &bytes) });
        all.extend_from_slice(&bytes);
    }
    all[LEN + 7] ^= 1;
    let Ok(Reply::Sealed(outcomes)) = fill(&mut writer, items, &all) else { panic!("not sealed") };
    assert!(matches!(outcomes[..], [SealOutcome::Sealed(_), SealOutcome::Corrupt, SealOutcome::Sealed(_)]));
    assert_eq!(reader.get(b"a"), Ok(content(b"a", LEN)));
    assert!(reader.get(b"b").is_err());
    assert_eq!(reader.get(b"c"), Ok(content(b"c", LEN)));
}

#[test]
fn a_fill_that_does_not_fit_its_reservations_is_refused_and_the_connection_lives() {
    let node = start("misfit");
    let (mut writer, reader) = (node.tcp(1), node.unix(2));
    let bytes = content(b"k", LEN);
    let slot = take(&mut writer, b"k");
    let item = || SealItem { slot, checksums: sums(b"k", &bytes) };
    let nobodys = SealItem { slot: SlotName { generation: Generation(u64::MAX), ..slot }, checksums: Sums::new() };
    let longer = [&bytes[..], b"x"].concat();
    for (items, payload) in [
        (vec![item()], &bytes[..LEN - 1]),
        (vec![item()], &longer[..]),
        (vec![item(), nobodys], &bytes[..]),
        (Vec::new(), &bytes[..]),
    ] {
        match fill(&mut writer, items, payload) {
            Err(ConnError::Refused(refusal)) => assert_eq!(refusal.reason, Reason::Invalid),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(fill(&mut writer, vec![item()], &bytes), Ok(Reply::Sealed(outcomes)) if outcomes.len() == 1));
    assert_eq!(reader.get(b"k"), Ok(bytes));
}
