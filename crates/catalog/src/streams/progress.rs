//! How far one inventory stream has been applied, and what to do with its next message: pure.
//!
//! A page is applied only on top of exactly the changes it reflects, a change only on top of the one before. What came
//! before is a repeat and ignored; anything else means that something was lost, and only a new snapshot heals that.

/// What to do with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A new snapshot begins: forget what the stream said, then apply.
    Start,
    /// Apply it, leaving out as many changes at its start.
    Apply {
        /// Changes that were applied before.
        skip: usize,
    },
    /// Nothing in it is new.
    Ignore,
    /// Something is missing: forget what the stream said and ask for a new snapshot.
    Resync(String),
}

/// What a snapshot page says about itself.
#[derive(Debug, Clone, Copy)]
pub struct PageHead {
    /// Which snapshot of the stream.
    pub snapshot: u64,
    /// Which page of it.
    pub page: u64,
    /// The change that the page reflects.
    pub as_of: u64,
    /// The last page.
    pub last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Everything is ignored until a snapshot above [`Progress::snapshot`] starts.
    Waiting,
    /// Pages are coming in, with deltas between them.
    Loading,
    /// The snapshot is finished.
    Following,
}

/// See the file's head.
#[derive(Debug)]
pub struct Progress {
    phase: Phase,
    snapshot: u64,
    pages: u64,
    applied: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { phase: Phase::Waiting, snapshot: 0, pages: 0, applied: 0 }
    }
}

impl Progress {
    /// The latest change that is applied.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// The snapshot under way, finished or given up.
    #[must_use]
    pub const fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// Pages of it that are applied.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The snapshot is finished, and every change heard of is applied: one that was heard of and is missing is a resync.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Judges a page.
    pub fn page(&mut self, head: PageHead) -> Verdict {
        if head.snapshot > self.snapshot {
            self.snapshot = head.snapshot;
            if head.page != 0 {
                return self.resync(format!("snapshot {} starts with page {}", head.snapshot, head.page));
            }
            (self.pages, self.applied) = (0, head.as_of);
            self.take_page(head.last);
            return Verdict::Start;
        }
        if head.snapshot < self.snapshot || self.phase == Phase::Waiting || head.page < self.pages {
            return Verdict::Ignore;
        }
        if self.phase == Phase::Following || head.page != self.pages || head.as_of != self.applied {
            let (pages, applied) = (self.pages, self.applied);
            let PageHead { page, as_of, .. } = head;
            return self.resync(format!("page {page} as of change {as_of} after {pages} pages and change {applied}"));
        }
        self.take_page(head.last);
        Verdict::Apply { skip: 0 }
    }

    /// Judges `count` changes, the first numbered `first`.
    pub fn deltas(&mut self, first: u64, count: u64) -> Verdict {
        let Some(last) = first.checked_add(count).and_then(|end| end.checked_sub(1)) else { return Verdict::Ignore };
        if self.phase == Phase::Waiting || last <= self.applied || count == 0 {
            return Verdict::Ignore;
        }
        if first > self.applied.saturating_add(1) {
            return self.resync(format!("change {first} came after change {}", self.applied));
        }
        let skip = self.applied + 1 - first;
        self.applied = last;
        Verdict::Apply { skip: skip as usize }
    }

    /// Judges a heartbeat: every change up to `latest` was sent before it.
    pub fn heartbeat(&mut self, latest: u64) -> Verdict {
        if self.phase == Phase::Waiting || latest <= self.applied {
            return Verdict::Ignore;
        }
        self.resync(format!("change {latest} was made and only {} arrived", self.applied))
    }

    fn take_page(&mut self, last: bool) {
        self.pages += 1;
        self.phase = if last { Phase::Following } else { Phase::Loading };
    }

    fn resync(&mut self, reason: String) -> Verdict {
        self.phase = Phase::Waiting;
        self.pages = 0;
        Verdict::Resync(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(snapshot: u64, page: u64, as_of: u64, last: bool) -> PageHead {
        PageHead { snapshot, page, as_of, last }
    }

    fn loaded() -> Progress {
        let mut progress = Progress::default();
        assert_eq!(progress.page(page(1, 0, 10, false)), Verdict::Start);
        assert_eq!(progress.deltas(11, 2), Verdict::Apply { skip: 0 });
        assert_eq!(progress.page(page(1, 1, 12, true)), Verdict::Apply { skip: 0 });
        assert!(progress.is_caught_up());
        progress
    }

    #[test]
    fn repeats_are_ignored_and_overlaps_are_cut() {
        let mut progress = loaded();
        assert_eq!(progress.deltas(11, 2), Verdict::Ignore);
        assert_eq!(progress.deltas(12, 3), Verdict::Apply { skip: 1 });
        assert_eq!(progress.page(page(1, 1, 12, true)), Verdict::Ignore);
        assert_eq!(progress.heartbeat(14), Verdict::Ignore);
        assert_eq!(progress.applied(), 14);
        assert!(progress.is_caught_up());
    }

    #[test]
    fn anything_lost_asks_for_a_snapshot_and_only_a_newer_one_will_do() {
        let lost: [fn(&mut Progress) -> Verdict; 5] = [
            |p| p.deltas(14, 1),
            |p| p.heartbeat(13),
            |p| p.page(page(1, 3, 12, false)),
            |p| p.page(page(1, 2, 12, false)),
            |p| p.page(page(2, 1, 12, false)),
        ];
        for lose in lost {
            let mut progress = loaded();
            assert!(matches!(lose(&mut progress), Verdict::Resync(_)));
            assert!(!progress.is_caught_up());
            assert_eq!(progress.deltas(13, 1), Verdict::Ignore);
            assert_eq!(progress.page(page(1, 0, 12, false)), Verdict::Ignore);
            assert_eq!(progress.page(page(3, 0, 20, true)), Verdict::Start);
            assert_eq!(progress.applied(), 20);
            assert!(progress.is_caught_up());
        }
    }

    #[test]
    fn a_page_is_applied_only_on_top_of_the_changes_it_reflects() {
        for as_of in [9, 11] {
            let mut progress = Progress::default();
            progress.page(page(1, 0, 10, false));
            assert!(matches!(progress.page(page(1, 1, as_of, false)), Verdict::Resync(_)));
        }
    }

    #[test]
    fn nothing_counts_before_the_first_snapshot() {
        let mut progress = Progress::default();
        assert_eq!(progress.deltas(1, 5), Verdict::Ignore);
        assert_eq!(progress.heartbeat(5), Verdict::Ignore);
        assert_eq!(progress.deltas(u64::MAX, u64::MAX), Verdict::Ignore);
        assert!(!progress.is_caught_up());
    }
}
