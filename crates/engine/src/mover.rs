//! The one seam between the engine's memory and the pool: a batch of blocks goes one way or the other.
//!
//! [`HostMover`] lends the engine's memory to the client, which copies straight into and out of it. Memory that this process
//! cannot address (a GPU's) takes another mover, which stages the same batch through memory that it can.
#![expect(unsafe_code, reason = "blocks of the engine's memory are lent for writing")]

use crate::layout::Layout;
use std::collections::HashSet;
use tidepool_client::{Client, GetInto, PutError, PutItem, PutOptions, Stored};

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

/// Moves batches of blocks. Both calls return within the client's deadline, with one answer for each block, in order.
pub trait Mover: Send + Sync + 'static {
    /// Bytes in one block of a group; zero for a group that this engine's memory has no part of.
    fn block_len(&self, group: usize) -> usize;

    /// Stores blocks.
    fn save(&self, client: &Client, batch: &[Placed<'_>], options: &PutOptions) -> Vec<Result<Stored, PutError>>;

    /// Fills blocks; false for each that could not be had, whose memory is then unspecified.
    fn load(&self, client: &Client, batch: &[Placed<'_>]) -> Vec<bool>;
}

/// Moves blocks of memory that this process can address.
#[derive(Debug)]
pub struct HostMover {
    layout: Layout,
}

impl HostMover {
    /// Moves blocks of `layout`.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout }
    }
}

impl Mover for HostMover {
    fn block_len(&self, group: usize) -> usize {
        self.layout.block_len(group)
    }

    fn save(&self, client: &Client, batch: &[Placed<'_>], options: &PutOptions) -> Vec<Result<Stored, PutError>> {
        let parts = |placed: &Placed<'_>| self.layout.parts(placed.group, placed.block);
        let items = batch.iter().map(|placed| Some(PutItem { key: placed.key, data: parts(placed)? }));
        match items.collect::<Option<Vec<_>>>() {
            Some(items) => client.put_batch(&items, options),
            None => vec![Err(PutError::NoNode); batch.len()],
        }
    }

    fn load(&self, client: &Client, batch: &[Placed<'_>]) -> Vec<bool> {
        let mut seen = HashSet::new();
        let mut buffers = |placed: &Placed<'_>| {
            if !seen.insert((placed.group, placed.block)) {
                return None;
            }
            // SAFETY: each block is lent once in this batch; the engine gives a block to one job at a time.
            unsafe { self.layout.buffers(placed.group, placed.block) }
        };
        let items = batch.iter().map(|placed| Some(GetInto { key: placed.key, range: None, into: buffers(placed)? }));
        let Some(mut items) = items.collect::<Option<Vec<_>>>() else {
            return vec![false; batch.len()];
        };
        let answers = client.get_batch_into(&mut items);
        let whole = |(answer, placed): (Result<Option<usize>, _>, &Placed<'_>)| {
            answer.is_ok_and(|len| len == Some(self.layout.block_len(placed.group)))
        };
        answers.into_iter().zip(batch).map(whole).collect()
    }
}
