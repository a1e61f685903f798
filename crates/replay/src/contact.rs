//! Whether the pool still answers, as all engines together see it, and when it did not.

use crate::progress::Counts;
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_trace::BlockHash;

/// A pool that has taken no block for so long, though asked to, is gone.
const GONE_AFTER: Duration = Duration::from_secs(10);
/// Outages that are told apart; further ones count with the last.
const MOST_OUTAGES: usize = 1000;

/// A time in which the pool took nothing, though asked to, and after which it did again. All times are the trace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When the first put began that failed.
    pub began: Duration,
    /// When a block was taken again.
    pub ended: Duration,
    /// Blocks that were not taken meanwhile.
    pub failed_puts: u64,
    /// Look-ups that no catalog answered meanwhile.
    pub failed_lookups: u64,
}

/// Since when the pool takes nothing, and when else it did not.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    // Short sections.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    refusing: Option<Refusing>,
    /// What failed since it last took a block.
    failed_puts: u64,
    failed_lookups: u64,
    outages: Vec<Outage>,
}

/// It has refused everything.
#[derive(Debug, Clone, Copy)]
struct Refusing {
    /// Since when that is known.
    since: Instant,
    /// When the first put began that failed, in the trace's time.
    began: Duration,
    /// The first block that it did not take.
    block: BlockHash,
    /// What had been counted before.
    counts: Counts,
}

impl Contact {
    /// It took a block, or said for a good reason that it does not.
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

    /// No catalog answered a look-up.
    pub(crate) fn unanswered(&self) {
        self.state.lock().failed_lookups += 1;
    }

    /// No node takes anything, as these blocks of a put that began at `began`, before which so much had been counted. Says whether
    /// that has been so for so long that the pool is gone.
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

    /// The first block that it has not taken; none while it takes blocks.
    pub(crate) fn refused_block(&self) -> Option<BlockHash> {
        self.state.lock().refusing.map(|refusing| refusing.block)
    }

    /// What had been counted when it began to refuse everything; none while it takes blocks.
    pub(crate) fn counts_before(&self) -> Option<Counts> {
        self.state.lock().refusing.map(|refusing| refusing.counts)
    }

    /// Since when it has refused everything; none while it takes blocks.
    pub(crate) fn refusing_since(&self) -> Option<Instant> {
        self.state.lock().refusing.map(|refusing| refusing.since)
    }

    /// When it took nothing for a while.
    pub(crate) fn outages(&self) -> Vec<Outage> {
        self.state.lock().outages.clone()
    }
}

impl State {
    /// Keeps an outage. One of which another engine heard late, when a block had been taken already, is the same as before.
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
