//! The bytes of version 1 are frozen: each fixture holds one frame, and each message still makes and reads exactly it.
//!
//! A fixture is hexadecimal bytes with a comment per field. It is never edited; a new message gets a new one.

#[path = "common/samples.rs"]
mod samples;

use std::{fs, path::Path};
use tidepool_wire::frame::{ReplyKind, RequestKind, decode_reply, decode_request};

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.hex"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: String =
        text.lines().filter_map(|line| line.split('#').next()).flat_map(str::split_whitespace).collect();
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("two hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[test]
fn every_request_has_its_frozen_bytes() {
    for (name, request) in samples::requests() {
        let frame = samples::request_frame(&request);
        assert_eq!(hex(&frame), hex(&fixture(name)), "{name}");
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        assert_eq!(decode_request(&header, body).as_ref(), Ok(&request), "{name}");
    }
}

#[test]
fn every_reply_has_its_frozen_bytes() {
    for (name, reply) in samples::replies() {
        let frame = samples::reply_frame(&reply);
        assert_eq!(hex(&frame), hex(&fixture(name)), "{name}");
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        assert_eq!(decode_reply(&header, body).as_ref(), Ok(&reply), "{name}");
    }
}

#[test]
fn every_kind_has_a_fixture() {
    let requests: Vec<_> = samples::requests().iter().map(|(_, request)| request.kind()).collect();
    let mut replies: Vec<_> = samples::replies().iter().map(|(_, reply)| reply.kind()).collect();
    // A case that came later has a fixture of its own, beside its kind's.
    replies.dedup();
    assert_eq!(requests, RequestKind::ALL);
    assert_eq!(replies, ReplyKind::ALL);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
