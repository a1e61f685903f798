//! Tails: what a receiver does not know it skips, and everything that it knows has one spelling.

#[path = "common/bodies.rs"]
mod bodies;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/samples.rs"]
mod samples;

use tidepool_types::{BlockId, ClientId, CopyName, Epoch, Generation, InvalidInput, Tier};
use tidepool_wire::frame::*;
use tidepool_wire::message::*;
use tidepool_wire::tags::{self, CRITICAL};

/// A number that no message has a field for.
const UNKNOWN: u16 = 0x7fff;
const CONFIRM: u8 = RequestKind::Confirm as u8;

/// A field as it lies in a tail.
fn field(tag: u16, value: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(value.len() as u32).to_le_bytes(), value].concat()
}

fn respelled(kind: u8, payload_len: u64, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    bodies::respelled(&Header::parse(&raw::header(kind, payload_len, body))?, body)
}

/// A Confirm of two blocks with this tail.
fn confirm(tail: &[u8]) -> Result<Vec<u8>, FrameError> {
    respelled(CONFIRM, 0, &[&two_blocks()[..], tail].concat())
}

fn two_blocks() -> Vec<u8> {
    [&2u32.to_le_bytes()[..], &[7; 32]].concat()
}

/// The run of a Confirm, as it lies in the tail: of so many items, with these bits and 32 bytes of an origin.
fn run(items: u32, bits: u8, origin: [u8; 32]) -> Vec<u8> {
    let run = [&items.to_le_bytes()[..], &5u32.to_le_bytes(), &[bits], &origin].concat();
    field(tags::ids::RUNS, &[&1u32.to_le_bytes()[..], &run].concat())
}

fn wrong<T>(kind: Kind, number: u16, error: TailError) -> Result<T, FrameError> {
    Err(FrameError::Tail { kind, number, error })
}

fn wrong_confirm<T>(number: u16, error: TailError) -> Result<T, FrameError> {
    wrong(Kind::Request(RequestKind::Confirm), number, error)
}

#[test]
fn a_field_that_is_not_known_is_skipped() {
    for (kind, payload_len, body) in bodies::all() {
        let longer = [&body[..], &field(UNKNOWN - 1, &[1]), &field(UNKNOWN, &[0; 300])].concat();
        assert_eq!(respelled(kind, payload_len, &longer), Ok(body), "{kind:#x}");
    }
    let reserved_beside_known = [run(2, 0, [0; 32]), field(tags::ids::RUNS + 1, &[1])].concat();
    assert_eq!(confirm(&reserved_beside_known), Ok([two_blocks(), run(2, 0, [0; 32])].concat()));
}

#[test]
fn a_critical_field_that_is_not_known_is_refused_by_its_name() {
    for (kind, payload_len, body) in bodies::all() {
        let longer = [&body[..], &field(UNKNOWN | CRITICAL, &[1])].concat();
        let error = respelled(kind, payload_len, &longer).expect_err("critical");
        assert_eq!(wrong::<()>(Kind::from_code(kind), UNKNOWN, TailError::Unknown), Err(error.clone()));
        assert_eq!((error.reason(), error.ends_connection()), (Reason::Version, false));
    }
    let error = confirm(&field(300 | CRITICAL, &[1])).expect_err("critical");
    assert_eq!(
        error.to_string(),
        "field 300 in the tail of Request(Confirm) is critical: this side speaks version 2 and does not know it"
    );
}

#[test]
fn fields_come_in_the_order_of_their_numbers_and_once() {
    let (low, high) = (field(UNKNOWN - 1, &[1]), field(UNKNOWN, &[1]));
    assert!(confirm(&[&low[..], &high].concat()).is_ok());
    let order = |number, before| wrong_confirm(number, TailError::Order { before });
    assert_eq!(confirm(&[&high[..], &low].concat()), order(UNKNOWN - 1, UNKNOWN));
    assert_eq!(confirm(&[&high[..], &high].concat()), order(UNKNOWN, UNKNOWN));
    let marked_twin = field(UNKNOWN | CRITICAL, &[1]);
    assert_eq!(confirm(&[&high[..], &marked_twin].concat()), order(UNKNOWN, UNKNOWN));
    assert_eq!(confirm(&[run(2, 0, [0; 32]), run(2, 0, [0; 32])].concat()), order(1, 1));
    assert_eq!(confirm(&field(0, &[1])), order(0, 0));
    assert_eq!(confirm(&field(CRITICAL, &[1])), order(0, 0));
}

#[test]
fn a_known_field_with_the_wrong_mark_is_refused() {
    let mut marked = run(2, 0, [0; 32]);
    marked[1] |= 0x80;
    assert_eq!(confirm(&marked), wrong_confirm(tags::ids::RUNS, TailError::Mark));
}

#[test]
fn a_field_that_says_nothing_is_refused() {
    assert_eq!(confirm(&field(UNKNOWN, &[])), wrong_confirm(UNKNOWN, TailError::Empty));
    assert_eq!(confirm(&field(tags::ids::RUNS, &[0; 4])), wrong_confirm(tags::ids::RUNS, TailError::Empty));
    let offer = [&[0; 8][..], &field(tags::offer::KEYS_WANTED, &[0])].concat();
    let offered = respelled(RequestKind::Offer as u8, 0, &offer);
    assert_eq!(offered, wrong(Kind::Request(RequestKind::Offer), 1, TailError::Empty));
}

#[test]
fn a_field_ends_with_its_value() {
    let list = |count: u32, bytes: &[u8]| field(tags::ids::RUNS, &[&count.to_le_bytes()[..], bytes].concat());
    let good = &run(2, 0, [0; 32])[10..];
    assert_eq!(
        confirm(&list(1, &[good, &[0; 3]].concat())),
        wrong_confirm(tags::ids::RUNS, TailError::Trailing { left: 3 })
    );
    let error = FrameError::Count { count: 2, item: 41, left: 41 };
    assert_eq!(confirm(&list(2, good)), Err(error), "what follows the field is not its own");
}

#[test]
fn a_tail_has_at_most_64_fields() {
    let fields = |count: u16| (1..=count).flat_map(|number| field(100 + number, &[1])).collect::<Vec<u8>>();
    assert_eq!(confirm(&fields(64)), Ok(two_blocks()));
    assert_eq!(confirm(&fields(65)), wrong_confirm(165, TailError::TooMany));
    assert_eq!(confirm(&fields(200)), wrong_confirm(165, TailError::TooMany));
}

#[test]
fn a_tail_cut_short_is_refused() {
    let tail = field(UNKNOWN, &[1; 9]);
    for len in 1..tail.len() {
        let error = confirm(&tail[..len]).expect_err("cut");
        assert!(matches!(error, FrameError::Truncated { .. }), "{len}: {error}");
    }
    let endless = [&UNKNOWN.to_le_bytes()[..], &u32::MAX.to_le_bytes(), &[1; 9]].concat();
    assert_eq!(confirm(&endless), Err(FrameError::Truncated { needed: u32::MAX as usize, left: 9 }));
}

#[test]
fn runs_cover_each_item_once() {
    assert!(confirm(&run(2, 0, [0; 32])).is_ok());
    for items in [1, 3, u32::MAX] {
        let error = FrameError::Runs { covered: u64::from(items), items: 2 };
        assert_eq!(confirm(&run(items, 0, [0; 32])), Err(error));
    }
    assert_eq!(confirm(&run(0, 0, [0; 32])), Err(FrameError::EmptyRun));
}

#[test]
fn a_run_of_more_than_4_billion_items_is_not_counted_round() {
    let one = &run(u32::MAX, 0, [0; 32])[10..];
    let runs = field(tags::ids::RUNS, &[&2u32.to_le_bytes()[..], one, one].concat());
    assert_eq!(confirm(&runs), Err(FrameError::Runs { covered: 2 * u64::from(u32::MAX), items: 2 }));
}

#[test]
fn the_runs_of_a_touch_cover_slots_and_then_ids() {
    let slot = SlotName { slot: 1, generation: Generation(1) };
    let touch = |items| {
        let runs = vec![Run { items, depth: 0, origin: None }];
        let ids = vec![BlockId::from_bytes([1; 16]); 2];
        let frame = samples::request_frame(&Request::Touch(Touch { slots: vec![slot], ids, runs, ..Touch::default() }));
        let (header, body) = samples::split(&frame);
        bodies::respelled(&header, body).map(drop)
    };
    assert_eq!(touch(3), Ok(()));
    assert_eq!(touch(1), Err(FrameError::Runs { covered: 1, items: 3 }));
}

#[test]
fn what_is_not_known_of_a_run_is_zero() {
    let (session, parent, turn, pause, tool) = (0, 8, 16, 20, 28);
    let with = |at: usize| std::array::from_fn(|i| u8::from(i == at));
    for at in [session, parent, turn, pause, tool] {
        assert_eq!(confirm(&run(2, 0, with(at))), Err(FrameError::Padding), "{at}");
        let is_free = ![parent, tool].contains(&at);
        assert_eq!(confirm(&run(2, 1, with(at))).is_ok(), is_free, "{at}");
        assert!(confirm(&run(2, 15, with(at))).is_ok(), "{at}");
    }
    for bits in [2, 4, 8, 14, 16, 17, 0xff] {
        let error = FrameError::Tag { what: "what is known of a run", value: bits };
        assert_eq!(confirm(&run(2, bits, [0; 32])), Err(error));
    }
}

#[test]
fn there_is_a_key_for_each_block_that_was_found() {
    let copy = CopyName { epoch: Epoch(1), generation: Generation(1) };
    let found = |keys: Vec<Vec<u8>>| {
        let frame = samples::reply_frame(&Reply::Found(Found { copies: vec![Some((copy, 1)), None], keys }));
        let (header, body) = samples::split(&frame);
        bodies::respelled(&header, body).map(drop)
    };
    assert_eq!(found(vec![vec![1]]), Ok(()));
    assert_eq!(found(vec![]), Ok(()));
    assert_eq!(found(vec![vec![1], vec![2]]), Err(FrameError::FoundKeys { keys: 2, found: 1 }));
    assert_eq!(found(vec![vec![0; 1025]]), Err(FrameError::Invalid(InvalidInput::KeyLength(1025))));
}

#[test]
fn there_is_a_tier_for_each_block_that_is_listed_or_all_are_in_memory() {
    let copy = CopyName { epoch: Epoch(1), generation: Generation(1) };
    let entry = KeyEntry { key: vec![1], len: 1, copy, writer: ClientId(1), views: 0 };
    let keys = |tiers: Vec<Tier>| {
        let keys = Keys { entries: vec![entry.clone(), entry.clone()], next: None, tiers };
        let frame = samples::reply_frame(&Reply::Keys(keys));
        let (header, body) = samples::split(&frame);
        bodies::respelled(&header, body).map(drop)
    };
    assert_eq!(keys(vec![]), Ok(()));
    assert_eq!(keys(vec![Tier::Dram, Tier::Disk]), Ok(()));
    assert_eq!(keys(vec![Tier::Disk]), Err(FrameError::Tiers { tiers: 1, entries: 2 }));
    assert_eq!(keys(vec![Tier::Dram; 2]), Err(FrameError::Tiers { tiers: 2, entries: 2 }));
}

#[test]
fn reserved_kinds_are_no_messages_yet() {
    for code in [tags::kinds::NOTIFY, tags::kinds::PREPARE, tags::kinds::PREPARED] {
        assert_eq!(Kind::from_code(code), Kind::Unknown(code));
    }
}
