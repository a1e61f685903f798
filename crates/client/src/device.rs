//! Blocks of this host's nodes, straight from and into a device's memory.
#![expect(unsafe_code, reason = "a device's memory is known by address")]

use crate::client::Client;
use crate::config::Verify;
use crate::counters::add;
use crate::peers::{MappedNode, Peer};
use std::sync::Arc;
use tidepool_store::{DeviceOutcome, DeviceRead};
use tidepool_transfer::door::{DevicePiece, Door};
use tidepool_types::BlockId;

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
    /// be elsewhere, or its node's memory cannot be pinned, or [`Verify::Always`] wants every byte looked at; a get into the
    /// host's memory tells.
    ///
    /// # Safety
    /// The pieces must be memory of the door's device that nobody else uses until this returns.
    pub unsafe fn get_batch_to_device(&self, door: &dyn Door, items: &[GetToDevice<'_>]) -> Vec<bool> {
        let core = self.core();
        let mut there = vec![false; items.len()];
        if core.config.verify == Verify::Always {
            return there;
        }
        let keys: Vec<&[u8]> = items.iter().map(|item| item.key).collect();
        let ids = core.id_of_each(&keys);
        for (peer, memory) in core.peers.table().locals.iter().filter_map(|peer| Some((peer, peer.memory()?))) {
            let wanted = (0..items.len()).filter(|index| !there[*index]);
            let wanted: Vec<(usize, DeviceRead<'_>)> = wanted
                .filter_map(|index| {
                    Some((index, DeviceRead { id: *ids[index].as_ref().ok()?, into: &items[index].into }))
                })
                .collect();
            if wanted.is_empty() {
                break;
            }
            let reads: Vec<DeviceRead<'_>> = wanted.iter().map(|(_, read)| *read).collect();
            // SAFETY: passed on from the caller.
            let outcomes = unsafe { memory.mapping.read_to_device(door, &reads) };
            self.note_device_reads(peer, memory, &reads, &outcomes);
            for ((index, _), outcome) in wanted.iter().zip(outcomes) {
                there[*index] = matches!(outcome, DeviceOutcome::There(_));
            }
        }
        there
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

    /// Counts, and lets the owner know what was used.
    fn note_device_reads(
        &self,
        peer: &Peer,
        memory: &MappedNode,
        reads: &[DeviceRead<'_>],
        outcomes: &[DeviceOutcome],
    ) {
        let core = self.core();
        let (mut ids, mut bytes, mut foreign, mut lost): (Vec<BlockId>, u64, u64, u64) = (Vec::new(), 0, 0, 0);
        memory.touch(&core.counters, |touch| {
            for (read, outcome) in reads.iter().zip(outcomes) {
                match outcome {
                    DeviceOutcome::There(found) => {
                        ids.push(read.id);
                        bytes += found.len();
                        foreign += u64::from(found.writer() != core.id);
                        touch.slots.push(found.slot());
                    }
                    DeviceOutcome::LostRace => lost += 1,
                    DeviceOutcome::Not | DeviceOutcome::Failed => {}
                }
            }
            touch.hits += ids.len() as u64;
            touch.foreign_hits += foreign;
            touch.bytes += bytes;
            touch.lost_races += lost;
        });
        if let Some(lease) = core.lease().filter(|_| !ids.is_empty()) {
            peer.lease(&ids, lease);
        }
        let counters = &core.counters;
        add(&counters.hits_shm, ids.len() as u64);
        add(&counters.foreign_hits, foreign);
        add(&counters.bytes_read_shm, bytes);
        add(&counters.lost_races, lost);
    }
}
