//! What other releases say to a node: another version is refused, what is new in this version costs no connection.

mod common;

use common::start;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use tidepool_testing::{annotated_hex, eventually};
use tidepool_types::ClientId;
use tidepool_wire::frame::{HEADER_LEN, Header, RequestKind, decode_reply, encode_request};
use tidepool_wire::message::{Hello, Reason, Refusal, Reply, Request};

/// CRC-32C bit by bit, as the protocol document has it.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// A frame put together by hand.
fn frame(kind: u8, number: u64, body: &[u8], payload: &[u8]) -> Vec<u8> {
    let lens = [&(body.len() as u32).to_le_bytes()[..], &(payload.len() as u64).to_le_bytes()].concat();
    let header = [b"TDP1", &[2, kind, 0, 0][..], &number.to_le_bytes(), &lens].concat();
    let checksum = crc32c(&[&header[..], body].concat()).to_le_bytes();
    [&header[..], &checksum, body, payload].concat()
}

/// A tail field, its tag marked critical or not.
fn field(tag: u16) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &3u32.to_le_bytes(), b"new"].concat()
}

fn dial(node: &common::TestNode) -> TcpStream {
    let stream = TcpStream::connect(node.node.data_address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn reply(stream: &mut TcpStream) -> (u64, Reply) {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).unwrap();
    let header = Header::parse(&header).unwrap();
    let mut body = vec![0; header.body_len as usize];
    stream.read_exact(&mut body).unwrap();
    (header.number, decode_reply(&header, &body).unwrap())
}

/// The answer is read as a client of version 1 reads it: by what is the same in all versions.
#[test]
fn version_1_is_refused_with_both_versions_named() {
    let node = start("old-client");
    let mut stream = dial(&node);
    stream.write_all(&annotated_hex(include_str!("../../wire/tests/golden/v1/hello.hex"))).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (header, body) = answer.split_at(HEADER_LEN);
    assert_eq!(&header[..8], b"TDP1\x02\x80\0\0", "magic, version, Refused, no flags");
    let covered = [&header[..28], body].concat();
    assert_eq!(header[16..20], (body.len() as u32).to_le_bytes());
    assert_eq!(header[28..], crc32c(&covered).to_le_bytes());
    assert_eq!(body[0], Reason::Version as u8);
    assert_eq!(body[1..5], (body.len() as u32 - 5).to_le_bytes(), "the body ends with its text");
    let text = std::str::from_utf8(&body[5..]).unwrap();
    assert_eq!(text, "frame of protocol version 1: this side speaks version 2");
    eventually("it is counted", || node.metric("tidepool_node_malformed_total") == 1);
}

#[test]
fn what_later_releases_add_costs_no_connection() {
    let node = start("new-client");
    let mut stream = dial(&node);
    let mut hello = Vec::new();
    encode_request(1, &Request::Hello(Hello { client: ClientId(1), wants_memory: false }), 0, &mut hello).unwrap();
    let body = [&hello[HEADER_LEN..], &field(0x7fff)].concat();
    stream.write_all(&frame(RequestKind::Hello as u8, 1, &body, b"")).unwrap();
    let (1, Reply::Welcome(welcome)) = reply(&mut stream) else { panic!("a field that is not known is skipped") };
    assert_eq!(welcome.build, env!("CARGO_PKG_VERSION"));
    let refused = |(number, reply): (u64, Reply)| match reply {
        Reply::Refused(Refusal { reason, message }) => (number, reason, message),
        other => panic!("{other:?}"),
    };
    stream.write_all(&frame(0x7f, 2, b"a new message", &[7; 100_000])).unwrap();
    let message = "message kind 0x7f: this side speaks version 2 and knows no such message";
    assert_eq!(refused(reply(&mut stream)), (2, Reason::Version, message.to_owned()));
    stream.write_all(&frame(RequestKind::Stat as u8, 3, &field(0x8000 | 77), b"")).unwrap();
    let message = "field 77 in the tail of Request(Stat) is critical: this side speaks version 2 and does not know it";
    assert_eq!(refused(reply(&mut stream)), (3, Reason::Version, message.to_owned()));
    stream.write_all(&frame(RequestKind::Stat as u8, 4, &field(77), b"")).unwrap();
    assert!(matches!(reply(&mut stream), (4, Reply::Stat(_))), "the connection goes on");
}
