//! The bytes of version 2 are frozen: each fixture holds one frame, and each message still makes and reads exactly it.
//!
//! A fixture is hexadecimal bytes with a comment per field. It is never edited; a new message or field gets a new one.

#[path = "common/samples.rs"]
mod samples;

use std::{fs, path::Path};
use tidepool_testing::annotated_hex;
use tidepool_wire::frame::{FrameError, Header, ReplyKind, RequestKind, decode_reply, decode_request};
use tidepool_wire::message::Reason;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn fixture(name: &str) -> Vec<u8> {
    let path = golden().join(format!("{name}.hex"));
    annotated_hex(&fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

#[test]
fn every_request_has_its_frozen_bytes() {
    for (name, request) in samples::requests() {
        let frame = samples::request_frame(&request);
        assert_eq!(hex(&frame), hex(&fixture(&format!("v2/{name}"))), "{name}");
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        assert_eq!(decode_request(&header, body).as_ref(), Ok(&request), "{name}");
    }
}

#[test]
fn every_reply_has_its_frozen_bytes() {
    for (name, reply) in samples::replies() {
        let frame = samples::reply_frame(&reply);
        assert_eq!(hex(&frame), hex(&fixture(&format!("v2/{name}"))), "{name}");
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        assert_eq!(decode_reply(&header, body).as_ref(), Ok(&reply), "{name}");
    }
}

#[test]
fn every_kind_has_a_fixture_and_every_fixture_a_sample() {
    let mut requests: Vec<_> = samples::requests().iter().map(|(_, request)| request.kind() as u8).collect();
    let mut replies: Vec<_> = samples::replies().iter().map(|(_, reply)| reply.kind() as u8).collect();
    let fixtures = fs::read_dir(golden().join("v2")).expect("a directory of fixtures").count();
    assert_eq!(fixtures, requests.len() + replies.len());
    // Cases and tail fields have fixtures of their own, beside their kind's.
    for kinds in [&mut requests, &mut replies] {
        kinds.sort_unstable();
        kinds.dedup();
    }
    assert_eq!(requests, RequestKind::ALL.iter().map(|kind| *kind as u8).collect::<Vec<_>>());
    assert_eq!(replies, ReplyKind::ALL.iter().map(|kind| *kind as u8).collect::<Vec<_>>());
}

#[test]
fn the_hello_of_version_1_is_refused_with_both_versions_named() {
    let frame = fixture("v1/hello");
    let (header, _) = frame.split_first_chunk().expect("a whole header");
    let error = Header::parse(header).expect_err("version 1");
    assert_eq!((error.clone(), error.reason()), (FrameError::Version(1), Reason::Version));
    assert_eq!(error.to_string(), "frame of protocol version 1: this side speaks version 2");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
