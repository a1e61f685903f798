//! The changes that wait for one subscriber: bounded, and past the bound it is known whose are missing.

use std::collections::BTreeSet;
use tidepool_locks::Mutex;
use tidepool_schema::WatchChanges;
use tokio::sync::Notify;

/// Bytes that a waiting batch counts for beside its ids and kinds.
const OVERHEAD: usize = 128;

/// See the file's head.
pub(crate) struct Queue {
    room: usize,
    /// Short sections: one batch in, all batches out.
    waiting: Mutex<Waiting>,
    ready: Notify,
}

#[derive(Default)]
struct Waiting {
    changes: Vec<WatchChanges>,
    bytes: usize,
    /// Streams that changes are missing of: further ones are not kept until these are taken.
    missing: BTreeSet<u64>,
}

impl Queue {
    pub(super) fn new(room: usize) -> Self {
        Self { room, waiting: Mutex::default(), ready: Notify::new() }
    }

    pub(super) fn push(&self, changes: &WatchChanges) {
        let mut waiting = self.waiting.lock();
        if waiting.missing.contains(&changes.stream) {
            return;
        }
        let bytes = OVERHEAD + changes.ids.len() + changes.kinds.len();
        if waiting.bytes + bytes > self.room {
            waiting.missing.insert(changes.stream);
        } else {
            waiting.bytes += bytes;
            waiting.changes.push(changes.clone());
        }
        drop(waiting);
        self.wake();
    }

    /// The changes that wait, in the order of each stream.
    pub(crate) fn take(&self) -> Vec<WatchChanges> {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.changes)
    }

    /// The same, and the streams that changes are missing of after these. From now on their changes are kept again.
    pub(crate) fn take_with_missing(&self) -> (Vec<WatchChanges>, BTreeSet<u64>) {
        let mut waiting = self.waiting.lock();
        let Waiting { changes, missing, .. } = std::mem::take(&mut *waiting);
        (changes, missing)
    }

    pub(super) fn wake(&self) {
        self.ready.notify_one();
    }

    /// Ends when something may have come in since the last time.
    pub(crate) async fn ready(&self) {
        self.ready.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(stream: u64, ids: usize) -> WatchChanges {
        WatchChanges { stream, ids: vec![0; 16 * ids].into(), kinds: vec![0; ids].into() }
    }

    fn streams(changes: &[WatchChanges]) -> Vec<u64> {
        changes.iter().map(|changes| changes.stream).collect()
    }

    #[test]
    fn a_full_queue_loses_whole_streams_and_knows_which_until_they_are_taken() {
        let queue = Queue::new(2 * (OVERHEAD + 17));
        [1, 2, 1].into_iter().for_each(|stream| queue.push(&changes(stream, 1)));
        assert_eq!(streams(&queue.take()), [1, 2]);
        [1, 2].into_iter().for_each(|stream| queue.push(&changes(stream, 1)));
        let (kept, missing) = queue.take_with_missing();
        assert_eq!((streams(&kept), missing), (vec![2], BTreeSet::from([1])), "what comes after a gap is of no use");
        queue.push(&changes(1, 1));
        queue.push(&changes(2, 2));
        let (kept, missing) = queue.take_with_missing();
        assert_eq!((streams(&kept), missing), (vec![1], BTreeSet::from([2])));
    }
}
