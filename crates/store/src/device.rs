//! Blocks between a node's slab and a device's memory: the slab is pinned, and the device's driver copies.
//!
//! A read is one of [`ShmTransport`]: a block is looked up, copied and then checked, and a slot that was reused under the copy
//! does not count. The checksums of a block that came from a device are made from the slab, after the copy and before the seal.

use crate::mapping::Mapping;
use crate::shm::{Ready, ShmTransport, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_transfer::copy::{ChecksumsInto, CopyPool, SumJob};
use tidepool_transfer::door::{self, DevicePiece, Door, Span, Way};
use tidepool_transfer::ops::{DevicePlace, Failure, Region};
use tidepool_types::{BlockId, Deadline, chunk_count};
use tidepool_wire::checksum::{BlockChecksum, Sums};

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

impl ShmTransport {
    /// Has devices copy blocks out of the slab, those of one device in one flight.
    pub(crate) fn read_to_devices(&mut self, mut reads: Vec<Ready>, deadline: Deadline) {
        while let Some(door) = reads.first().and_then(|first| door_of(first)) {
            let is_one = |ready: &Ready| door_of(ready).is_some_and(|other| Arc::ptr_eq(&door, &other));
            let flight: Vec<Ready> = reads.extract_if(.., |ready| is_one(ready)).collect();
            match deadline.has_passed() {
                true => flight.iter().for_each(|ready| self.fail(ready, Failure::TimedOut)),
                false => self.fly(&*door, flight),
            }
        }
    }

    fn fly(&mut self, door: &dyn Door, flight: Vec<Ready>) {
        let mapping = Arc::clone(&self.mapping);
        // Until the copies have landed.
        let Some(_pinned) = mapping.pinned(door) else {
            return flight.iter().for_each(|ready| self.fail(ready, Failure::Unavailable));
        };
        let spans: Vec<Span> = flight
            .iter()
            .filter_map(|ready| Some(mapping.spans(ready.found.offset() + ready.offset, &place_of(ready)?.pieces)))
            .flatten()
            .collect();
        // SAFETY: the spans lie inside the pinned slab, which the mapping keeps, and in the submitter's device memory. The
        // slab's bytes may change under the copy, which `conclude` then finds.
        let flown = unsafe { door.begin(Way::In, &spans) }.and_then(|flight| flight.land());
        match flown {
            Ok(()) => flight.into_iter().for_each(|ready| self.conclude(ready)),
            Err(error) => {
                tracing::warn!(%error, "blocks could not be copied to the device");
                flight.iter().for_each(|ready| self.fail(ready, Failure::Unavailable));
            }
        }
    }
}

fn place_of(ready: &Ready) -> Option<&DevicePlace> {
    match &ready.to {
        Target::Device(place) => Some(place),
        Target::Lent(_) | Target::Own(_) => None,
    }
}

fn door_of(ready: &Ready) -> Option<Arc<dyn Door>> {
    place_of(ready).map(|place| Arc::clone(&place.door))
}

impl Mapping {
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
            let len = door::total(write.from);
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
