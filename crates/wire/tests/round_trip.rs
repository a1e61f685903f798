//! Every allowed message is read back as it was written, also when frames follow each other in one buffer.

#[path = "common/strategies.rs"]
mod strategies;

use proptest::prelude::*;
use tidepool_wire::frame::{HEADER_LEN, Header, decode_reply, decode_request, encode_reply, encode_request};
use tidepool_wire::message::Request;

/// Takes the frame at the start of `stream`.
fn next<'a>(stream: &mut &'a [u8]) -> (Header, &'a [u8]) {
    let (header, rest) = stream.split_first_chunk::<HEADER_LEN>().expect("a whole header");
    let header = Header::parse(header).expect("a good header");
    let (body, rest) = rest.split_at(header.body_len as usize);
    *stream = rest;
    (header, body)
}

proptest! {
    #[test]
    fn requests_survive_the_wire(requests in prop::collection::vec((any::<u64>(), strategies::request()), 1..4)) {
        let mut stream = Vec::new();
        for (number, request) in &requests {
            let payload_len = if matches!(request, Request::Write(_)) { 10 } else { 0 };
            encode_request(*number, request, payload_len, &mut stream).expect("encodes");
        }
        let mut stream = &stream[..];
        for (number, request) in requests {
            let (header, body) = next(&mut stream);
            prop_assert_eq!(header.number, number);
            prop_assert_eq!(decode_request(&header, body), Ok(request));
        }
        prop_assert!(stream.is_empty());
    }

    #[test]
    fn replies_survive_the_wire(replies in prop::collection::vec((any::<u64>(), strategies::reply()), 1..4)) {
        let mut stream = Vec::new();
        for (number, reply) in &replies {
            encode_reply(*number, reply, &mut stream).expect("encodes");
        }
        let mut stream = &stream[..];
        for (number, reply) in replies {
            let (header, body) = next(&mut stream);
            prop_assert_eq!(header.number, number);
            prop_assert_eq!(decode_reply(&header, body), Ok(reply));
        }
        prop_assert!(stream.is_empty());
    }
}
