//! This client's look-ups, kept for whoever records them, as long as somebody does.
//!
//! Look-ups on the same host reach nobody, so a catalog cannot see them: clients tell of theirs. The catalogs' members say whether
//! somebody listens; while nobody does, a look-up costs one load of an atomic here. What is kept is bounded, also while no catalog
//! answers; what does not fit is counted, and told with the next report.

use crate::catalogs::Recorder;
use crate::client::Client;
use crate::core::Core;
use crate::counters::add;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tidepool_locks::Mutex;
use tidepool_schema::{LookupReport, MAX_CHAINS, MAX_IDS, Missing};
use tidepool_types::{BlockId, Deadline};

/// See the file's head.
#[derive(Default)]
pub(crate) struct Recorded {
    /// The kinds of look-ups that somebody listens to.
    wanted: AtomicU32,
    /// Short sections: adding one look-up, taking all.
    kept: Mutex<Kept>,
}

/// Look-ups since the last report.
#[derive(Default)]
struct Kept {
    /// All ids, packed.
    ids: Vec<u8>,
    lengths: Vec<u32>,
    made: Vec<Instant>,
    kinds: Vec<u8>,
    missing: Missing,
    /// Whether they are kept for longer than usual, as no catalog answers.
    is_held_up: bool,
}

impl Recorded {
    /// Whether somebody listens to this kind of look-ups.
    pub(crate) fn wants(&self, kind: u8) -> bool {
        self.wanted.load(Ordering::Relaxed) & u32::from(kind) != 0
    }

    /// Takes over what somebody listens to now.
    pub(crate) fn want(&self, wanted: u32) {
        if self.wanted.swap(wanted, Ordering::Relaxed) != 0 && wanted == 0 {
            *self.kept.lock() = Kept::default();
        }
    }

    /// Keeps a look-up, if there is room for it.
    pub(crate) fn note(&self, kind: u8, ids: &[BlockId]) {
        let made = Instant::now();
        let mut kept = self.kept.lock();
        if ids.is_empty() {
            return;
        }
        if kept.ids.len() + ids.len() * BlockId::LEN > MAX_IDS * BlockId::LEN || kept.lengths.len() >= MAX_CHAINS {
            let reason = if kept.is_held_up { &mut kept.missing.untold } else { &mut kept.missing.dropped };
            *reason += 1;
            return;
        }
        ids.iter().for_each(|id| kept.ids.extend_from_slice(id.as_bytes()));
        kept.lengths.push(ids.len() as u32);
        kept.made.push(made);
        kept.kinds.push(kind);
    }

    /// Takes what was kept; `None` when that is nothing.
    fn take(&self) -> Option<LookupReport> {
        let mut kept = self.kept.lock();
        if kept.lengths.is_empty() && kept.missing == Missing::default() {
            return None;
        }
        let Kept { ids, lengths, made, kinds, missing, .. } = std::mem::take(&mut *kept);
        drop(kept);
        let age = |made: &Instant| u32::try_from(made.elapsed().as_millis()).unwrap_or(u32::MAX);
        let ages = made.iter().map(age).collect();
        let Missing { dropped, untold, unheard } = missing;
        Some(LookupReport { ids: ids.into(), lengths, ages, kinds: kinds.into(), dropped, untold, unheard })
    }

    /// No catalog answers: what was kept is kept on.
    fn hold(&self) {
        self.kept.lock().is_held_up = true;
    }

    /// These are missing.
    fn miss(&self, missing: Missing) {
        let mut kept = self.kept.lock();
        kept.missing = kept.missing.and(missing);
    }
}

impl Client {
    /// Listens to the prefix matches of all of the pool's clients, and to existence checks if wanted, through every catalog that
    /// answers. Clients notice within a second or so, those that are made later at once. `None` without catalogs.
    #[must_use]
    pub fn record(&self, with_existence_checks: bool) -> Option<Recorder<'_>> {
        self.core().catalogs.record(with_existence_checks)
    }
}

impl Core {
    /// Tells a catalog of the look-ups since the last time.
    pub(crate) fn report_lookups(&self, deadline: Deadline) {
        if !self.catalogs.any_answers() {
            return self.recorded.hold();
        }
        let Some(report) = self.recorded.take() else { return };
        let (told, missing) = (report.lengths.len() as u64, Missing::of(&report));
        if self.catalogs.report(report, deadline) {
            add(&self.counters.lookups_told, told);
            add(&self.counters.lookups_untold, missing.total());
        } else {
            // The catalog may have taken them: telling of them again would have them twice.
            self.recorded.miss(missing.and(Missing { untold: told, ..Missing::default() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_schema::{EXISTENCE_CHECK, PREFIX_MATCH};

    fn ids(count: usize) -> Vec<BlockId> {
        (0..count as u64).map(|n| BlockId::from_words([n, n])).collect()
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_counted() {
        let recorded = Recorded::default();
        recorded.note(PREFIX_MATCH, &ids(MAX_IDS - 1));
        recorded.note(PREFIX_MATCH, &ids(2));
        recorded.note(EXISTENCE_CHECK, &ids(1));
        recorded.note(EXISTENCE_CHECK, &[]);
        let report = recorded.take().expect("there is something");
        assert_eq!((&report.lengths[..], report.dropped), (&[MAX_IDS as u32 - 1, 1][..], 1));
        assert_eq!((report.ids.len(), report.ages.len()), (MAX_IDS * BlockId::LEN, 2));
        assert_eq!(report.kinds, [PREFIX_MATCH, EXISTENCE_CHECK][..]);
        (0..MAX_CHAINS + 5).for_each(|_| recorded.note(PREFIX_MATCH, &ids(1)));
        let report = recorded.take().expect("there is something");
        assert_eq!((report.lengths.len(), report.dropped), (MAX_CHAINS, 5));
        assert!(recorded.take().is_none());
    }

    /// It was said that there was no room, of look-ups that no catalog had asked for in time.
    #[test]
    fn what_is_missing_is_counted_by_its_reason() {
        let recorded = Recorded::default();
        recorded.hold();
        recorded.note(PREFIX_MATCH, &ids(MAX_IDS));
        recorded.note(PREFIX_MATCH, &ids(1));
        recorded.miss(Missing { untold: 5, ..Missing::default() });
        let report = recorded.take().expect("there is something");
        assert_eq!((report.lengths.len(), Missing::of(&report)), (1, Missing { untold: 6, ..Missing::default() }));
        recorded.note(PREFIX_MATCH, &ids(MAX_IDS + 1));
        let report = recorded.take().expect("there is something");
        assert_eq!(Missing::of(&report), Missing { dropped: 1, ..Missing::default() });
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let recorded = Recorded::default();
        assert!(!recorded.wants(PREFIX_MATCH));
        recorded.want(1);
        assert!(recorded.wants(PREFIX_MATCH) && !recorded.wants(EXISTENCE_CHECK));
        recorded.note(PREFIX_MATCH, &ids(3));
        recorded.want(0);
        assert!(!recorded.wants(PREFIX_MATCH) && recorded.take().is_none());
    }
}
