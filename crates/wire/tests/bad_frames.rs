//! Whatever is wrong with a frame is found, and named, before it costs anything.

#[path = "common/raw.rs"]
mod raw;
#[path = "common/samples.rs"]
mod samples;

use tidepool_types::{BlockId, InvalidInput, MAX_BLOCK_LEN};
use tidepool_wire::frame::*;
use tidepool_wire::message::*;

/// Every sample as (kind, payload length, body).
fn samples_apart() -> Vec<(u8, u64, Vec<u8>)> {
    let requests = samples::requests().into_iter().map(|(_, request)| samples::request_frame(&request));
    let replies = samples::replies().into_iter().map(|(_, reply)| samples::reply_frame(&reply));
    let apart = |frame: Vec<u8>| {
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        (header.kind.code(), header.payload_len, body.to_vec())
    };
    requests.chain(replies).map(apart).collect()
}

/// Decodes a body under a header that fits it.
fn decode(kind: u8, payload_len: u64, body: &[u8]) -> Result<(), FrameError> {
    decode_under(&Header::parse(&raw::header(kind, payload_len, body))?, body)
}

fn decode_under(header: &Header, body: &[u8]) -> Result<(), FrameError> {
    match header.kind {
        Kind::Request(_) => decode_request(header, body).map(drop),
        Kind::Reply(_) => decode_reply(header, body).map(drop),
    }
}

fn stat_header() -> [u8; HEADER_LEN] {
    raw::header(RequestKind::Stat as u8, 0, &[])
}

/// A good header with some bytes replaced.
fn patched(at: usize, bytes: &[u8]) -> Result<Header, FrameError> {
    let mut header = stat_header();
    header[at..at + bytes.len()].copy_from_slice(bytes);
    Header::parse(&header)
}

#[test]
fn a_body_cut_at_any_length_is_refused() {
    for (kind, payload_len, body) in samples_apart() {
        for len in 0..body.len() {
            let error = decode(kind, payload_len, &body[..len]).expect_err("cut");
            assert!(
                matches!(error, FrameError::Truncated { .. } | FrameError::Count { .. }),
                "{kind:#x} {len}: {error}"
            );
            assert!(!error.ends_connection());
            let whole = Header::parse(&raw::header(kind, payload_len, &body)).expect("a good header");
            let error = decode_under(&whole, &body[..len]).expect_err("not the body announced");
            assert_eq!(error, FrameError::BodyMismatch { expected: body.len() as u32, found: len });
        }
    }
}

#[test]
fn bytes_after_a_message_are_refused() {
    for (kind, payload_len, mut body) in samples_apart() {
        body.push(0);
        assert_eq!(decode(kind, payload_len, &body), Err(FrameError::Trailing { left: 1 }), "{kind:#x}");
    }
}

#[test]
fn any_changed_bit_is_found() {
    for (kind, payload_len, body) in samples_apart() {
        let good = raw::header(kind, payload_len, &body);
        for bit in 0..(HEADER_LEN + body.len()) * 8 {
            let mut frame = [&good[..], &body].concat();
            frame[bit / 8] ^= 1 << (bit % 8);
            let (header, body) = frame.split_first_chunk().expect("a whole header");
            let result = Header::parse(header).and_then(|header| decode_under(&header, body));
            assert!(result.is_err_and(|error| error.ends_connection()), "kind {kind:#x}, bit {bit}");
        }
    }
}

#[test]
fn a_wrong_checksum_is_named() {
    let header = patched(28, &[0; 4]).expect("a checksum is not checked without the body");
    let error = decode_request(&header, &[]).expect_err("wrong checksum");
    assert!(matches!(error, FrameError::Checksum { found: 0, .. }), "{error}");
    assert_eq!(error.reason(), Reason::Malformed);
}

#[test]
fn another_version_is_refused_with_the_version_spoken() {
    let error = patched(4, &[2]).expect_err("version 2");
    assert_eq!(error, FrameError::Version(2));
    assert_eq!(error.to_string(), "protocol version 2: this side speaks version 1");
    assert_eq!(error.reason(), Reason::Version);
}

#[test]
fn other_protocols_and_unknown_kinds_and_flags_are_refused() {
    assert_eq!(patched(0, b"GET "), Err(FrameError::Magic(*b"GET ")));
    for kind in (0..=255).filter(|code| Kind::from_code(*code).is_none()) {
        assert_eq!(patched(5, &[kind]), Err(FrameError::Kind(kind)));
    }
    assert_eq!(patched(6, &[1, 0]), Err(FrameError::Flags(1)));
    assert_eq!(patched(6, &[0, 0x80]), Err(FrameError::Flags(0x8000)));
}

#[test]
fn lengths_are_bounded_before_anything_is_read() {
    assert!(patched(16, &MAX_BODY.to_le_bytes()).is_ok());
    assert_eq!(patched(16, &(MAX_BODY + 1).to_le_bytes()), Err(FrameError::BodyLength(u64::from(MAX_BODY) + 1)));
    let payload = |kind: u8, len: u64| Header::parse(&raw::header(kind, len, &[])).map(|header| header.payload_len);
    let bytes =
        [(0x03, 1, MAX_BLOCK_LEN), (0x19, 1, MAX_BLOCK_LEN), (0x86, 0, MAX_BLOCK_LEN), (0x10, 0, 0), (0x83, 0, 0)];
    for (kind, least, most) in bytes {
        assert_eq!(payload(kind, least), Ok(least));
        assert_eq!(payload(kind, most), Ok(most));
        for len in [most + 1, u64::MAX] {
            let kind = Kind::from_code(kind).expect("a known kind");
            assert_eq!(payload(kind.code(), len), Err(FrameError::PayloadLength { kind, len, least, most }));
        }
    }
    assert!(payload(0x03, 0).is_err());
}

#[test]
fn a_message_too_long_for_a_frame_is_not_encoded() {
    let ids = vec![BlockId::from_bytes([1; 16]); (MAX_BODY as usize / BlockId::LEN) + 1];
    let mut out = b"kept".to_vec();
    let error = encode_request(1, &Request::Confirm(ids), 0, &mut out).expect_err("too long");
    assert!(matches!(error, FrameError::BodyLength(_)), "{error}");
    assert!(encode_request(1, &Request::Stat, 5, &mut out).is_err());
    assert_eq!(out, b"kept");
}

#[test]
fn a_count_is_bounded_by_the_bytes_that_are_there() {
    let huge = u32::MAX.to_le_bytes();
    // Sequences that stand at the start of their body, with the fewest bytes of one item.
    for (kind, item) in [(0x05, 12), (0x07, 16), (0x0a, 12), (0x0f, 32), (0x82, 21), (0x84, 17), (0x87, 24), (0x88, 29)]
    {
        let error = decode(kind, 0, &huge).expect_err("no items there");
        assert_eq!(error, FrameError::Count { count: u32::MAX, item, left: 0 }, "{kind:#x}");
    }
    for (kind, before) in [(0x02, 5), (0x04, 4), (0x06, 4), (0x86, 4)] {
        let body = [&vec![0; before][..], &huge, &[0; 50]].concat();
        assert!(matches!(decode(kind, 0, &body), Err(FrameError::Count { left: 50, .. })), "{kind:#x}");
    }
}

#[test]
fn a_message_from_the_wrong_side_is_refused() {
    let request = Header::parse(&stat_header()).expect("a good header");
    assert_eq!(decode_reply(&request, &[]), Err(FrameError::Direction(request.kind)));
    let reply = Header::parse(&raw::header(0x85, 0, &[])).expect("a good header");
    assert_eq!(decode_request(&reply, &[]), Err(FrameError::Direction(reply.kind)));
}

fn round_trip(request: &Request) -> Result<Request, FrameError> {
    let frame = samples::request_frame(request);
    let (header, body) = samples::split(&frame);
    decode_request(&header, body)
}

#[test]
fn keys_and_block_lengths_are_checked() {
    let reserve = |key: usize, len| {
        let items = vec![ReserveItem { key: vec![1; key], len }];
        round_trip(&Request::Reserve(Reserve { wait_millis: 0, mapped: false, items })).map(drop)
    };
    assert_eq!(reserve(1, 1), Ok(()));
    assert_eq!(reserve(1024, MAX_BLOCK_LEN), Ok(()));
    for key in [0, 1025] {
        let error = reserve(key, 1).expect_err("no such key");
        assert_eq!(error, FrameError::Invalid(InvalidInput::KeyLength(key)));
        assert_eq!((error.reason(), error.ends_connection()), (Reason::Invalid, false));
    }
    for len in [0, MAX_BLOCK_LEN + 1] {
        assert_eq!(reserve(1, len), Err(FrameError::Invalid(InvalidInput::BlockLength(len))));
    }
}

#[test]
fn a_piece_past_the_largest_block_is_refused() {
    let slot = SlotName { slot: 1, generation: tidepool_types::Generation(1) };
    for offset in [MAX_BLOCK_LEN - 4, u64::MAX] {
        let error = round_trip(&Request::Write(Write { slot, offset })).expect_err("ends past the block");
        assert!(matches!(error, FrameError::Invalid(InvalidInput::Range { .. })), "{error}");
    }
}

#[test]
fn values_without_a_meaning_are_refused() {
    let tag = |what, value| Err(FrameError::Tag { what, value });
    assert_eq!(decode(0x0c, 0, &[2]), tag("Pattern", 2));
    assert_eq!(decode(0x80, 0, &[6, 0, 0, 0, 0]), tag("Reason", 6));
    assert_eq!(decode(0x8c, 0, &[1, 0, 0, 0, 5]), tag("PullOutcome", 5));
    assert_eq!(decode(0x89, 0, &[1, 0, 0, 0, 2]), tag("flag", 2));
    assert_eq!(decode(0x80, 0, &[0, 1, 0, 0, 0, 0xff]), Err(FrameError::Utf8));
    let unknown_seal_with_padding = [&[1, 0, 0, 0, 1][..], &[0; 15], &[1]].concat();
    assert_eq!(decode(0x84, 0, &unknown_seal_with_padding), Err(FrameError::Padding));
    let copy_without_generation = [&[1, 0, 0, 0][..], &[9; 8], &[0; 8], &[1; 8]].concat();
    assert_eq!(decode(0x87, 0, &copy_without_generation), Err(FrameError::NoCopy));
}

#[test]
fn a_payload_is_as_long_as_its_hits() {
    let (kind, payload_len, body) = samples_apart().into_iter().find(|(kind, ..)| *kind == 0x86).expect("blocks");
    let expected = FrameError::PayloadMismatch { payload: payload_len + 1, hits: payload_len };
    assert_eq!(decode(kind, payload_len + 1, &body), Err(expected));
}

#[test]
fn several_hits_share_at_most_64_mib_and_one_may_be_a_whole_block() {
    let hit = |len: u64| {
        let copy =
            tidepool_types::CopyName { epoch: tidepool_types::Epoch(1), generation: tidepool_types::Generation(1) };
        let checksums = tidepool_wire::checksum::Sums::from_elem(0, tidepool_types::chunk_count(len) as usize);
        GetOutcome::Hit(Hit { copy, writer: tidepool_types::ClientId(1), block_len: len, len, checksums })
    };
    let encode = |items| encode_reply(1, &Reply::Blocks(Blocks { first: 0, items }), &mut Vec::new());
    assert_eq!(encode(vec![hit(MAX_BLOCK_LEN), GetOutcome::Miss]), Ok(()));
    assert_eq!(encode(vec![hit(MAX_BATCH_PAYLOAD - 1), hit(1)]), Ok(()));
    assert_eq!(encode(vec![hit(MAX_BATCH_PAYLOAD), hit(1)]), Err(FrameError::BatchPayload(MAX_BATCH_PAYLOAD + 1)));
}

#[test]
fn a_hit_has_a_checksum_for_each_chunk_it_touches() {
    let (kind, payload_len, body) = samples_apart().into_iter().find(|(kind, ..)| *kind == 0x86).expect("blocks");
    let first_count = 4 + 4 + 1 + 40;
    assert_eq!(body[first_count], 1);
    let none = [&body[..first_count], &[0; 4], &body[first_count + 8..]].concat();
    assert_eq!(decode(kind, payload_len, &none), Err(FrameError::Checksums { found: 0, len: 3 }));
}
