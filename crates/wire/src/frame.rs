//! Frames: how messages lie on a socket. `docs/protocol.md` says it byte by byte.
//!
//! A frame is a header of [`HEADER_LEN`] bytes, a body that holds one message, and for messages such as [`Request::Write`] and
//! [`Reply::Blocks`] a payload. The header's checksum covers header and body; chunk checksums cover the
//! payload. To receive: read a header, [`Header::parse`] it, read `body_len` bytes, decode, then take `payload_len` bytes
//! from the socket to where they belong. Nothing here does I/O.
//!
//! ```
//! use tidepool_wire::frame::{HEADER_LEN, Header, decode_request, encode_request};
//! use tidepool_wire::message::Request;
//!
//! let mut frame = Vec::new();
//! encode_request(7, &Request::Stat, 0, &mut frame)?;
//! let (header, body) = frame.split_first_chunk::<HEADER_LEN>().expect("a frame has a header");
//! let header = Header::parse(header)?;
//! assert_eq!(header.number, 7);
//! assert_eq!(decode_request(&header, body)?, Request::Stat);
//! # Ok::<(), tidepool_wire::frame::FrameError>(())
//! ```

mod error;
mod fields;
mod header;
mod kind;
mod runs;

use crate::message::{Blocks, GetOutcome, RangeBytes, RangeOutcome, Reply, Request};
use tidepool_types::{MAX_BLOCK_LEN, check_range};

pub use error::{FrameError, TailError};
pub use header::{HEADER_LEN, Header, MAGIC, MAX_BATCH_PAYLOAD, MAX_BODY, VERSION};
pub use kind::{Kind, ReplyKind, RequestKind};

/// Appends the header and body of a request to `out`. `payload_len` bytes of payload are to follow: zero but for
/// [`Request::Write`], [`Request::Fill`] and [`Request::WriteRange`]. On an error, `out` is as it was.
pub fn encode_request(number: u64, request: &Request, payload_len: u64, out: &mut Vec<u8>) -> Result<(), FrameError> {
    append(Kind::Request(request.kind()), number, payload_len, out, |out| request.put_body(out))
}

/// Appends the header and body of a reply to `out`. The payload that is to follow is known from the reply: the bytes of
/// the hits of [`Reply::Blocks`] or [`Reply::RangeBytes`], in order. On an error, `out` is as it was.
pub fn encode_reply(number: u64, reply: &Reply, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let payload_len = payload_of(reply)?;
    append(Kind::Reply(reply.kind()), number, payload_len, out, |out| reply.put_body(out))
}

/// Verifies and reads the body of a request.
pub fn decode_request(header: &Header, body: &[u8]) -> Result<Request, FrameError> {
    header.verify(body)?;
    let kind = match header.kind {
        Kind::Request(kind) => kind,
        Kind::Unknown(code) if !header.kind.is_reply() => return Err(FrameError::Kind(code)),
        kind => return Err(FrameError::Direction(kind)),
    };
    let request = Request::take_body(kind, body)?;
    match &request {
        Request::Write(write) => check_range(write.offset, header.payload_len, MAX_BLOCK_LEN)?,
        Request::WriteRange(write) => {
            fields::check_piece(write.offset, header.payload_len)?;
            fields::check_checksums(&write.checksums, header.payload_len)?;
        }
        _ => {}
    }
    Ok(request)
}

/// Verifies and reads the body of a reply.
pub fn decode_reply(header: &Header, body: &[u8]) -> Result<Reply, FrameError> {
    header.verify(body)?;
    let kind = match header.kind {
        Kind::Reply(kind) => kind,
        Kind::Unknown(code) if header.kind.is_reply() => return Err(FrameError::Kind(code)),
        kind => return Err(FrameError::Direction(kind)),
    };
    let reply = Reply::take_body(kind, body)?;
    match payload_of(&reply)? {
        hits if hits == header.payload_len => Ok(reply),
        hits => Err(FrameError::PayloadMismatch { payload: header.payload_len, hits }),
    }
}

impl Blocks {
    /// Bytes of payload that the hits announce together.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        total(self.hit_lens())
    }

    fn hit_lens(&self) -> impl Iterator<Item = u64> {
        self.items.iter().filter_map(|item| match item {
            GetOutcome::Hit(hit) => Some(hit.len),
            _ => None,
        })
    }
}

impl RangeBytes {
    /// Bytes of payload that the hits announce together.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        total(self.hit_lens())
    }

    fn hit_lens(&self) -> impl Iterator<Item = u64> {
        self.items.iter().filter_map(|item| match item {
            RangeOutcome::Hit { len, .. } => Some(*len),
            _ => None,
        })
    }
}

fn total(lens: impl Iterator<Item = u64>) -> u64 {
    lens.fold(0, u64::saturating_add)
}

fn payload_of(reply: &Reply) -> Result<u64, FrameError> {
    match reply {
        Reply::Blocks(blocks) => bounded(blocks.payload_len(), blocks.hit_lens()),
        Reply::RangeBytes(bytes) => bounded(bytes.payload_len(), bytes.hit_lens()),
        _ => Ok(0),
    }
}

fn bounded(len: u64, mut hits: impl Iterator<Item = u64>) -> Result<u64, FrameError> {
    match len {
        len if len > MAX_BATCH_PAYLOAD && hits.nth(1).is_some() => Err(FrameError::BatchPayload(len)),
        len => Ok(len),
    }
}

fn append(
    kind: Kind,
    number: u64,
    payload_len: u64,
    out: &mut Vec<u8>,
    put_body: impl FnOnce(&mut Vec<u8>),
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    put_body(out);
    let (place, body) = out[start..].split_at_mut(HEADER_LEN);
    match Header::seal(kind, number, body, payload_len) {
        Ok(header) => place.copy_from_slice(&header.to_bytes()),
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    }
    Ok(())
}
