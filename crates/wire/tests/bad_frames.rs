//! Whatever is wrong with a frame is found, and named, before it costs anything.

#[path = "common/bodies.rs"]
mod bodies;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/samples.rs"]
mod samples;

use tidepool_types::{BlockId, InvalidInput, MAX_BLOCK_LEN};
use tidepool_wire::frame::*;
use tidepool_wire::message::*;

/// Decodes a body under a header that fits it.
fn decode(kind: u8, payload_len: u64, body: &[u8]) -> Result<(), FrameError> {
    decode_under(&Header::parse(&raw::header(kind, payload_len, body))?, body)
}

fn decode_under(header: &Header, body: &[u8]) -> Result<(), FrameError> {
    bodies::respelled(header, body).map(drop)
}

fn head(kind: u8, payload_len: u64, body: &[u8]) -> Header {
    Header::parse(&raw::header(kind, payload_len, body)).expect("a good header")
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
    for (kind, payload_len, body) in bodies::all() {
        for len in 0..body.len() {
            match bodies::respelled(&head(kind, payload_len, &body[..len]), &body[..len]) {
                // Whole fields are missing: this is another message, and has its one spelling.
                Ok(spelled) => assert_eq!(spelled, body[..len], "{kind:#x} {len}"),
                Err(error @ (FrameError::Truncated { .. } | FrameError::Count { .. } | FrameError::Runs { .. })) => {
                    assert!(!error.ends_connection());
                }
                Err(error) => panic!("{kind:#x} {len}: {error}"),
            }
            let whole = head(kind, payload_len, &body);
            let error = decode_under(&whole, &body[..len]).expect_err("not the body announced");
            assert_eq!(error, FrameError::BodyMismatch { expected: body.len() as u32, found: len });
        }
    }
}

#[test]
fn bytes_after_a_message_that_are_no_field_are_refused() {
    for (kind, payload_len, body) in bodies::all() {
        for more in [1, 5, 6, 100] {
            let longer = [&body[..], &vec![0; more]].concat();
            let error = decode(kind, payload_len, &longer).expect_err("zeros are no field");
            assert!(matches!(error, FrameError::Truncated { .. } | FrameError::Tail { .. }), "{kind:#x}: {error}");
        }
    }
}

#[test]
fn any_changed_bit_is_found() {
    for (kind, payload_len, body) in bodies::all() {
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
    for version in [0, 1, 3, 255] {
        let error = patched(4, &[version]).expect_err("another version");
        assert_eq!(error, FrameError::Version(version));
        assert_eq!(error.to_string(), format!("frame of protocol version {version}: this side speaks version 2"));
        assert_eq!((error.reason(), error.ends_connection()), (Reason::Version, true));
    }
}

#[test]
fn a_kind_that_is_not_known_is_refused_and_the_connection_goes_on() {
    let unknown = |code: &u8| matches!(Kind::from_code(*code), Kind::Unknown(_));
    for code in (0..=255).filter(unknown) {
        for (payload_len, body) in [(0, &b""[..]), (MAX_BLOCK_LEN, b"whatever")] {
            let error = decode(code, payload_len, body).expect_err("not known");
            assert_eq!(error, FrameError::Kind(code));
            assert_eq!((error.reason(), error.ends_connection()), (Reason::Version, false));
        }
        let mut changed = raw::header(code, 0, b"whatever");
        changed[8] ^= 1;
        let error =
            decode_under(&Header::parse(&changed).expect("lengths in bounds"), b"whatever").expect_err("changed");
        assert!(error.ends_connection(), "a frame that changed on the way may be of any kind: {error}");
        assert!(Header::parse(&raw::header(code, MAX_BLOCK_LEN + 1, b"")).is_err());
    }
}

#[test]
fn other_protocols_and_flags_are_refused() {
    assert_eq!(patched(0, b"GET "), Err(FrameError::Magic(*b"GET ")));
    assert_eq!(patched(6, &[1, 0]), Err(FrameError::Flags(1)));
    assert_eq!(patched(6, &[0, 0x80]), Err(FrameError::Flags(0x8000)));
}

#[test]
fn lengths_are_bounded_before_anything_is_read() {
    assert!(patched(16, &MAX_BODY.to_le_bytes()).is_ok());
    assert_eq!(patched(16, &(MAX_BODY + 1).to_le_bytes()), Err(FrameError::BodyLength(u64::from(MAX_BODY) + 1)));
    let payload = |kind: u8, len: u64| Header::parse(&raw::header(kind, len, &[])).map(|header| header.payload_len);
    let with_payload =
        [(0x03, 1), (0x19, 1), (0x1c, 1), (0x86, 0), (0x92, 0)].map(|(kind, least)| (kind, least, MAX_BLOCK_LEN));
    for (kind, least, most) in with_payload.into_iter().chain([(0x10, 0, 0), (0x83, 0, 0)]) {
        assert_eq!(payload(kind, least), Ok(least));
        assert_eq!(payload(kind, most), Ok(most));
        for len in [most + 1, u64::MAX] {
            let kind = Kind::from_code(kind);
            assert_eq!(payload(kind.code(), len), Err(FrameError::PayloadLength { kind, len, least, most }));
        }
    }
    assert!(payload(0x03, 0).is_err());
}

#[test]
fn a_message_too_long_for_a_frame_is_not_encoded() {
    let ids = vec![BlockId::from_bytes([1; 16]); (MAX_BODY as usize / BlockId::LEN) + 1];
    let mut out = b"kept".to_vec();
    let error = encode_request(1, &Request::Confirm(ids.into()), 0, &mut out).expect_err("too long");
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
    for (kind, before) in [(0x02, 5), (0x04, 4), (0x06, 4), (0x1b, 4), (0x86, 4), (0x92, 4)] {
        let body = [&vec![0; before][..], &huge, &[0; 50]].concat();
        assert!(matches!(decode(kind, 0, &body), Err(FrameError::Count { left: 50, .. })), "{kind:#x}");
    }
}

#[test]
fn a_message_from_the_wrong_side_is_refused() {
    let request = Header::parse(&stat_header()).expect("a good header");
    assert_eq!(decode_reply(&request, &[]), Err(FrameError::Direction(request.kind)));
    let reply = head(0x85, 0, &[]);
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
        round_trip(&Request::Reserve(Reserve { items, ..Reserve::default() })).map(drop)
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
    assert_eq!(decode(0x80, 0, &[7, 0, 0, 0, 0]), tag("Reason", 7));
    assert_eq!(decode(0x8c, 0, &[1, 0, 0, 0, 6]), tag("PullOutcome", 6));
    assert_eq!(decode(0x89, 0, &[1, 0, 0, 0, 2]), tag("flag", 2));
    assert_eq!(decode(0x80, 0, &[0, 1, 0, 0, 0, 0xff]), Err(FrameError::Utf8));
    let unknown_seal_with_padding = [&[1, 0, 0, 0, 1][..], &[0; 15], &[1]].concat();
    assert_eq!(decode(0x84, 0, &unknown_seal_with_padding), Err(FrameError::Padding));
    let copy_without_generation = [&[1, 0, 0, 0][..], &[9; 8], &[0; 8], &[1; 8]].concat();
    assert_eq!(decode(0x87, 0, &copy_without_generation), Err(FrameError::NoCopy));
}

#[test]
fn a_payload_is_as_long_as_its_hits() {
    let (kind, payload_len, body) = bodies::all().into_iter().find(|(kind, ..)| *kind == 0x86).expect("blocks");
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
    let (kind, payload_len, body) = bodies::all().into_iter().find(|(kind, ..)| *kind == 0x86).expect("blocks");
    let first_count = 4 + 4 + 1 + 40;
    assert_eq!(body[first_count], 1);
    let none = [&body[..first_count], &[0; 4], &body[first_count + 8..]].concat();
    assert_eq!(decode(kind, payload_len, &none), Err(FrameError::Checksums { found: 0, len: 3 }));
}

#[test]
fn a_piece_of_a_registered_range_is_bounded() {
    let name = RangeName { range: 1, key: 2 };
    let read = |offset, len| {
        round_trip(&Request::ReadRange(ReadRange { wait_millis: 0, items: vec![RangeItem { name, offset, len }] }))
            .map(drop)
    };
    assert_eq!(read(u64::MAX - 1, 1), Ok(()));
    assert_eq!(read(0, MAX_BLOCK_LEN), Ok(()));
    for (offset, len) in [(0, 0), (0, MAX_BLOCK_LEN + 1), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        let error = read(offset, len).expect_err("no such piece");
        assert_eq!(error, FrameError::Piece { offset, len });
        assert_eq!((error.reason(), error.ends_connection()), (Reason::Invalid, false));
    }
    // The payload is 5 bytes.
    let write = |offset, checksums: &[u32]| {
        round_trip(&Request::WriteRange(WriteRange { name, offset, checksums: checksums.into() })).map(drop)
    };
    assert_eq!(write(7, &[1]), Ok(()));
    assert_eq!(write(u64::MAX - 4, &[1]), Err(FrameError::Piece { offset: u64::MAX - 4, len: 5 }));
    assert_eq!(write(7, &[]), Err(FrameError::Checksums { found: 0, len: 5 }));
    assert_eq!(write(7, &[1, 2]), Err(FrameError::Checksums { found: 2, len: 5 }));
}

#[test]
fn the_pieces_of_a_reply_follow_the_rules_of_its_blocks() {
    let hit = |len: u64, sums: u64| RangeOutcome::Hit {
        len,
        checksums: tidepool_wire::checksum::Sums::from_elem(0, sums as usize),
    };
    let whole = |len| hit(len, tidepool_types::chunk_count(len));
    let encode = |items| encode_reply(1, &Reply::RangeBytes(RangeBytes { first: 0, items }), &mut Vec::new());
    assert_eq!(encode(vec![whole(MAX_BLOCK_LEN), RangeOutcome::Miss]), Ok(()));
    assert_eq!(encode(vec![whole(MAX_BATCH_PAYLOAD), whole(1)]), Err(FrameError::BatchPayload(MAX_BATCH_PAYLOAD + 1)));
    let decoded = |hit| {
        let frame = samples::reply_frame(&Reply::RangeBytes(RangeBytes { first: 0, items: vec![hit] }));
        let (header, body) = samples::split(&frame);
        decode_reply(&header, body).map(drop)
    };
    assert_eq!(decoded(hit(200_000, 2)), Ok(()));
    assert_eq!(decoded(hit(200_000, 3)), Err(FrameError::Checksums { found: 3, len: 200_000 }));
    assert_eq!(decoded(hit(0, 0)), Err(FrameError::Piece { offset: 0, len: 0 }));
}

#[test]
fn the_key_of_a_range_stays_out_of_logs() {
    let name = RangeName { range: 11, key: 0x005e_c7e7 };
    assert_eq!(format!("{name:?}"), "RangeName { range: 11, .. }");
}
