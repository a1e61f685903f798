//! Moves blocks between the pool and memory of this process.
#![expect(unsafe_code, reason = "the engine's memory is known by address")]

use super::{GoOn, Mover, Placed, is_each_once};
use crate::layout::Layout;
use tidepool_client::{Buffers, Client, GetInto, Parts, PutError, PutItem, PutOptions, Stored};

/// A mover for blocks in memory of this process.
#[derive(Debug)]
pub struct HostMover {
    layout: Layout,
}

impl HostMover {
    /// A mover for blocks of `layout`.
    ///
    /// # Safety
    /// Every piece of every block must be readable and writable memory of this process until the mover is dropped.
    /// While a job that names a block is under way, only that job may touch the block.
    #[must_use]
    pub unsafe fn new(layout: Layout) -> Self {
        Self { layout }
    }

    /// A block's bytes, to read.
    fn parts(&self, placed: &Placed<'_>) -> Option<Parts<'_>> {
        // SAFETY: by the promise made to `new` the memory may be read for as long as `self` lives; its job keeps everybody
        // from writing to it.
        let bytes = |(at, len)| unsafe { std::slice::from_raw_parts(at as *const u8, len) };
        let mut parts: Vec<&[u8]> = self.layout.pieces(placed.group, placed.block)?.map(bytes).collect();
        Some(if parts.len() == 1 { Parts::One(parts.remove(0)) } else { Parts::Many(parts) })
    }

    /// A block's bytes, to write.
    ///
    /// # Safety
    /// No other slice of the block may be in use while this one is.
    unsafe fn buffers(&self, placed: &Placed<'_>) -> Option<Buffers<'_>> {
        // SAFETY: as in `parts`; pieces of one block do not overlap, and the caller has no other slice of it.
        let bytes = |(at, len)| unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) };
        let mut buffers: Vec<&mut [u8]> = self.layout.pieces(placed.group, placed.block)?.map(bytes).collect();
        Some(if buffers.len() == 1 { Buffers::One(buffers.remove(0)) } else { Buffers::Many(buffers) })
    }
}

impl Mover for HostMover {
    fn block_len(&self, group: usize) -> usize {
        self.layout.block_len(group)
    }

    fn save(
        &self,
        client: &Client,
        batch: &[Placed<'_>],
        options: &PutOptions,
        _: GoOn<'_>,
    ) -> Vec<Result<Stored, PutError>> {
        let items =
            batch.iter().map(|placed| Some(PutItem::new(placed.key, self.parts(placed)?).at_depth(placed.depth)));
        match items.collect::<Option<Vec<_>>>() {
            Some(items) => client.put_batch(&items, options),
            None => vec![Err(PutError::NoNode); batch.len()],
        }
    }

    fn load(&self, client: &Client, batch: &[Placed<'_>], _: GoOn<'_>) -> Vec<bool> {
        // SAFETY: each block is lent once in this batch; the engine gives a block to one job at a time.
        let buffers = |placed| unsafe { self.buffers(placed) };
        let items = batch.iter().map(|placed| Some(GetInto::new(placed.key, buffers(placed)?).at_depth(placed.depth)));
        let Some(mut items) = is_each_once(batch).then(|| items.collect::<Option<Vec<_>>>()).flatten() else {
            return vec![false; batch.len()];
        };
        let answers = client.get_batch_into(&mut items);
        let whole = |(answer, placed): (Result<Option<usize>, _>, &Placed<'_>)| {
            answer.is_ok_and(|len| len == Some(self.layout.block_len(placed.group)))
        };
        answers.into_iter().zip(batch).map(whole).collect()
    }
}
