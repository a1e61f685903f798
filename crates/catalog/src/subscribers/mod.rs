//! Subscribers, who follow all that the catalog knows: which node holds which block in which tier.
//!
//! A stream applies changes to the index, then hands them to the subscribers; its changes have one order, that of its task.
//! A subscriber begins with a walk through the index, for what the streams had said before. What the walk finds and what
//! the streams hand over overlap, and that does no harm: a page of the walk is told before the changes that were not told
//! when it was read, so the last word on an id is always its last change. See docs/catalog.md.
//!
//! A subscriber that does not keep up loses changes. Then the walk is made again for the streams concerned.

mod queue;
#[cfg(test)]
mod tests;
mod told;
mod walk;

pub(crate) use told::Told;
pub(crate) use walk::Walk;

pub(crate) use queue::Queue;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_locks::RwLock;
use tidepool_schema::WatchChanges;
use tidepool_types::BlockId;
use tonic::Status;

/// See the module's head.
pub(crate) struct Subscribers {
    most: usize,
    /// Bytes that wait for one subscriber at most.
    room: usize,
    /// Zero spares streams the lock. A subscriber is counted before its walk reads the index: a stream that reads zero has
    /// changed a part of the index before the walk reads that part, under the same lock.
    count: AtomicUsize,
    /// Written when a subscriber comes or goes.
    queues: RwLock<Vec<Arc<Queue>>>,
}

impl Subscribers {
    /// At most `most` subscribers, for each of which at most `room` bytes wait.
    pub(crate) fn new(most: usize, room: usize) -> Self {
        Self { most, room, count: AtomicUsize::new(0), queues: RwLock::default() }
    }

    /// How many subscribers there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// One more subscriber, until [`Subscribers::leave`].
    pub(crate) fn enter(&self) -> Result<Arc<Queue>, Status> {
        let mut queues = self.queues.write();
        let count = queues.len();
        if count >= self.most {
            return Err(Status::resource_exhausted(format!("{count} subscribers listen already; at most {count} may")));
        }
        let queue = Arc::new(Queue::new(self.room));
        queues.push(queue.clone());
        self.count.store(queues.len(), Ordering::Relaxed);
        Ok(queue)
    }

    /// The subscriber has gone.
    pub(crate) fn leave(&self, queue: &Arc<Queue>) {
        let mut queues = self.queues.write();
        queues.retain(|other| !Arc::ptr_eq(other, queue));
        self.count.store(queues.len(), Ordering::Relaxed);
    }

    /// The stream with this number has applied changes. Without kinds, they are additions to memory.
    pub(crate) fn applied(&self, stream: u64, ids: &[[u8; BlockId::LEN]], kinds: &[u8]) {
        if self.count() == 0 || ids.is_empty() {
            return;
        }
        let kinds = if kinds.is_empty() { vec![0; ids.len()] } else { kinds.to_vec() };
        // A copy: what came in may share its memory with much that has been dealt with.
        let changes = WatchChanges { stream, ids: ids.as_flattened().to_vec().into(), kinds: kinds.into() };
        self.queues.read().iter().for_each(|queue| queue.push(&changes));
    }

    /// The catalog stops: subscribers' tasks look again, and see it.
    pub(crate) fn end(&self) {
        self.queues.read().iter().for_each(|queue| queue.wake());
    }
}
