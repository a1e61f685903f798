//! What the transfer layer is asked to do and what it answers.

use crate::door::{DevicePiece, Door};
use std::sync::Arc;
use tidepool_types::{BlockId, ClientId, CopyName, UsedFor};
use tidepool_wire::checksum::Sums;
use tidepool_wire::message::{RangeName, SlotName};

/// A caller's memory: a place to read into or to write from. Whoever makes one promises that the memory stays valid,
/// and for a destination unshared, until the operation's completion has been polled.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// First byte.
    pub start: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// The memory of one operation, in order: one region in the common case, several for scatter-gather.
#[derive(Debug, Clone)]
pub enum Regions {
    /// All bytes in one place.
    One(Region),
    /// Bytes over several places, in order.
    Many(Vec<Region>),
}

/// Pieces of a device's memory, and the door to it. Whoever makes one promises of the pieces what [`Region`] asks of a
/// destination.
#[derive(Debug, Clone)]
pub struct DevicePlace {
    /// The device's door.
    pub door: Arc<dyn Door>,
    /// Where the bytes go, in order.
    pub pieces: Vec<DevicePiece>,
}

impl DevicePlace {
    /// Bytes of all pieces together.
    #[must_use]
    pub fn total(&self) -> u64 {
        crate::door::total(&self.pieces)
    }
}

/// Where read bytes go.
#[derive(Debug, Clone)]
pub enum Destination {
    /// Into the caller's memory; a block longer than it fails with [`Failure::TooSmall`].
    Into(Regions),
    /// Into memory that the transport allocates once the length is known.
    Allocate,
    /// Into a device's memory, which is exactly as long as the block. Only a transport through mapped memory can; with
    /// others the read fails with [`Failure::Unavailable`].
    Device(Box<DevicePlace>),
}

/// Reads a range of one block.
#[derive(Debug)]
pub struct ReadOp {
    /// The caller's name for the operation; its completion carries it.
    pub token: u64,
    /// The block.
    pub id: BlockId,
    /// The copy that an earlier answer named, when this read continues it.
    pub copy: Option<CopyName>,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted, or all up to the block's end.
    pub len: Option<u64>,
    /// Where they go.
    pub destination: Destination,
    /// What is known of the use that the read is.
    pub used: Option<Box<UsedFor>>,
    /// Whether the completion of a whole block is to bring its checksums.
    pub wants_checksums: bool,
}

impl ReadOp {
    /// Reads all of a block, of whichever copy.
    #[must_use]
    pub fn whole(token: u64, id: BlockId, destination: Destination) -> Self {
        Self { token, id, copy: None, offset: 0, len: None, destination, used: None, wants_checksums: false }
    }
}

/// Fills one reservation and makes its checksums.
#[derive(Debug)]
pub struct WriteOp {
    /// The caller's name for the operation; its completion carries it.
    pub token: u64,
    /// The block, which seeds the checksums.
    pub id: BlockId,
    /// The reservation.
    pub slot: SlotName,
    /// Where the reservation lies in the node's slab. A transport through mapped memory writes there, and checks no more
    /// than that it is in the slab: the caller sees to it that the reservation is its own, open, and as long as `source`.
    pub slab_offset: u64,
    /// The bytes: all of the block.
    pub source: Regions,
}

/// Reads a piece of a registered range.
#[derive(Debug)]
pub struct ReadRangeOp {
    /// The caller's name for the operation; its completion carries it.
    pub token: u64,
    /// The range.
    pub range: RangeName,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted: 1 to 4 GiB.
    pub len: u64,
    /// Where they go.
    pub destination: Destination,
}

/// Writes a piece of a registered range. One that fails may have changed the piece, and may change it until its owner has
/// noticed the end of the connection that carried it.
#[derive(Debug)]
pub struct WriteRangeOp {
    /// The caller's name for the operation; its completion carries it.
    pub token: u64,
    /// The range.
    pub range: RangeName,
    /// Where the bytes go in it.
    pub offset: u64,
    /// The bytes: 1 to 4 GiB.
    pub source: Regions,
}

/// One operation.
#[derive(Debug)]
pub enum Op {
    /// Read a block.
    Read(ReadOp),
    /// Fill a reservation.
    Write(WriteOp),
    /// Read a registered range. A transport through mapped memory reaches none.
    ReadRange(ReadRangeOp),
    /// Write a registered range. A transport through mapped memory reaches none.
    WriteRange(WriteRangeOp),
}

impl Op {
    /// The operation's token.
    #[must_use]
    pub fn token(&self) -> u64 {
        match self {
            Self::Read(ReadOp { token, .. })
            | Self::Write(WriteOp { token, .. })
            | Self::ReadRange(ReadRangeOp { token, .. })
            | Self::WriteRange(WriteRangeOp { token, .. }) => *token,
        }
    }
}

/// Why an operation did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The transport has as many bytes in flight as it may: poll first.
    Full,
    /// The transport is closed: its peer is gone.
    Closed,
}

/// A finished operation. Whatever the outcome, the transport has let go of the operation's memory.
#[derive(Debug)]
pub struct Completion {
    /// The operation's token.
    pub token: u64,
    /// What became of it.
    pub outcome: Result<Done, Failure>,
}

/// A success: the bytes are where they were asked to go.
#[derive(Debug)]
pub enum Done {
    /// A read.
    Read {
        /// The copy that was read.
        copy: CopyName,
        /// Its slot, when the transport knows it (shared memory), so that the owner can be told of the use.
        slot: Option<SlotName>,
        /// Who wrote the block.
        writer: ClientId,
        /// The whole block's length.
        block_len: u64,
        /// Bytes delivered.
        bytes: u64,
        /// The bytes, when the transport allocated the memory.
        data: Option<Vec<u8>>,
        /// One checksum for each chunk of a whole block, verified on arrival; `None` where they were not wanted, the transport did
        /// not verify, or only a part was read.
        checksums: Option<Box<Sums>>,
    },
    /// A write, with the checksums to seal it with.
    Written {
        /// One checksum per chunk.
        checksums: Sums,
    },
    /// A read of a range.
    RangeRead {
        /// The bytes, when the transport allocated the memory.
        data: Option<Vec<u8>>,
    },
    /// A write of a range: its bytes are in place.
    RangeWritten,
}

/// Why an operation failed. The caller tries another replica or reports a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer does not hold the block, or not that copy of it, or has no such range.
    Miss,
    /// The slot was reused while it was being read: the caller looks once more.
    LostRace,
    /// The bytes of this copy did not match their checksum. A transport with a connection has told the owner. A transport
    /// through mapped memory has none: its caller tells the owner.
    Corrupt(CopyName),
    /// The destination is shorter than the block, or a device's is not exactly as long.
    TooSmall {
        /// The block's length.
        block_len: u64,
    },
    /// The bytes asked for do not lie in the block, or in the registered range.
    BadRange {
        /// The length of either.
        block_len: u64,
    },
    /// Bytes of a registered range did not match their checksum: they changed under the read, or on their way.
    Torn,
    /// The peer went away, refused or broke the protocol.
    Unavailable,
    /// The deadline passed.
    TimedOut,
    /// The operation was cancelled.
    Cancelled,
}

// SAFETY: a region is only an address; whoever made it promised that the memory may be used from any thread until the
// operation completes.
unsafe impl Send for Region {}
