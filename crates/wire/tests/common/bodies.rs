//! The samples as bodies, and bodies read and written again.

use crate::samples;
use tidepool_wire::frame::{
    FrameError, HEADER_LEN, Header, decode_reply, decode_request, encode_reply, encode_request,
};

/// Every sample as (kind, payload length, body).
pub(crate) fn all() -> Vec<(u8, u64, Vec<u8>)> {
    let requests = samples::requests().into_iter().map(|(_, request)| samples::request_frame(&request));
    let replies = samples::replies().into_iter().map(|(_, reply)| samples::reply_frame(&reply));
    let apart = |frame: Vec<u8>| {
        let (header, body) = samples::split(&frame);
        assert_eq!(header.number, samples::NUMBER);
        (header.kind.code(), header.payload_len, body.to_vec())
    };
    requests.chain(replies).map(apart).collect()
}

/// Reads a body and writes its message again: the same bytes, but for fields that were skipped.
pub(crate) fn respelled(header: &Header, body: &[u8]) -> Result<Vec<u8>, FrameError> {
    let mut frame = Vec::new();
    match header.kind.is_reply() {
        true => encode_reply(header.number, &decode_reply(header, body)?, &mut frame)?,
        false => encode_request(header.number, &decode_request(header, body)?, header.payload_len, &mut frame)?,
    }
    Ok(frame.split_off(HEADER_LEN))
}
