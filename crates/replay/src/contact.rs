//! Whether the pool still answers, as all engines together see it.

use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tidepool_trace::BlockHash;

/// A pool that has taken no block for so long, though asked to, is gone.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// When the pool answered, and since when it does not.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    // Short sections.
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// When it last answered, in the trace's time.
    answered: Duration,
    /// Since when it has refused everything, and the first block of that.
    refusing: Option<(Instant, BlockHash)>,
}

impl Contact {
    /// It took a block, or said for a good reason that it does not.
    pub(crate) fn took(&self, now: Duration) {
        *self.state.lock() = State { answered: now, refusing: None };
    }

    /// Blocks were read. That says nothing about a pool that takes none any more: what a dead node left can be read for a moment.
    pub(crate) fn read(&self, now: Duration) {
        let mut state = self.state.lock();
        if state.refusing.is_none() {
            state.answered = now;
        }
    }

    /// No node takes anything, as this block. Says whether that has been so for so long that the pool is gone.
    pub(crate) fn refused(&self, block: BlockHash) -> bool {
        let mut state = self.state.lock();
        state.refusing.get_or_insert_with(|| (Instant::now(), block)).0.elapsed() >= GONE_AFTER
    }

    /// The first block that it has not taken; none while it takes blocks.
    pub(crate) fn refused_block(&self) -> Option<BlockHash> {
        self.state.lock().refusing.map(|(_, block)| block)
    }

    /// Since when it has refused everything; none while it takes blocks.
    pub(crate) fn refusing_since(&self) -> Option<Instant> {
        self.state.lock().refusing.map(|(since, _)| since)
    }

    /// When it last answered, in the trace's time.
    pub(crate) fn last_answer(&self) -> Duration {
        self.state.lock().answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_in_doubt_from_its_first_refusal_until_it_takes_a_block_again() {
        let (contact, second) = (Contact::default(), Duration::from_secs);
        contact.took(second(1));
        contact.read(second(2));
        assert_eq!((contact.refusing_since(), contact.last_answer()), (None, second(2)));
        assert!(!contact.refused(BlockHash(1)), "a single refusal is no end");
        let since = contact.refusing_since();
        assert!(since.is_some() && !contact.refused(BlockHash(2)));
        assert_eq!(contact.refused_block(), Some(BlockHash(1)));
        contact.read(second(3));
        assert_eq!((contact.refusing_since(), contact.last_answer()), (since, second(2)));
        contact.took(second(4));
        assert_eq!((contact.refusing_since(), contact.last_answer()), (None, second(4)));
    }
}
