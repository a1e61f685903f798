//! Blocks that space is taken for, and the parts in which they are written and sealed.

use super::Job;
use tidepool_transfer::ops::{Done, Failure, WriteOp};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::SlotName;

/// Parts that are sealed as soon as they are in place; each costs some microseconds.
const PARTS: usize = 8;

/// A block with space taken for it.
pub(super) struct Taken<'j, 'a> {
    pub(super) job: &'j mut Job<'a>,
    pub(super) slot: SlotName,
    pub(super) offset: u64,
    /// Set once its bytes are in place.
    pub(super) checksums: Option<Sums>,
    /// Whether its bytes are in place, or will not be.
    pub(super) is_over: bool,
}

impl Taken<'_, '_> {
    /// Its write is over.
    pub(super) fn complete(&mut self, outcome: Result<Done, Failure>) {
        self.is_over = true;
        if let Ok(Done::Written { checksums }) = outcome {
            self.checksums = Some(checksums);
        }
    }

    /// The checksums of the block's bytes.
    pub(super) fn sum(&self) -> Option<Sums> {
        let Job { item, id, len, .. } = &*self.job;
        let mut running = BlockChecksum::new(*id, *len).start_range(0, *len);
        item.data.iter().for_each(|part| running.update(part));
        running.finish()
    }
}

/// How many blocks of a batch of `len` are a part of it.
pub(super) fn part_len(len: usize) -> usize {
    len.div_ceil(PARTS).max(1)
}

/// What a transport is to do for each, the last part first; its token is its place.
pub(super) fn writes_of(taken: &[Taken<'_, '_>]) -> impl Iterator<Item = WriteOp> {
    let part = part_len(taken.len());
    let write = |(token, taken): (usize, &Taken<'_, '_>)| {
        let (id, slot, slab_offset) = (taken.job.id, taken.slot, taken.offset);
        WriteOp { token: token as u64, id, slot, slab_offset, source: taken.job.item.data.regions() }
    };
    taken.chunks(part).enumerate().rev().flat_map(move |(number, chunk)| (number * part..).zip(chunk).map(write))
}

/// How many of the first are not known to be over, in whole parts: all behind them are.
pub(super) fn unfinished(taken: &[Taken<'_, '_>], part: usize) -> usize {
    let is_over = |part: &&[Taken<'_, '_>]| part.iter().all(|taken| taken.is_over);
    let parts = taken.chunks(part).len() - taken.chunks(part).rev().take_while(is_over).count();
    taken.len().min(parts * part)
}
