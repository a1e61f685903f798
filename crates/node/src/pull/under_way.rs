//! The blocks that pulls are bringing to this node. A block that several pulls want travels once: the first pull brings it, and
//! the others wait for that one to end.

use rustc_hash::FxHashSet;
use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};
use tidepool_types::{BlockId, Deadline};

/// How often a waiting pull looks whether it is still wanted, and what other pulls have done with.
const STEP: Duration = Duration::from_millis(100);
/// How long a pull waits without any block coming for it: the source of another pull may hang, and its own may not.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the file's head.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Short sections.
    ids: Mutex<FxHashSet<BlockId>>,
    /// Signalled when a pull has ended.
    ended: Condvar,
}

/// The blocks that one pull brings, until it is dropped.
pub(super) struct Claim<'a> {
    under_way: &'a UnderWay,
    ids: FxHashSet<BlockId>,
}

impl UnderWay {
    /// Takes on those of `ids` that no other pull is bringing.
    pub(super) fn claim(&self, ids: impl IntoIterator<Item = BlockId>) -> Claim<'_> {
        let mut taken = self.ids.lock();
        let ids = ids.into_iter().filter(|id| taken.insert(*id)).collect();
        Claim { under_way: self, ids }
    }

    /// Waits until no pull brings any of `ids`. False at the deadline, once `go_on` says no, and when none of them has come
    /// for long.
    pub(super) fn wait(&self, ids: &[BlockId], go_on: &dyn Fn() -> bool, until: Deadline) -> bool {
        let mut taken = self.ids.lock();
        let (mut left, mut heard) = (ids.len(), Instant::now());
        loop {
            match ids.iter().filter(|id| taken.contains(id)).count() {
                0 => return true,
                fewer if fewer < left => (left, heard) = (fewer, Instant::now()),
                _ if until.has_passed() || !go_on() || heard.elapsed() >= PATIENCE => return false,
                _ => {}
            }
            let step = until.instant().min(Instant::now() + STEP);
            let _ = self.ended.wait_until(&mut taken, step);
        }
    }
}

impl Claim<'_> {
    /// The pull has done with a block, however that ended. Who waits for it finds out with the next look: to be woken for each
    /// block of a batch would have every waiter look through all of its own.
    pub(super) fn release(&mut self, id: &BlockId) {
        if self.ids.remove(id) {
            self.under_way.ids.lock().remove(id);
        }
    }

    /// Whether the block is this pull's to bring.
    pub(super) fn has(&self, id: &BlockId) -> bool {
        self.ids.contains(id)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut taken = self.under_way.ids.lock();
        taken.retain(|id| !self.ids.contains(id));
        self.under_way.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [BlockId; 3] =
        [BlockId::from_bytes([1; 16]), BlockId::from_bytes([2; 16]), BlockId::from_bytes([3; 16])];

    #[test]
    fn a_block_is_brought_by_one_pull_at_a_time_and_others_wait_for_its_end() {
        let under_way = UnderWay::default();
        let first = under_way.claim(IDS[..2].iter().copied());
        let second = under_way.claim(IDS);
        assert_eq!(IDS.map(|id| first.has(&id)), [true, true, false]);
        assert_eq!(IDS.map(|id| second.has(&id)), [false, false, true]);
        let later = Deadline::after(Duration::from_secs(60));
        assert!(!under_way.wait(&IDS, &|| false, later), "it is not wanted any more");
        let mut third = under_way.claim([BlockId::from_bytes([4; 16])]);
        third.release(&BlockId::from_bytes([4; 16]));
        let fourth = under_way.claim([BlockId::from_bytes([4; 16])]);
        drop(third);
        assert!(under_way.claim([BlockId::from_bytes([4; 16])]).ids.is_empty(), "a released block is another pull's");
        drop(fourth);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| under_way.wait(&IDS[..2], &|| true, later));
            drop(first);
            assert!(waits.join().unwrap());
        });
        assert!(!under_way.wait(&IDS, &|| true, Deadline::after(Duration::ZERO)));
        drop(second);
        assert!(under_way.wait(&IDS, &|| true, Deadline::after(Duration::ZERO)));
    }
}
