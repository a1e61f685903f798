//! Every allowed message is read back as it was written, also when frames follow each other in one buffer.

#[path = "common/strategies.rs"]
mod strategies;

use proptest::prelude::*;
use tidepool_wire::frame::{HEADER_LEN, Header, decode_reply, decode_request, encode_reply, encode_request};
use tidepool_wire::message::Request;

fn has_payload(request: &Request) -> bool {
    matches!(request, Request::Write(_) | Request::Fill(_) | Request::WriteRange(_))
}

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
            let payload_len = if has_payload(request) { 10 } else { 0 };
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

/// A batch whose reply did not fit a frame failed as a whole, and the node was taken for dead. Clients cut batches at these
/// bounds, at which the longest items fit, both ways.
#[test]
fn the_largest_batches_fit_a_frame_both_ways() {
    use tidepool_types::{BlockId, CopyName, Epoch, Generation, MAX_KEY_LEN, Millis, Origin, SessionId};
    use tidepool_wire::frame::{encode_reply, encode_request};
    use tidepool_wire::message::{
        BATCH_IDS, BATCH_KEYS, Found, Ids, Offer, Pull, PullIds, PullOutcome, Reply, Request, Reserve, ReserveItem,
        ReserveOutcome, Run, Seal, SealItem, SealOutcome, SlotName, ViewOutcome,
    };
    let copy = CopyName { epoch: Epoch(u64::MAX), generation: Generation(u64::MAX) };
    let slot = SlotName { slot: u32::MAX, generation: Generation(u64::MAX) };
    let (ids, key) = (vec![BlockId::from_bytes([255; 16]); BATCH_IDS], vec![255; MAX_KEY_LEN]);
    // A run for each item.
    let origin = Origin {
        session: SessionId(u64::MAX),
        parent: None,
        turn: u32::MAX,
        pause: Millis(u64::MAX),
        calls: None,
        last: true,
    };
    let runs = |items| vec![Run { items: 1, depth: u32::MAX, origin: Some(origin) }; items];
    let asked = Ids { ids: ids.clone(), runs: runs(BATCH_IDS) };
    // The longest block, and one chunk for each of the others.
    let seal = |n| SealItem { slot, checksums: vec![u32::MAX; if n == 0 { 8192 } else { 1 }].into() };
    let requests = [
        Request::Confirm(asked.clone()),
        Request::View(asked),
        Request::Remove(ids.clone()),
        Request::Reserve(Reserve {
            wait_millis: u32::MAX,
            mapped: true,
            items: vec![ReserveItem { key: key.clone(), len: 1 << 30 }; BATCH_KEYS],
            runs: runs(BATCH_KEYS),
        }),
        Request::Seal(Seal { wait_millis: u32::MAX, items: (0..BATCH_KEYS).map(seal).collect() }),
        Request::Pull(Pull {
            wait_millis: u32::MAX,
            source: "h".repeat(1024),
            epoch: Epoch(u64::MAX),
            remove_source: true,
            keys: vec![key.clone(); BATCH_KEYS],
        }),
        Request::PullIds(PullIds {
            wait_millis: u32::MAX,
            source: "h".repeat(1024),
            epoch: Epoch(u64::MAX),
            remove_source: true,
            ids: ids.clone(),
        }),
        Request::Offer(Offer { node: "n".repeat(64), ids: ids.clone(), keys_wanted: true }),
    ];
    let replies = [
        Reply::Found(vec![Some((copy, 1 << 30)); BATCH_IDS].into()),
        Reply::Found(Found { copies: vec![Some((copy, 1 << 30)); BATCH_KEYS], keys: vec![key; BATCH_KEYS] }),
        Reply::Views(vec![ViewOutcome::Pinned { slot, offset: u64::MAX, len: 1 << 30 }; BATCH_IDS]),
        Reply::Removed(vec![true; BATCH_IDS]),
        Reply::Reserved(vec![ReserveOutcome::Taken { slot, offset: u64::MAX }; BATCH_KEYS]),
        Reply::Sealed(vec![SealOutcome::Sealed(copy); BATCH_KEYS]),
        Reply::Pulled(vec![PullOutcome::Unavailable; BATCH_KEYS]),
    ];
    for request in &requests {
        encode_request(1, request, 0, &mut Vec::new()).unwrap();
    }
    for reply in &replies {
        encode_reply(1, reply, &mut Vec::new()).unwrap();
    }
}
