//! Blocks of this host's nodes, straight from and into a device's memory.
#![expect(unsafe_code, reason = "a device's memory is known by address")]

use crate::client::Client;
use crate::get::{self, Read};
use crate::peers::MappedNode;
use std::sync::Arc;
use tidepool_transfer::door::{DevicePiece, Door};
use tidepool_transfer::ops::{Destination, DevicePlace};
use tidepool_types::{BlockId, InvalidInput};

/// A block's bytes in a device's memory, and the door to it.
#[derive(Debug, Clone)]
pub struct DeviceParts<'a> {
    pub(crate) door: &'a dyn Door,
    pub(crate) pieces: Vec<DevicePiece>,
}

impl<'a> DeviceParts<'a> {
    /// The bytes of `pieces`, in order.
    ///
    /// # Safety
    /// They must be memory of the door's device that nobody writes to while a call has it.
    #[must_use]
    pub unsafe fn new(door: &'a dyn Door, pieces: Vec<DevicePiece>) -> Self {
        Self { door, pieces }
    }
}

/// A block, and where it goes in a device's memory.
#[derive(Debug, Clone)]
pub struct GetToDevice<'a> {
    /// The block's key.
    pub key: &'a [u8],
    /// Where it goes: all of it, in order.
    pub into: Vec<DevicePiece>,
    /// Blocks before this one in its prefix, for [`Client::used_for`].
    pub depth: u32,
}

/// The memory of this host's nodes, pinned for a device that is to copy from and to it.
#[derive(Debug)]
pub struct PinnedForDevice {
    client: Client,
    door: Arc<dyn Door>,
}

impl Drop for PinnedForDevice {
    fn drop(&mut self) {
        let mut doors = self.client.doors().lock();
        if let Some(ours) = doors.iter().position(|door| Arc::ptr_eq(door, &self.door)) {
            doors.swap_remove(ours);
        }
        if doors.is_empty() {
            self.client.local_memories(|memory| memory.mapping.unpin());
        }
    }
}

impl Client {
    /// Copies blocks that this host's nodes hold to a device, each with its own answer. False is not yet a miss: the block may
    /// be elsewhere, or have another length, or its node's memory cannot be pinned; a get into the host's memory tells.
    ///
    /// # Safety
    /// The pieces must be memory of the door's device that nobody else uses until this returns.
    pub unsafe fn get_batch_to_device(&self, door: &Arc<dyn Door>, items: Vec<GetToDevice<'_>>) -> Vec<bool> {
        let keys: Vec<&[u8]> = items.iter().map(|item| item.key).collect();
        let ids = self.core().id_of_each(&keys);
        let read = |(item, id): (GetToDevice<'_>, Result<BlockId, InvalidInput>)| {
            let (used, place) = (self.use_at(item.depth), DevicePlace { door: Arc::clone(door), pieces: item.into });
            let read = |id| Read::whole(id, Destination::Device(Box::new(place))).used_for(used);
            id.map_or_else(|error| Read::refused(error.into()), read)
        };
        let mut reads: Vec<Read> = items.into_iter().zip(ids).map(read).collect();
        get::on_this_host(self, &mut reads);
        reads.iter().map(Read::is_delivered).collect()
    }

    /// Pins the memory of this host's nodes for a device, so that the first copies need not wait for it: of those that are there
    /// before this returns, of those that come later in the background. It stays pinned until the last answer is dropped.
    pub fn pin_for_device(&self, door: &Arc<dyn Door>) -> PinnedForDevice {
        self.doors().lock().push(Arc::clone(door));
        self.local_memories(|memory| {
            memory.mapping.pin(&**door);
        });
        PinnedForDevice { client: self.clone(), door: Arc::clone(door) }
    }

    fn local_memories(&self, each: impl Fn(&MappedNode)) {
        self.core().peers.table().locals.iter().filter_map(|peer| peer.memory()).for_each(|memory| each(memory));
    }
}
