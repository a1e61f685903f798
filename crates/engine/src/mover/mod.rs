//! The one seam between the engine's memory and the pool: a batch of blocks goes one way or the other.
//!
//! [`HostMover`] lends the engine's memory to the client, which copies straight into and out of it. Memory that this process
//! cannot address (a GPU's) takes [`DeviceMover`], which has the device copy from and to the pool's shared memory.

mod device;
mod flights;
mod guarded;
mod host;
mod staging;

pub use device::DeviceMover;
pub use host::HostMover;

use std::collections::HashSet;
use tidepool_client::{Client, PutError, PutOptions, Stored};

/// Bytes that a mover is given at once, unless it says otherwise.
const BATCH: usize = 64 << 20;

/// A block in the pool and in the engine's memory.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The KV group that it belongs to.
    pub group: usize,
    /// Its number in the engine's memory.
    pub block: u32,
}

/// Whether work that has parts goes on to its next one.
pub type GoOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// Moves batches of blocks. Each call has one answer for each block, in order; a part of a batch takes no longer than the client's
/// deadline, and between two of them it is asked whether to go on.
pub trait Mover: Send + Sync + 'static {
    /// Bytes in one block of a group; zero for a group that this engine's memory has no part of.
    fn block_len(&self, group: usize) -> usize;

    /// Bytes that go well together.
    fn batch_bytes(&self) -> usize {
        BATCH
    }

    /// Stores blocks.
    fn save(
        &self,
        client: &Client,
        batch: &[Placed<'_>],
        options: &PutOptions,
        go_on: GoOn<'_>,
    ) -> Vec<Result<Stored, PutError>>;

    /// Fills blocks; false for each that could not be had, whose memory is then unspecified.
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

/// Whether no block of the engine's memory is named twice: each is filled by one block of the pool.
fn is_each_once(batch: &[Placed<'_>]) -> bool {
    let mut seen = HashSet::with_capacity(batch.len());
    batch.iter().all(|placed| seen.insert((placed.group, placed.block)))
}
