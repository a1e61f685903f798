//! The fixed part of every frame, and the checks that come before any memory is taken for the rest.

use super::{FrameError, Kind, ReplyKind, RequestKind};
use tidepool_types::MAX_BLOCK_LEN;

/// Bytes of a header.
pub const HEADER_LEN: usize = 32;
/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"TDP1";
/// The protocol version of this crate.
pub const VERSION: u8 = 2;
/// How messages name the version.
pub(super) const SPOKEN: &str = "version 2";
/// The most bytes of a body.
pub const MAX_BODY: u32 = 16 << 20;
/// The most payload bytes of a reply with more than one hit; a single hit may be [`MAX_BLOCK_LEN`] bytes.
pub const MAX_BATCH_PAYLOAD: u64 = 64 << 20;

/// Bytes of a header that its checksum covers: all but the checksum, which comes last.
const COVERED: usize = HEADER_LEN - 4;

/// A header whose fields are known to be in bounds. Its checksum covers the body too and is verified by
/// [`super::decode_request`] and [`super::decode_reply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the body holds.
    pub kind: Kind,
    /// Chosen by the client for each request; a reply carries the number of its request.
    pub number: u64,
    /// Bytes of the body, which follows the header; at most [`MAX_BODY`].
    pub body_len: u32,
    /// Bytes of the payload, which follows the body; at most [`MAX_BLOCK_LEN`].
    pub payload_len: u64,
    /// CRC-32C of the header's other bytes and of the body.
    pub checksum: u32,
}

impl Header {
    /// Reads a header and checks every field that can be checked without the body.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, version, kind, f0, f1, ..] = *bytes;
        check_preamble([m0, m1, m2, m3], version)?;
        let header = Self {
            kind: Kind::from_code(kind),
            number: u64::from_le_bytes(array_at(bytes, 8)),
            body_len: u32::from_le_bytes(array_at(bytes, 16)),
            payload_len: u64::from_le_bytes(array_at(bytes, 20)),
            checksum: u32::from_le_bytes(array_at(bytes, 28)),
        };
        match u16::from_le_bytes([f0, f1]) {
            0 => header.check_lengths().map(|()| header),
            flags => Err(FrameError::Flags(flags)),
        }
    }

    /// A header for a body that is about to be sent.
    pub(super) fn seal(kind: Kind, number: u64, body: &[u8], payload_len: u64) -> Result<Self, FrameError> {
        let body_len = u32::try_from(body.len()).map_err(|_| FrameError::BodyLength(body.len() as u64))?;
        let mut header = Self { kind, number, body_len, payload_len, checksum: 0 };
        header.check_lengths()?;
        header.checksum = header.expected_checksum(body);
        Ok(header)
    }

    /// Checks that `body` is the one that the header announced, unchanged.
    pub(super) fn verify(&self, body: &[u8]) -> Result<(), FrameError> {
        if body.len() != self.body_len as usize {
            return Err(FrameError::BodyMismatch { expected: self.body_len, found: body.len() });
        }
        let (found, expected) = (self.checksum, self.expected_checksum(body));
        if found == expected { Ok(()) } else { Err(FrameError::Checksum { found, expected }) }
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind.code();
        // Bytes 6 and 7 are the flags: none yet.
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    fn expected_checksum(&self, body: &[u8]) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.to_bytes()[..COVERED]);
        digest.update(body);
        digest.finalize() as u32
    }

    fn check_lengths(&self) -> Result<(), FrameError> {
        if self.body_len > MAX_BODY {
            return Err(FrameError::BodyLength(u64::from(self.body_len)));
        }
        let (kind, len) = (self.kind, self.payload_len);
        let (least, most) = match kind {
            Kind::Request(RequestKind::Write | RequestKind::Fill | RequestKind::WriteRange) => (1, MAX_BLOCK_LEN),
            Kind::Reply(ReplyKind::Blocks | ReplyKind::RangeBytes) | Kind::Unknown(_) => (0, MAX_BLOCK_LEN),
            Kind::Request(_) | Kind::Reply(_) => (0, 0),
        };
        match (least..=most).contains(&len) {
            true => Ok(()),
            false => Err(FrameError::PayloadLength { kind, len, least, most }),
        }
    }
}

fn check_preamble(magic: [u8; 4], version: u8) -> Result<(), FrameError> {
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    if version == VERSION { Ok(()) } else { Err(FrameError::Version(version)) }
}

fn array_at<const N: usize>(bytes: &[u8; HEADER_LEN], start: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[start + i])
}
