//! A small pool, and puts into it: what the tests of this crate share, those inside it included.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_store::{NoRoom, NodeMemory, NodeMemoryConfig, Reservation, Sealed};
use tidepool_types::{BlockId, ByteSize, ClientId, Deadline, Epoch, Key, NodeName, TenantSecret};
use tidepool_wire::checksum::{BlockChecksum, Sums};

/// Who writes the blocks.
pub(crate) const WRITER: ClientId = ClientId(0x55);

/// A pool of `capacity` bytes in `dir`, with as many slots as blocks of `block` bytes fit.
pub(crate) fn create(dir: &Path, name: &str, epoch: Epoch, capacity: u64, block: u64) -> Arc<NodeMemory> {
    create_with(dir, name, epoch, (capacity, block), (Policy::default(), Rule::default()))
}

/// The same with policies.
pub(crate) fn create_with(
    dir: &Path,
    name: &str,
    epoch: Epoch,
    (capacity, block): (u64, u64),
    (eviction, admission): (Policy, Rule),
) -> Arc<NodeMemory> {
    NodeMemory::create(&config(dir, name, epoch, (capacity, block), (eviction, admission))).unwrap()
}

/// What such a pool is made of.
pub(crate) fn config(
    dir: &Path,
    name: &str,
    epoch: Epoch,
    (capacity, block): (u64, u64),
    (eviction, admission): (Policy, Rule),
) -> NodeMemoryConfig {
    NodeMemoryConfig {
        dir: dir.to_owned(),
        name: NodeName::new(name).unwrap(),
        secret: TenantSecret::DEFAULT,
        epoch,
        capacity: ByteSize(capacity),
        smallest_expected_block: ByteSize(block),
        eviction,
        admission,
    }
}

pub(crate) fn id(key: &[u8]) -> BlockId {
    BlockId::derive(&TenantSecret::DEFAULT, Key::new(key).unwrap())
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(20))
}

/// Takes space and fills it.
pub(crate) fn reserve(memory: &Arc<NodeMemory>, key: &[u8], bytes: &[u8]) -> Result<Reservation, NoRoom> {
    reserve_by(soon(), memory, key, bytes)
}

/// The same with another deadline.
pub(crate) fn reserve_by(
    deadline: Deadline,
    memory: &Arc<NodeMemory>,
    key: &[u8],
    bytes: &[u8],
) -> Result<Reservation, NoRoom> {
    let reservation =
        memory.reserve(Key::new(key).unwrap(), id(key), bytes.len() as u64, WRITER, deadline, &|| true)?.named();
    let target = reservation.address(0, bytes.len() as u64).unwrap();
    // SAFETY: the reservation is ours and long enough.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    Ok(reservation)
}

pub(crate) fn sums(key: &[u8], bytes: &[u8]) -> Sums {
    BlockChecksum::new(id(key), bytes.len() as u64).range(0, bytes)
}

pub(crate) fn put(memory: &Arc<NodeMemory>, key: &[u8], bytes: &[u8]) -> Result<Sealed, NoRoom> {
    let sealed = reserve(memory, key, bytes)?.seal(&sums(key, bytes));
    Ok(sealed.expect("the checksums fit the block"))
}
