//! Listing, describing and removing.

use super::{Answer, Serving};
use crate::pull::Task;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::HashSet;
use std::time::Duration;
use tidepool_store::Hold;
use tidepool_types::{BlockId, NodeName, Version};
use tidepool_wire::message::{
    BATCH_KEYS, Found, Judge, Judgement, KeyEntry, Keys, List, Offer, Pattern, Reason, Reply, Superseded,
};

/// Most keys of one page.
const MAX_PAGE: u32 = 10_000;
/// Removals that are announced together, when there are many: no more than a catalog takes in well within the time that it
/// is given.
const REMOVED_TOGETHER: u64 = 4096;
/// Memory that a compiled expression may take.
const REGEX_BYTES: usize = 1 << 20;

/// Which keys a request is about.
enum Matcher {
    All,
    Regex(Regex),
}

impl Matcher {
    fn new(pattern: &Pattern) -> Result<Self, Answer> {
        match pattern {
            Pattern::All => Ok(Self::All),
            Pattern::Regex(text) => {
                RegexBuilder::new(text).size_limit(REGEX_BYTES).build().map(Self::Regex).map_err(|error| {
                    // A syntax error is drawn over several lines, of which the last says what is wrong.
                    let error = error.to_string();
                    let problem = error.lines().last().map_or("", |line| line.trim_start_matches("error: "));
                    Answer::Refuse(Reason::Invalid, format!("regular expression {text:?}: {problem}"))
                })
            }
        }
    }

    fn matches(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Regex(regex) => regex.is_match(key),
        }
    }
}

impl Serving<'_> {
    pub(super) fn list(&self, list: &List) -> Answer {
        let matcher = match Matcher::new(&list.pattern) {
            Ok(matcher) => matcher,
            Err(refusal) => return refusal,
        };
        let (mut entries, mut cursor) = (Vec::new(), list.cursor);
        let limit = list.limit.clamp(1, MAX_PAGE) as usize;
        let next = loop {
            let Some((hold, next)) = self.space().memory().hold_from(cursor) else { break None };
            if entries.len() == limit {
                break Some(cursor);
            }
            cursor = next;
            if let Some(key) = intact_key(&hold)
                && matcher.matches(key)
            {
                entries.push(entry(&hold, key));
            }
        };
        Answer::Reply(Reply::Keys(Keys { entries, next, ..Keys::default() }))
    }

    pub(super) fn remove_matching(&self, pattern: &Pattern) -> Answer {
        let matcher = match Matcher::new(pattern) {
            Ok(matcher) => matcher,
            Err(refusal) => return refusal,
        };
        self.space().memory().void_matching(|key| matcher.matches(key));
        let (mut removed, mut cursor) = (0, 0);
        while let Some((hold, next)) = self.space().memory().hold_from(cursor) {
            cursor = next;
            if intact_key(&hold).is_some_and(|key| matcher.matches(key)) {
                removed += u64::from(self.space().memory().remove(&hold.id()));
                if removed % REMOVED_TOGETHER == 0 {
                    self.shared.announce_all();
                }
            }
        }
        self.shared.announce_all();
        Answer::Reply(Reply::Count(removed))
    }

    /// Says which blocks are leased, and removes the others if it is told to.
    pub(super) fn judge(&self, judge: &Judge) -> Answer {
        let memory = &self.space().memory();
        let one = |(id, leased): (&BlockId, bool)| match memory.peek(id).map(|hold| hold.writer()) {
            None => Judgement::Absent,
            Some(writer) if judge.writer.is_some_and(|wanted| wanted != writer) => Judgement::Foreign,
            Some(_) if leased => Judgement::Leased,
            Some(_) if judge.remove && !memory.remove(id) => Judgement::Absent,
            Some(_) => Judgement::Free,
        };
        let leased = self.leased(&judge.ids);
        let judgements = judge.ids.iter().zip(leased).map(one).collect();
        if judge.remove {
            self.shared.announce_all();
        }
        Answer::Reply(Reply::Judged(judgements))
    }

    /// Which of `ids` are leased. A lease on one block of a group is one on all of them.
    fn leased(&self, ids: &[BlockId]) -> Vec<bool> {
        let groups: Vec<Vec<BlockId>> = ids.iter().map(|id| self.space().memory().group_of(id)).collect();
        let asked: Vec<BlockId> = ids.iter().chain(groups.iter().flatten()).copied().collect();
        let mut leased = self.space().leases.leased(&asked).into_iter();
        let mut own: Vec<bool> = leased.by_ref().take(ids.len()).collect();
        for (own, group) in own.iter_mut().zip(&groups) {
            *own |= leased.by_ref().take(group.len()).fold(false, |any, leased| any | leased);
        }
        own
    }

    /// Removes copies that are older than a version, and says who else may have them.
    pub(super) fn supersede(&self, items: &[(BlockId, Version)]) -> Answer {
        let outcomes = items.iter().map(|(id, version)| self.space().memory().supersede(id, *version)).collect();
        self.shared.announce_all();
        let asked: HashSet<BlockId> = items.iter().map(|(id, _)| *id).collect();
        let pullers = self.space().pulls.pullers(|id| asked.contains(id));
        Answer::Reply(Reply::Superseded(Superseded { items: outcomes, pullers }))
    }

    /// Tells a node that is about to copy blocks which of them are here, and remembers it.
    pub(super) fn offer(&self, offer: Offer) -> Answer {
        if offer.keys_wanted && offer.ids.len() > BATCH_KEYS {
            let message = format!("an offer of {} blocks: with keys wanted at most {BATCH_KEYS}", offer.ids.len());
            return Answer::Refuse(Reason::Invalid, message);
        }
        match NodeName::new(offer.node) {
            Ok(node) => {
                self.space().pulls.note(node, &offer.ids);
                match offer.keys_wanted {
                    true => self.confirm_with_keys(&offer.ids),
                    false => self.confirm(&offer.ids.into()),
                }
            }
            Err(error) => Answer::Refuse(Reason::Invalid, error.to_string()),
        }
    }

    /// As [`Serving::confirm`], with the keys of the blocks that are held.
    fn confirm_with_keys(&self, ids: &[BlockId]) -> Answer {
        let memory = &self.space().memory();
        let mut found = Found::from(memory.confirm(ids));
        for (id, copy) in ids.iter().zip(&mut found.copies) {
            let held = copy.and_then(|_| memory.peek(id));
            match held.as_ref().and_then(intact_key) {
                Some(key) => found.keys.push(key.to_vec()),
                // It is gone by now, or damaged.
                None => *copy = None,
            }
        }
        self.shared.announce_all();
        Answer::Reply(Reply::Found(found))
    }

    /// Copies blocks from another node, for as long as the client waits for it.
    pub(super) fn pull(&self, task: &Task<'_>) -> Answer {
        let is_wanted = || !self.shared.stop.is_set() && !self.connection.socket().has_hung_up();
        Answer::Reply(Reply::Pulled(crate::pull::run(self.shared, self.space(), task, &is_wanted)))
    }

    /// Takes no new blocks for a while. A block counts as on its way from before it is looked whether this is so.
    pub(super) fn drain(&self, period: Duration) -> Answer {
        self.shared.draining.set(period);
        Answer::Reply(Reply::Count(self.space().memory().stats().reserved))
    }

    pub(super) fn remove(&self, ids: &[BlockId]) -> Answer {
        let removed = ids.iter().map(|id| self.space().memory().remove(id)).collect();
        self.shared.announce_all();
        Answer::Reply(Reply::Removed(removed))
    }

    pub(super) fn stat(&self) -> Answer {
        let metrics = self.shared.metrics();
        Answer::Reply(Reply::Stat(metrics.iter().map(|metric| (metric.full_name(), metric.number())).collect()))
    }

    pub(super) fn describe(&self, id: &BlockId) -> Answer {
        let held = self.space().memory().peek(id);
        let entries = held.iter().filter_map(|hold| Some(entry(hold, intact_key(hold)?))).collect();
        self.note_lease(held.iter().map(Hold::id));
        Answer::Reply(Reply::Keys(Keys { entries, ..Keys::default() }))
    }
}

/// The key of a block. What is stored under a damaged one is no match for anything: it is quarantined instead.
fn intact_key(hold: &Hold) -> Option<&[u8]> {
    let key = hold.key();
    if key.is_none() {
        hold.quarantine_if_damaged();
    }
    key
}

fn entry(hold: &Hold, key: &[u8]) -> KeyEntry {
    KeyEntry {
        key: key.to_vec(),
        len: hold.bytes().len() as u64,
        copy: hold.copy(),
        writer: hold.writer(),
        // The hold that this listing itself takes does not count.
        views: hold.holds().saturating_sub(1),
    }
}
