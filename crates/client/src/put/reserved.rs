//! Blocks with a reservation, and the parts in which they are written and sealed.

use super::Job;
use tidepool_transfer::ops::{Done, Failure, WriteOp};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::SlotName;

/// Parts that are sealed as soon as they are in place; each costs some microseconds.
const PARTS: usize = 8;

/// A block with a reservation.
pub(super) struct Reserved<'j, 'a> {
    pub(super) job: &'j mut Job<'a>,
    pub(super) slot: SlotName,
    pub(super) offset: u64,
    /// Set once its bytes are in place.
    pub(super) checksums: Option<Sums>,
    /// Whether its bytes are in place, or will not be.
    pub(super) is_over: bool,
}

impl Reserved<'_, '_> {
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

/// How many blocks of a batch of `len` are a part of it, where parts are sealed by themselves.
pub(super) fn part_len(len: usize) -> usize {
    len.div_ceil(PARTS).max(1)
}

/// What a transport is to do for each, the last part first; its token is its place.
pub(super) fn writes_of(reserved: &[Reserved<'_, '_>], part: usize) -> Vec<WriteOp> {
    let write = |at: usize| {
        let Reserved { job, slot, offset, .. } = &reserved[at];
        let source = job.item.data.regions();
        WriteOp { token: at as u64, id: job.id, slot: *slot, slab_offset: *offset, source }
    };
    last_part_first(reserved.len(), part).map(write).collect()
}

/// The places of a batch of `len`, part by part from the last to the first, and in order within each.
fn last_part_first(len: usize, part: usize) -> impl Iterator<Item = usize> {
    (0..len.div_ceil(part)).rev().flat_map(move |number| number * part..len.min((number + 1) * part))
}

/// Length of the unfinished head, rounded up to whole parts. Every block after it is finished.
pub(super) fn unfinished(reserved: &[Reserved<'_, '_>], part: usize) -> usize {
    let is_over = |part: &&[Reserved<'_, '_>]| part.iter().all(|reserved| reserved.is_over);
    let parts = reserved.chunks(part).len() - reserved.chunks(part).rev().take_while(is_over).count();
    reserved.len().min(parts * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sealed by itself goes from the last part to the first. All else went so too, for a while: a put that its
    /// deadline cut short kept the end of a prefix, of no use without its front.
    #[test]
    fn the_last_part_is_written_first_and_a_batch_of_one_part_in_order() {
        assert_eq!(last_part_first(10, 4).collect::<Vec<_>>(), [8, 9, 4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(last_part_first(8, 4).collect::<Vec<_>>(), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert!(last_part_first(10, 10).eq(0..10));
        assert_eq!(last_part_first(0, 1).count(), 0);
        for len in 1..100 {
            assert!(last_part_first(len, part_len(len)).max() == Some(len - 1));
            assert_eq!(last_part_first(len, part_len(len)).count(), len);
        }
    }
}
