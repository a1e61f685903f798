//! Frames put together by hand, right checksum and all, around bodies that the encoder would never make.

use tidepool_wire::frame::{HEADER_LEN, MAGIC, VERSION};

/// Header bytes for `body`, with a checksum that fits.
pub(crate) fn header(kind: u8, payload_len: u64, body: &[u8]) -> [u8; HEADER_LEN] {
    let mut covered = Vec::with_capacity(HEADER_LEN + body.len());
    covered.extend_from_slice(&MAGIC);
    covered.extend_from_slice(&[VERSION, kind, 0, 0]);
    covered.extend_from_slice(&7u64.to_le_bytes());
    covered.extend_from_slice(&(body.len() as u32).to_le_bytes());
    covered.extend_from_slice(&payload_len.to_le_bytes());
    covered.extend_from_slice(body);
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &covered) as u32;
    let mut bytes = [0; HEADER_LEN];
    bytes[..HEADER_LEN - 4].copy_from_slice(&covered[..HEADER_LEN - 4]);
    bytes[HEADER_LEN - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
