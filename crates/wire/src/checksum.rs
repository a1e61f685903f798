//! Checksums of blocks: CRC-32C per chunk of [`CHUNK_LEN`] bytes, started from a seed.
//!
//! The seed is made from the block's id, its length and the chunk's number, so the right bytes of the wrong block, the wrong
//! chunk or a block of another length do not pass. A range that covers a chunk only in part has a checksum of its own,
//! seeded also with the part's place and length, so it never stands in for the whole chunk. Two different seeds give
//! different checksums of the same bytes, always: a CRC maps its starting value one to one. Chunks of one block have
//! different seeds, always; seeds of different blocks are equal with a chance of 1 in 2^32.
//!
//! A piece of a registered range is summed as a block of its own, with a seed made from the range's name, the piece's place and
//! its length.
//!
//! CRC-32C by measurement: with wide folding it runs as fast as CRC-64/NVME and at twice the speed of XXH3 on bytes in the
//! cache, where both ends sum them (`cargo run --release -p tidepool-wire --example checksum_speed`).
//!
//! ```
//! use tidepool_types::{BlockId, Key, TenantSecret};
//! use tidepool_wire::checksum::BlockChecksum;
//!
//! let id = BlockId::derive(&TenantSecret::DEFAULT, Key::new(b"key")?);
//! let bytes = vec![7; 300_000];
//! let block = BlockChecksum::new(id, 300_000);
//! let sums = block.range(0, &bytes);
//! assert_eq!(sums.len(), 3);
//! assert!(block.verify(0, &bytes, &sums).is_ok());
//! # Ok::<(), tidepool_types::InvalidInput>(())
//! ```

use crate::message::RangeName;
use crc_fast::{CrcAlgorithm, Digest};
use smallvec::SmallVec;
use std::iter::FusedIterator;
use thiserror::Error;
use tidepool_types::{BlockId, CHUNK_LEN, chunk_count, mix};

/// The checksums of a range. Those of a small block need no memory of their own: a batch of 512 blocks of 4 KiB made a
/// thousand allocations on either side without this.
pub type Sums = SmallVec<[u32; 4]>;

/// The chunks of one block, or of one piece of a registered range, to be summed or verified.
#[derive(Debug, Clone, Copy)]
pub struct BlockChecksum {
    len: u64,
    seed: u64,
}

/// Bytes that do not match their checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// A chunk's bytes give another checksum.
    #[error("chunk {0} of the block does not match its checksum")]
    Chunk(u64),
    /// The number of checksums is not the number of chunks that the range touches.
    #[error("{found} checksums for a range that touches {expected} chunks")]
    Count {
        /// Checksums given.
        found: u64,
        /// Chunks touched.
        expected: u64,
    },
}

impl BlockChecksum {
    /// The checksums of block `id` of `len` bytes.
    #[must_use]
    pub fn new(id: BlockId, len: u64) -> Self {
        let [low, high] = id.words();
        Self { len, seed: mix(mix(mix(len) ^ low) ^ high) }
    }

    /// The checksums of the `len` bytes at `offset` of a registered range. Chunks, and offsets in the calls below, count from the
    /// start of the piece: a piece has the checksums of a block that is just it.
    #[must_use]
    pub fn of_range(name: RangeName, offset: u64, len: u64) -> Self {
        Self { len, seed: mix(mix(mix(mix(len) ^ name.range) ^ name.key) ^ offset) }
    }

    /// The checksum of a whole chunk.
    #[must_use]
    pub fn chunk(&self, index: u64, bytes: &[u8]) -> u32 {
        self.start_chunk(index).over(bytes)
    }

    /// The checksum of the part of a chunk that starts at `offset` in it: for a range's ragged ends.
    #[must_use]
    pub fn part(&self, index: u64, offset: u64, bytes: &[u8]) -> u32 {
        self.start_part(index, offset, bytes.len() as u64).over(bytes)
    }

    /// Starts the checksum of a whole chunk whose bytes arrive in pieces.
    #[must_use]
    pub fn start_chunk(&self, index: u64) -> Running {
        // An odd factor keeps the seeds of one block's chunks apart: the product repeats only after 2^32 chunks.
        Running::new((self.seed as u32).wrapping_add((index as u32).wrapping_mul(0x9e37_79b1)))
    }

    /// Starts the checksum of `len` bytes at `offset` in a chunk, arriving in pieces.
    #[must_use]
    pub fn start_part(&self, index: u64, offset: u64, len: u64) -> Running {
        let place = index << 40 | offset << 20 | len;
        Running::new((mix(self.seed ^ mix(place)) >> 32) as u32)
    }

    /// Starts the checksum of a piece: as a whole chunk if it is one, else as a part.
    #[must_use]
    pub fn start(&self, piece: &Piece) -> Running {
        match piece.whole {
            true => self.start_chunk(piece.chunk),
            false => self.start_part(piece.chunk, piece.offset, piece.len),
        }
    }

    /// The pieces that a range is summed in: one per chunk that it touches, in order. What lies past the block's end is
    /// left out.
    #[must_use]
    pub fn pieces(&self, offset: u64, len: u64) -> Pieces {
        Pieces { block_len: self.len, next: offset, end: offset.saturating_add(len).min(self.len) }
    }

    /// One checksum per chunk that the range `offset..offset + bytes.len()` touches.
    #[must_use]
    pub fn range(&self, offset: u64, bytes: &[u8]) -> Sums {
        let mut rest = bytes;
        let sum = |piece: Piece| self.start(&piece).over(rest.split_off(..piece.len as usize).unwrap_or_default());
        self.pieces(offset, bytes.len() as u64).map(sum).collect()
    }

    /// Starts the checksums of a range whose bytes arrive in pieces of any length.
    #[must_use]
    pub fn start_range(&self, offset: u64, len: u64) -> RunningRange {
        let chunks = chunk_count(len.min(self.len)) as usize + 1;
        let mut range = RunningRange {
            block: *self,
            pieces: self.pieces(offset, len),
            current: None,
            sums: Sums::with_capacity(chunks),
            surplus: false,
        };
        range.advance();
        range
    }

    /// Checks the bytes of a range against the checksums of the chunks that it touches.
    pub fn verify(&self, offset: u64, bytes: &[u8], checksums: &[u32]) -> Result<(), Mismatch> {
        let pieces = self.pieces(offset, bytes.len() as u64);
        if pieces.len() != checksums.len() {
            return Err(Mismatch::Count { found: checksums.len() as u64, expected: pieces.len() as u64 });
        }
        let mut rest = bytes;
        for (piece, checksum) in pieces.zip(checksums) {
            let bytes = rest.split_off(..piece.len as usize).unwrap_or_default();
            if self.start(&piece).over(bytes) != *checksum {
                return Err(Mismatch::Chunk(piece.chunk));
            }
        }
        Ok(())
    }
}

/// The part of a range that lies in one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The chunk's number in its block.
    pub chunk: u64,
    /// Where the piece starts in the chunk.
    pub offset: u64,
    /// Bytes of the piece.
    pub len: u64,
    /// Whether the piece is all of the chunk (a block's last chunk may be short).
    pub whole: bool,
}

/// The pieces of a range; made by [`BlockChecksum::pieces`].
#[derive(Debug, Clone)]
pub struct Pieces {
    block_len: u64,
    next: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.next >= self.end {
            return None;
        }
        let chunk = self.next / CHUNK_LEN;
        let start = chunk * CHUNK_LEN;
        let chunk_end = (start + CHUNK_LEN).min(self.block_len);
        let end = chunk_end.min(self.end);
        let whole = self.next == start && end == chunk_end;
        let piece = Piece { chunk, offset: self.next - start, len: end - self.next, whole };
        self.next = end;
        Some(piece)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self.next < self.end {
            true => self.end.div_ceil(CHUNK_LEN) - self.next / CHUNK_LEN,
            false => 0,
        };
        (left as usize, Some(left as usize))
    }
}

impl ExactSizeIterator for Pieces {}
impl FusedIterator for Pieces {}

/// A checksum under way.
#[derive(Debug, Clone)]
pub struct Running(Digest);

impl Running {
    fn new(seed: u32) -> Self {
        Self(Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed)))
    }

    fn over(mut self, bytes: &[u8]) -> u32 {
        self.update(bytes);
        self.finish()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes added.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finalize() as u32
    }

    /// The CRC's register after all bytes added: for code that sums bytes while it moves them.
    #[must_use]
    pub fn register(&self) -> u32 {
        self.0.get_state() as u32
    }

    /// Starts again from bytes that leave a register of zero as all bytes added, and those moved since, leave it.
    pub fn restart_from(&mut self, folded: &[u8]) {
        *self = Self::new(0);
        self.update(folded);
    }
}

/// The checksums of a range under way; made by [`BlockChecksum::start_range`].
#[derive(Debug, Clone)]
pub struct RunningRange {
    block: BlockChecksum,
    pieces: Pieces,
    /// The piece being summed and the bytes it still lacks.
    current: Option<(Running, usize)>,
    sums: Sums,
    surplus: bool,
}

impl RunningRange {
    /// Adds the next bytes of the range.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((running, lacks)) = &mut self.current else {
                self.surplus = true;
                return;
            };
            let (head, rest) = bytes.split_at(bytes.len().min(*lacks));
            running.update(head);
            *lacks -= head.len();
            bytes = rest;
            if *lacks == 0 {
                self.advance();
            }
        }
    }

    /// One checksum per chunk, or `None` if not exactly the range's bytes were added.
    #[must_use]
    pub fn finish(self) -> Option<Sums> {
        (self.current.is_none() && !self.surplus).then_some(self.sums)
    }

    /// Ends the current piece, if there is one, and starts the next.
    fn advance(&mut self) {
        if let Some((running, _)) = self.current.take() {
            self.sums.push(running.finish());
        }
        self.current = self.pieces.next().map(|piece| (self.block.start(&piece), piece.len as usize));
    }
}
