//! Blocks between a node's slab and a device's memory: the slab is pinned, and the device's driver copies.
//!
//! As with every read of shared memory, a block is looked up, copied and then checked: what was reused under the copy does
//! not count. The checksums of a block that came from a device are made from the slab, after the copy and before the seal.

use crate::mapping::{Found, Mapping};
use std::time::{Duration, Instant};
use tidepool_transfer::copy::{ChecksumsInto, CopyPool, SumJob};
use tidepool_transfer::door::{DevicePiece, Door, Span, Way};
use tidepool_transfer::ops::Region;
use tidepool_types::{BlockId, chunk_count};
use tidepool_wire::checksum::{BlockChecksum, Sums};

/// A block that goes to a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRead<'a> {
    /// The block.
    pub id: BlockId,
    /// Where it goes: all of it, in order.
    pub into: &'a [DevicePiece],
}

/// A reservation that is filled by a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceWrite<'a> {
    /// The block, which seeds the checksums.
    pub id: BlockId,
    /// Where the reservation lies in the slab.
    pub slab_offset: u64,
    /// Where the bytes are: all of the block, in order.
    pub from: &'a [DevicePiece],
}

/// What became of a read.
#[derive(Debug, Clone, Copy)]
pub enum DeviceOutcome {
    /// The block is where it was to go.
    There(Found),
    /// The node does not hold it, or not in that length, or its memory cannot be pinned.
    Not,
    /// Its slot was reused under the copy.
    LostRace,
    /// The driver failed.
    Failed,
}

/// Bytes of all pieces.
#[must_use]
pub fn device_len(pieces: &[DevicePiece]) -> u64 {
    pieces.iter().map(|piece| piece.len as u64).sum()
}

impl Mapping {
    /// Copies what the node holds of `reads` to a device.
    ///
    /// # Safety
    /// The pieces must be memory of the door's device that nobody else uses until this returns.
    pub unsafe fn read_to_device(&self, door: &dyn Door, reads: &[DeviceRead<'_>]) -> Vec<DeviceOutcome> {
        let found: Vec<Option<Found>> = reads.iter().map(|read| self.find_whole(read)).collect();
        let held = found.iter().zip(reads).filter_map(|(found, read)| Some((found.as_ref()?, read)));
        let spans: Vec<Span> = held.flat_map(|(found, read)| self.spans(found.offset(), read.into)).collect();
        // Until the copies have landed.
        let pinned = if spans.is_empty() { None } else { self.pinned(door) };
        let Some(_pinned) = pinned else { return vec![DeviceOutcome::Not; reads.len()] };
        // SAFETY: the spans lie inside the pinned slab, which this mapping keeps, and in the caller's device memory. The slab's
        // bytes may change under the copy, which the check below then finds.
        let flown = unsafe { door.begin(Way::In, &spans) }.and_then(|flight| flight.land());
        let failed =
            flown.inspect_err(|error| tracing::warn!(%error, "blocks could not be copied to the device")).is_err();
        let outcome = |found: Option<Found>| match found {
            None => DeviceOutcome::Not,
            Some(_) if failed => DeviceOutcome::Failed,
            Some(found) if self.is_current(&found) => DeviceOutcome::There(found),
            Some(_) => DeviceOutcome::LostRace,
        };
        found.into_iter().map(outcome).collect()
    }

    fn find_whole(&self, read: &DeviceRead<'_>) -> Option<Found> {
        self.find(&read.id).filter(|found| found.len() == device_len(read.into))
    }

    /// Fills reservations from a device and makes their checksums; `None` for all of them where that fails. The time is what
    /// checksums took: beside a copy by the processor they cost nothing, but a device's bytes have to be read for them.
    ///
    /// # Safety
    /// The reservations must be this process's. The pieces must be memory of the door's device that nobody writes to until
    /// this returns.
    pub unsafe fn write_from_device(
        &self,
        door: &dyn Door,
        copies: &CopyPool,
        writes: &[DeviceWrite<'_>],
    ) -> Option<(Vec<Sums>, Duration)> {
        let in_place = |write: &DeviceWrite<'_>| {
            let len = device_len(write.from);
            // Nothing but a reservation is ever written to.
            Some(Region { start: self.writable_at(write.slab_offset, len)?, len: len as usize })
        };
        let places: Vec<Region> = writes.iter().map(in_place).collect::<Option<_>>()?;
        // Until the copies have landed.
        let _pinned = self.pinned(door)?;
        let spans: Vec<Span> = writes.iter().flat_map(|write| self.spans(write.slab_offset, write.from)).collect();
        // SAFETY: the spans lie in this process's reservations, which stay its own and mapped, and in the caller's device memory.
        let flown = unsafe { door.begin(Way::Out, &spans) }.and_then(|flight| flight.land());
        flown.inspect_err(|error| tracing::warn!(%error, "blocks could not be copied from the device")).ok()?;
        let began = Instant::now();
        let mut sums: Vec<Sums> =
            places.iter().map(|place| Sums::from_elem(0, chunk_count(place.len as u64) as usize)).collect();
        let pairs = writes.iter().zip(&places).zip(&mut sums);
        let jobs = pairs.map(|((write, place), out)| {
            let checksum = BlockChecksum::new(write.id, place.len as u64);
            SumJob { of: *place, checksums: ChecksumsInto { checksum, first_chunk: 0, out } }
        });
        // SAFETY: the copies have landed, and the reservations are written to by nobody else.
        unsafe { copies.sum(&mut jobs.collect::<Vec<_>>()) };
        Some((sums, began.elapsed()))
    }

    /// A block at `offset` of the slab and its pieces on a device, side by side.
    fn spans<'a>(&'a self, offset: u64, pieces: &'a [DevicePiece]) -> impl Iterator<Item = Span> + 'a {
        let mut at = offset;
        pieces.iter().filter_map(move |piece| {
            let host = self.pinned_at(at, piece.len as u64)?;
            at += piece.len as u64;
            Some(Span { host, device: piece.address, len: piece.len })
        })
    }
}
