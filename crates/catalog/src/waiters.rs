//! Calls that wait until a node holds one of some blocks.
//!
//! A call registers its ids, then looks them up, then sleeps. A stream applies additions to the index, then looks whether
//! a call waits for them. Both touch the lock of an id's shard in between: where the look-up does not see an addition, the
//! addition came later, and the stream sees the registration. So no addition is missed, and relaxed loads are enough.
//!
//! While nobody waits, a batch of additions costs one load. While somebody waits, each addition costs one load of the
//! filter, and only an id that the filter does not rule out costs a lock.

use crate::config::CatalogConfig;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidepool_locks::Mutex;
use tidepool_schema::REMOVED;
use tidepool_types::BlockId;
use tokio::sync::Notify;
use tonic::Status;

type Raw = [u8; BlockId::LEN];

/// Places of the filter.
const FILTER: usize = 1 << 16;

/// Ids registered in one section of the lock: a stream that brings an awaited block waits for no more than that.
const AT_ONCE: usize = 1024;

/// The number of a waiting call: never given twice.
type Number = u64;

/// See the file's head.
pub(crate) struct Waiters {
    most_calls: usize,
    most_ids: usize,
    /// Ids of all waiting calls, those of one call counted as often as the call names them.
    ids: AtomicUsize,
    /// How many registrations there are of ids that share a place.
    filter: Box<[AtomicU32]>,
    /// Short sections: some ids of a call, or one addition.
    register: Mutex<Register>,
}

#[derive(Default)]
struct Register {
    numbers: Number,
    calls: HashMap<Number, Arc<Notify>>,
    waits: BTreeSet<(Raw, Number)>,
}

impl Waiters {
    pub(crate) fn new(config: &CatalogConfig) -> Self {
        Self {
            most_calls: config.max_waits,
            most_ids: config.max_waited_ids,
            ids: AtomicUsize::new(0),
            filter: (0..FILTER).map(|_| AtomicU32::new(0)).collect(),
            register: Mutex::default(),
        }
    }

    /// How many calls wait, and for how many ids.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.register.lock().calls.len(), self.ids.load(Ordering::Relaxed))
    }

    /// One more waiting call, until what this returns is dropped. The call must look its ids up afterwards.
    pub(crate) fn enter<'a>(&'a self, ids: &'a [Raw]) -> Result<Waiter<'a>, Status> {
        let mut register = self.register.lock();
        let (calls, most_calls, most_ids) = (register.calls.len(), self.most_calls, self.most_ids);
        if calls >= most_calls {
            return Err(Status::resource_exhausted(format!("{calls} calls wait already; at most {most_calls} may")));
        }
        // Changed under the lock only.
        let all = self.ids.load(Ordering::Relaxed) + ids.len();
        if all > most_ids {
            let (more, message) = (ids.len(), "ids may be waited for by all calls together");
            return Err(Status::resource_exhausted(format!(
                "{more} more make {all} ids; at most {most_ids} {message}"
            )));
        }
        self.ids.store(all, Ordering::Relaxed);
        register.numbers += 1;
        let (number, wake) = (register.numbers, Arc::new(Notify::new()));
        register.calls.insert(number, wake.clone());
        drop(register);
        for some in ids.chunks(AT_ONCE) {
            let mut register = self.register.lock();
            for id in some {
                if register.waits.insert((*id, number)) {
                    self.place_of(id).fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(Waiter { waiters: self, ids, number, wake })
    }

    /// A stream has applied changes: calls that wait for one of the additions look again.
    pub(crate) fn applied(&self, ids: &[Raw], kinds: &[u8]) {
        if self.ids.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (n, id) in ids.iter().enumerate() {
            if kinds.get(n) != Some(&REMOVED) && self.place_of(id).load(Ordering::Relaxed) > 0 {
                self.wake(id);
            }
        }
    }

    /// The catalog stops: every call looks again, and sees it.
    pub(crate) fn end(&self) {
        self.register.lock().calls.values().for_each(|call| call.notify_one());
    }

    fn wake(&self, id: &Raw) {
        let register = self.register.lock();
        for (_, call) in register.waits.range((*id, 0)..=(*id, Number::MAX)) {
            register.calls.get(call).into_iter().for_each(|call| call.notify_one());
        }
    }

    fn place_of(&self, id: &Raw) -> &AtomicU32 {
        &self.filter[usize::from(u16::from_le_bytes([id[0], id[1]]))]
    }
}

/// A waiting call's place.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    ids: &'a [Raw],
    number: Number,
    wake: Arc<Notify>,
}

impl Waiter<'_> {
    /// Ends when one of the ids has been added since the last time, or since the call registered.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        for some in self.ids.chunks(AT_ONCE) {
            let mut register = self.waiters.register.lock();
            for id in some {
                if register.waits.remove(&(*id, self.number)) {
                    self.waiters.place_of(id).fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        let mut register = self.waiters.register.lock();
        register.calls.remove(&self.number);
        self.waiters.ids.fetch_sub(self.ids.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn raw(n: u64) -> Raw {
        // Every 50th shares a place of the filter.
        *BlockId::from_words([n % 50, n]).as_bytes()
    }

    fn waiters(max_waits: usize, max_waited_ids: usize) -> Waiters {
        Waiters::new(&CatalogConfig { max_waits, max_waited_ids, ..CatalogConfig::default() })
    }

    fn is_woken(waiter: &Waiter<'_>) -> bool {
        pin!(waiter.woken()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn an_addition_wakes_the_calls_that_wait_for_it_and_no_others() {
        let waiters = waiters(10, 1000);
        let (ours, theirs): ([_; 2], [_; 2]) = ([raw(1), raw(2)], [raw(2), raw(3)]);
        let (first, second) = (waiters.enter(&ours).unwrap(), waiters.enter(&theirs).unwrap());
        waiters.applied(&[raw(51), raw(52), raw(53)], &[]);
        assert!(!is_woken(&first) && !is_woken(&second), "others of the same places");
        waiters.applied(&[raw(1), raw(2)], &[REMOVED, REMOVED]);
        assert!(!is_woken(&first) && !is_woken(&second), "removals");
        waiters.applied(&[raw(9), raw(1)], &[0, 1]);
        assert!(is_woken(&first) && !is_woken(&second));
        assert!(!is_woken(&first), "once per addition");
        waiters.applied(&[raw(2)], &[]);
        assert!(is_woken(&first) && is_woken(&second));
    }

    #[test]
    fn a_call_that_goes_leaves_nothing_behind() {
        let waiters = waiters(10, 1 << 20);
        let many: Vec<Raw> = (0..5000).chain(0..5000).map(raw).collect();
        let (gone, stays) = (waiters.enter(&many).unwrap(), waiters.enter(&many[..10]).unwrap());
        assert_eq!(waiters.counts(), (2, 10_010));
        drop(gone);
        assert_eq!(waiters.counts(), (1, 10));
        waiters.applied(&[raw(4)], &[]);
        assert!(is_woken(&stays));
        drop(stays);
        assert_eq!(waiters.counts(), (0, 0));
        assert!(waiters.register.lock().waits.is_empty());
        assert!(waiters.filter.iter().all(|place| place.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn past_its_bounds_a_call_is_refused_with_the_bound() {
        let waiters = waiters(2, 10);
        let ids: Vec<Raw> = (0..11).map(raw).collect();
        let refused = |ids| waiters.enter(ids).err().map(|status| status.message().to_owned()).unwrap();
        assert_eq!(refused(&ids), "11 more make 11 ids; at most 10 ids may be waited for by all calls together");
        let _both = (waiters.enter(&ids[..4]).unwrap(), waiters.enter(&ids[..6]).unwrap());
        assert_eq!(refused(&ids[..1]), "2 calls wait already; at most 2 may");
    }
}
