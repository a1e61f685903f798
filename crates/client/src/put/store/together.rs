//! Many small blocks for the node of this process: taking space for them takes about as long as copying them, so two threads
//! do both. They are sealed together, in their order, as a prefix has to be.

use super::{Elsewhere, Job, Line, Reserved, Writer};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_transfer::conn::ConnError;

/// Batches of fewer blocks or bytes are over before a second thread has woken up.
const LEAST_BLOCKS: usize = 32;
const LEAST_BYTES: u64 = 1 << 20;
/// Larger blocks are mostly copying, which is shared by the piece.
const LARGEST: u64 = 256 << 10;

/// Jobs that could not be stored: for lack of space, and because their bytes must go through the socket.
type Left<'j, 'a> = (Vec<&'j mut Job<'a>>, Vec<&'j mut Job<'a>>);

impl Writer<'_> {
    /// Stores as much of `jobs` as there is space for without waiting, if that is faster by two threads.
    pub(super) fn store_together<'j, 'a>(
        &mut self,
        jobs: Vec<&'j mut Job<'a>>,
        elsewhere: &Elsewhere<'_>,
    ) -> Result<Left<'j, 'a>, ConnError> {
        let Some(mut second) = self.second_hand(&jobs, elsewhere) else { return Ok((jobs, Vec::new())) };
        let Reserved { taken, full, unmapped } = self.reserve_and_write_together(&mut second, jobs)?;
        // The second writer is still there: what it has taken would end with it.
        self.seal(taken, true)?;
        Ok((full, unmapped))
    }

    /// A second writer to the node, if it is in this process and `jobs` are many and small.
    fn second_hand(&self, jobs: &[&mut Job<'_>], elsewhere: &Elsewhere<'_>) -> Option<Self> {
        let bytes = jobs.iter().map(|job| job.len).sum::<u64>();
        let pays = jobs.len() >= LEAST_BLOCKS && bytes >= LEAST_BYTES && bytes / jobs.len() as u64 <= LARGEST;
        let can = matches!(self.line, Line::Desk(_)) && elsewhere.looked && self.core.copies().threads() > 1;
        if !pays || !can || jobs.iter().any(|job| job.item.data.on_device().is_some()) {
            return None;
        }
        let Self { core, peer, memory, deadline, .. } = *self;
        Some(Self { core, peer, memory, line: Line::Desk(peer.desk()?), written: Vec::new(), deadline })
    }

    fn reserve_and_write_together<'j, 'a>(
        &mut self,
        second: &mut Self,
        mut jobs: Vec<&'j mut Job<'a>>,
    ) -> Result<Reserved<'j, 'a>, ConnError> {
        let (copies, later) = (self.core.copies(), jobs.split_off(jobs.len() / 2));
        let halves = [(self, jobs), (second, later)].map(|half| Mutex::new((Some(half), None)));
        let next = AtomicUsize::new(0);
        copies.together(&|| {
            while let Some(half) = halves.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (todo, done) = &mut *half.lock();
                *done = todo.take().map(|(writer, jobs)| writer.reserve_and_write(jobs));
            }
        });
        let [first, second] = halves.map(|half| half.into_inner().1.unwrap_or(Err(ConnError::Closed)));
        let (mut first, second) = (first?, second?);
        first.taken.extend(second.taken);
        first.full.extend(second.full);
        first.unmapped.extend(second.unmapped);
        Ok(first)
    }

    /// Does not wait for space: what the other writer has taken may be what it would wait for.
    fn reserve_and_write<'j, 'a>(&mut self, jobs: Vec<&'j mut Job<'a>>) -> Result<Reserved<'j, 'a>, ConnError> {
        let mut elsewhere = Elsewhere { core: self.core, deadline: self.deadline, looked: true };
        let mut reserved = self.reserve(jobs, true, 0, &mut elsewhere)?;
        self.write(&mut reserved.taken, true)?;
        Ok(reserved)
    }
}
