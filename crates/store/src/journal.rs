//! The last changes of a pool, numbered.

use crate::inventory::{Change, Overrun};
use std::collections::VecDeque;

/// How many changes are kept: an announcer that falls further behind sends a snapshot instead.
const KEPT: usize = 1 << 16;

/// A bounded, numbered list of changes. The first change ever has number 1.
#[derive(Default)]
pub(crate) struct Journal {
    latest: u64,
    kept: VecDeque<Change>,
}

impl Journal {
    /// Numbers a change.
    pub(crate) fn push(&mut self, change: Change) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(change);
        self.latest += 1;
    }

    /// The number of the latest change.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Appends the changes after number `after`, at most `max`.
    pub(crate) fn after(&self, after: u64, max: usize, out: &mut Vec<Change>) -> Result<(), Overrun> {
        let behind = self.latest.checked_sub(after).ok_or(Overrun)?;
        let skip = (self.kept.len() as u64).checked_sub(behind).ok_or(Overrun)?;
        out.extend(self.kept.iter().skip(skip as usize).take(max));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_types::BlockId;

    #[test]
    fn a_journal_gives_every_change_or_says_that_it_cannot() {
        let id = |n: u64| BlockId::from_words([n, 0]);
        let mut journal = Journal::default();
        let total = KEPT as u64 + 10;
        (1..=total).for_each(|n| journal.push(Change::Removed(id(n))));
        let mut out = Vec::new();
        assert_eq!(journal.after(9, 5, &mut out), Err(Overrun));
        assert_eq!(journal.after(total + 1, 5, &mut out), Err(Overrun));
        assert_eq!(journal.after(10, 2, &mut out), Ok(()));
        assert_eq!(out, [Change::Removed(id(11)), Change::Removed(id(12))]);
    }
}
