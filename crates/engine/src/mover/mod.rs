//! Movers: the one seam between the engine's memory and the pool. A mover takes a batch of blocks one way or the other.
//!
//! [`HostMover`] lends the engine's memory to the client, which copies straight into and out of it. [`DeviceMover`] is
//! for memory that this process cannot address (a GPU's); the device copies from and to the pool's shared memory.

mod device;
mod flights;
mod guarded;
mod host;
mod staging;

pub use device::DeviceMover;
pub use host::HostMover;

use std::collections::HashSet;
use tidepool_client::{Client, PutError, PutOptions, Stored};

/// Bytes of a batch, unless the mover asks for another size.
const BATCH: usize = 64 << 20;

/// A block in the pool and in the engine's memory.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// The block's key.
    pub key: &'a [u8],
    /// The block's KV group.
    pub group: usize,
    /// The block's number in the engine's memory.
    pub block: u32,
    /// Blocks of its group before this one in its prefix.
    pub depth: u32,
}

/// Returns whether work in parts goes on to its next part.
pub type GoOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// Moves batches of blocks. Each call returns one answer for each block, in order. A part of a batch takes no longer
/// than the client's deadline, and the mover asks `go_on` between parts.
pub trait Mover: Send + Sync + 'static {
    /// Bytes in one block of a group; zero for a group that this engine's memory has no part of.
    fn block_len(&self, group: usize) -> usize;

    /// The best size of a batch, in bytes.
    fn batch_bytes(&self) -> usize {
        BATCH
    }

    /// Stores blocks in the pool.
    fn save(
        &self,
        client: &Client,
        batch: &[Placed<'_>],
        options: &PutOptions,
        go_on: GoOn<'_>,
    ) -> Vec<Result<Stored, PutError>>;

    /// Fills blocks from the pool. Returns false for each block that could not be read; its memory is then unspecified.
    fn load(&self, client: &Client, batch: &[Placed<'_>], go_on: GoOn<'_>) -> Vec<bool>;
}

/// Cuts blocks into runs of at most `most` bytes, and at least a block each.
pub(crate) fn cut<B>(blocks: &[B], most: usize, len: impl Fn(&B) -> usize) -> impl Iterator<Item = &[B]> {
    let mut rest = blocks;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |block: &&B| {
            bytes += len(block);
            bytes <= most
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (run, after) = rest.split_at(count);
        rest = after;
        (!run.is_empty()).then_some(run)
    })
}

/// Whether `batch` names no block of the engine's memory twice, so that one block of the pool fills each.
fn is_each_once(batch: &[Placed<'_>]) -> bool {
    let mut seen = HashSet::with_capacity(batch.len());
    batch.iter().all(|placed| seen.insert((placed.group, placed.block)))
}
