//! A device: its driver copies into the node's slab, and the checksums are made from there.

#![expect(unsafe_code, reason = "a device fills reservations")]

use crate::counters::add;
use crate::error::PutError;
use crate::peers::MappedNode;
use crate::put::reserved::Reserved;
use crate::put::store::Writer;
use tidepool_store::DeviceWrite;
use tidepool_transfer::door::Door;

/// Whether two doors are one.
fn is_same(one: &dyn Door, other: &dyn Door) -> bool {
    std::ptr::addr_eq(one, other)
}

impl Writer<'_> {
    /// Has a device fill the reservations; what it cannot is not written.
    pub(in crate::put) fn write_from_device(&self, memory: &MappedNode, reserved: &mut [Reserved<'_, '_>]) {
        let writes = reserved.iter().filter_map(|reserved| {
            let parts = reserved.job.item.data.on_device()?;
            Some((parts.door, DeviceWrite { id: reserved.job.id, slab_offset: reserved.offset, from: &parts.pieces }))
        });
        let (doors, writes): (Vec<_>, Vec<_>) = writes.unzip();
        // A batch of an engine is one device's; of several, or of the host's memory beside it, nothing is written.
        let is_one =
            |door: &&dyn Door| writes.len() == reserved.len() && doors.iter().all(|other| is_same(*door, *other));
        let Some(door) = doors.first().filter(|door| is_one(door)) else { return };
        // SAFETY: the reservations are this client's, and whoever made the parts promised the rest, of this door.
        let sums = unsafe { memory.mapping.write_from_device(*door, self.core.copies(), &writes) };
        match sums {
            Some((sums, took)) => {
                add(&self.core.counters.device_checksum_micros, took.as_micros() as u64);
                reserved.iter_mut().zip(sums).for_each(|(reserved, sums)| reserved.checksums = Some(sums));
            }
            None => reserved.iter_mut().for_each(|reserved| reserved.job.failure = Some(PutError::NotFromDevice)),
        }
    }
}
