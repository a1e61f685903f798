//! Contact with the pool, over all engines: whether it takes blocks, and its outages.

use crate::progress::Counts;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_trace::BlockHash;

/// A pool that refuses every block for this long is gone.
const GONE_AFTER: Duration = Duration::from_secs(10);
/// The most outages; a further one is added to the last.
const MOST_OUTAGES: usize = 1000;

/// A time in which the pool refused every block, and after which it took blocks again. All times are the trace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// The start of the first put that failed.
    pub began: Duration,
    /// The time at which the pool took a block again.
    pub ended: Duration,
    /// Blocks refused during the outage.
    pub failed_puts: u64,
    /// Look-ups during the outage that no catalog answered.
    pub failed_lookups: u64,
}

/// The pool's current state and its outages.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    // Short sections.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    refusing: Option<Refusing>,
    /// Failures since the pool last took a block.
    failed_puts: u64,
    failed_lookups: u64,
    outages: Vec<Outage>,
}

/// A time in which the pool has refused every block so far.
#[derive(Debug, Clone, Copy)]
struct Refusing {
    /// The instant of the first refusal.
    since: Instant,
    /// The start of the first put that failed, in the trace's time.
    began: Duration,
    /// The first block refused.
    block: BlockHash,
    /// The counts at the first refusal.
    counts: Counts,
}

impl Contact {
    /// Notes that the pool took a block, or refused it for a good reason.
    pub(crate) fn took(&self, now: Duration) {
        let mut state = self.state.lock();
        let State { failed_puts, failed_lookups, .. } = *state;
        let refusing = state.refusing.take();
        if let Some(Refusing { began, .. }) = refusing {
            state.outage(Outage { began, ended: now, failed_puts, failed_lookups });
        }
        (state.failed_puts, state.failed_lookups) = (0, 0);
        drop(state);
        if let Some(Refusing { since, .. }) = refusing {
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!(seconds, failed_puts, failed_lookups, "the pool takes blocks again");
        }
    }

    /// Notes a look-up that no catalog answered.
    pub(crate) fn unanswered(&self) {
        self.state.lock().failed_lookups += 1;
    }

    /// Notes that no node took these blocks, of a put that began at `began` with these `counts`. Returns whether the
    /// pool is gone after refusing blocks for so long.
    pub(crate) fn refused(&self, block: BlockHash, blocks: usize, began: Duration, counts: Counts) -> bool {
        let mut state = self.state.lock();
        state.failed_puts += blocks as u64;
        let first = || Refusing { since: Instant::now(), began, block, counts };
        let lasts = state.refusing.get_or_insert_with(first).since.elapsed();
        let State { failed_puts, failed_lookups, .. } = *state;
        drop(state);
        tracing::warn!(seconds = lasts.as_secs_f64(), failed_puts, failed_lookups, "the pool takes nothing");
        lasts >= GONE_AFTER
    }

    /// The first block refused; none while the pool takes blocks.
    pub(crate) fn refused_block(&self) -> Option<BlockHash> {
        self.state.lock().refusing.map(|refusing| refusing.block)
    }

    /// The counts at the first refusal; none while the pool takes blocks.
    pub(crate) fn counts_before(&self) -> Option<Counts> {
        self.state.lock().refusing.map(|refusing| refusing.counts)
    }

    /// The instant of the first refusal; none while the pool takes blocks.
    pub(crate) fn refusing_since(&self) -> Option<Instant> {
        self.state.lock().refusing.map(|refusing| refusing.since)
    }

    /// All outages that have ended.
    pub(crate) fn outages(&self) -> Vec<Outage> {
        self.state.lock().outages.clone()
    }
}

impl State {
    /// Adds an outage. An outage that another engine noticed late, when the pool had already taken a block, is part of
    /// the last one.
    fn outage(&mut self, outage: Outage) {
        let is_full = self.outages.len() >= MOST_OUTAGES;
        match self.outages.last_mut() {
            Some(last) if is_full || outage.began <= last.ended => {
                last.began = last.began.min(outage.began);
                last.ended = outage.ended;
                last.failed_puts += outage.failed_puts;
                last.failed_lookups += outage.failed_lookups;
            }
            _ => self.outages.push(outage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn a_pool_is_in_doubt_from_its_first_refusal_until_it_takes_a_block_again() {
        let contact = Contact::default();
        contact.took(second(1));
        assert_eq!(contact.refusing_since(), None);
        assert!(!contact.refused(BlockHash(1), 1, second(2), Counts::default()), "a single refusal is no end");
        let since = contact.refusing_since();
        assert!(since.is_some() && !contact.refused(BlockHash(2), 1, second(2), Counts::default()));
        assert_eq!(contact.refused_block(), Some(BlockHash(1)));
        assert_eq!(contact.refusing_since(), since);
        contact.took(second(4));
        assert_eq!(contact.refusing_since(), None);
    }

    #[test]
    fn an_outage_has_all_that_failed_in_it_also_what_is_heard_of_late() {
        let contact = Contact::default();
        contact.unanswered();
        contact.took(second(1));
        assert_eq!(contact.outages(), [], "a look-up alone says nothing about puts");
        contact.unanswered();
        contact.refused(BlockHash(1), 10, second(2), Counts::default());
        contact.took(second(6));
        contact.refused(BlockHash(1), 5, second(3), Counts::default());
        contact.took(second(7));
        contact.refused(BlockHash(1), 1, second(8), Counts::default());
        contact.took(second(9));
        let first = Outage { began: second(2), ended: second(7), failed_puts: 15, failed_lookups: 1 };
        let second = Outage { began: second(8), ended: second(9), failed_puts: 1, failed_lookups: 0 };
        assert_eq!(contact.outages(), [first, second]);
    }
}
