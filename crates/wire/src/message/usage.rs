//! For which requests of an engine the blocks of a message are used.

use tidepool_types::{BlockId, Origin, UsedFor};

/// Items of a message that follow each other in one prefix and are used for one request.
///
/// The runs of a message cover its items in order, each item once; a message without runs says nothing of the uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many items of the message the run covers; at least 1.
    pub items: u32,
    /// How many blocks of the prefix come before the first of them.
    pub depth: u32,
    /// Where in a conversation the request belongs, as far as its engine knows.
    pub origin: Option<Origin>,
}

impl Run {
    /// What is known of the use of each item that `runs` cover, in order.
    pub fn uses(runs: &[Self]) -> impl DoubleEndedIterator<Item = Option<UsedFor>> {
        let of = |run: &Self, item| Some(UsedFor { depth: run.depth.saturating_add(item), origin: run.origin? });
        runs.iter().flat_map(move |run| (0..run.items).map(move |item| of(run, item)))
    }

    /// The runs of items with these uses: none if nothing is known of any.
    pub fn of_uses(uses: impl IntoIterator<Item = Option<UsedFor>>) -> Vec<Self> {
        let mut runs = Vec::new();
        uses.into_iter().enumerate().for_each(|(before, used)| Self::note(&mut runs, before, used));
        runs
    }

    /// Notes the use of the item that comes behind `before` others. There are no runs until something is known of a use.
    pub fn note(runs: &mut Vec<Self>, before: usize, used: Option<UsedFor>) {
        if runs.is_empty() {
            match used {
                None => return,
                Some(_) if before > 0 => runs.push(Self { items: before as u32, depth: 0, origin: None }),
                Some(_) => {}
            }
        }
        let origin = used.map(|used| used.origin);
        let goes_on = |run: &Self| used.is_none_or(|used| run.depth.checked_add(run.items) == Some(used.depth));
        match runs.last_mut().filter(|run| run.origin == origin && goes_on(run)) {
            Some(run) => run.items += 1,
            None => runs.push(Self { items: 1, depth: used.map_or(0, |used| used.depth), origin }),
        }
    }

    /// Cuts runs behind so many items; the runs of the rest are given back.
    #[must_use]
    pub fn split_off(runs: &mut Vec<Self>, items: usize) -> Vec<Self> {
        let mut left = items as u64;
        let is_before = |run: &&Self| {
            let is_before = u64::from(run.items) <= left;
            left -= if is_before { run.items.into() } else { 0 };
            is_before
        };
        let whole = runs.iter().take_while(is_before).count();
        let mut rest = runs.split_off(whole);
        if let (Some(cut), 1..) = (rest.first_mut(), left) {
            let kept = left as u32;
            runs.push(Self { items: kept, ..*cut });
            *cut = Self { items: cut.items - kept, depth: cut.origin.map_or(cut.depth, |_| cut.depth + kept), ..*cut };
        }
        rest
    }
}

/// Blocks by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ids {
    /// The blocks.
    pub ids: Vec<BlockId>,
    /// Whose uses they are.
    pub runs: Vec<Run>,
}

impl From<Vec<BlockId>> for Ids {
    fn from(ids: Vec<BlockId>) -> Self {
        Self { ids, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_types::{Millis, SessionId};

    fn used(session: u64, depth: u32) -> Option<UsedFor> {
        let origin =
            Origin { session: SessionId(session), parent: None, turn: 0, pause: Millis(0), calls: None, last: false };
        Some(UsedFor { depth, origin })
    }

    #[test]
    fn uses_of_a_prefix_share_a_run_and_without_origins_there_are_no_runs() {
        let uses = [None, None, used(1, 4), used(1, 5), used(1, 7), used(2, 8), None];
        let runs = Run::of_uses(uses);
        assert_eq!(
            runs.iter().map(|run| (run.items, run.depth)).collect::<Vec<_>>(),
            [(2, 0), (2, 4), (1, 7), (1, 8), (1, 0)]
        );
        assert!(Run::uses(&runs).eq(uses));
        assert!(Run::uses(&runs).rev().eq(uses.into_iter().rev()));
        assert!(Run::of_uses([None; 5]).is_empty());
    }

    #[test]
    fn runs_are_cut_where_their_items_are() {
        let uses = [used(1, 4), used(1, 5), used(1, 6), None, None, used(2, u32::MAX - 1), used(2, u32::MAX)];
        for items in 0..=uses.len() {
            let mut front = Run::of_uses(uses);
            let rest = Run::split_off(&mut front, items);
            assert!(Run::uses(&front).eq(uses[..items].iter().copied()), "{items}");
            assert!(Run::uses(&rest).eq(uses[items..].iter().copied()), "{items}");
        }
    }
}
