//! Listing, describing and removing.

use super::{Answer, Session};
use regex::bytes::{Regex, RegexBuilder};
use tidepool_store::Hold;
use tidepool_types::BlockId;
use tidepool_wire::message::{Judge, Judgement, KeyEntry, Keys, List, Pattern, Reason, Reply};

/// Most keys of one page.
const MAX_PAGE: u32 = 10_000;
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

impl Session<'_> {
    pub(super) fn list(&self, list: &List) -> Answer {
        let matcher = match Matcher::new(&list.pattern) {
            Ok(matcher) => matcher,
            Err(refusal) => return refusal,
        };
        let (mut entries, mut cursor) = (Vec::new(), list.cursor);
        let limit = list.limit.clamp(1, MAX_PAGE) as usize;
        let next = loop {
            let Some((hold, next)) = self.shared.pool.hold_from(cursor) else { break None };
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
        Answer::Reply(Reply::Keys(Keys { entries, next }))
    }

    pub(super) fn remove_matching(&self, pattern: &Pattern) -> Answer {
        let matcher = match Matcher::new(pattern) {
            Ok(matcher) => matcher,
            Err(refusal) => return refusal,
        };
        let (mut removed, mut cursor) = (0, 0);
        while let Some((hold, next)) = self.shared.pool.hold_from(cursor) {
            cursor = next;
            if intact_key(&hold).is_some_and(|key| matcher.matches(key)) {
                removed += u64::from(self.shared.pool.remove(&hold.id()));
            }
        }
        Answer::Reply(Reply::Count(removed))
    }

    /// Says which blocks are leased, and removes the others if it is told to.
    pub(super) fn judge(&self, judge: &Judge) -> Answer {
        let pool = &self.shared.pool;
        let one = |(id, leased): (&BlockId, bool)| match leased {
            _ if !pool.contains(id) => Judgement::Absent,
            true => Judgement::Leased,
            false if judge.remove && !pool.remove(id) => Judgement::Absent,
            false => Judgement::Free,
        };
        let leased = self.shared.leases.leased(&judge.ids);
        Answer::Reply(Reply::Judged(judge.ids.iter().zip(leased).map(one).collect()))
    }

    pub(super) fn stat(&self) -> Answer {
        let metrics = self.shared.metrics();
        Answer::Reply(Reply::Stat(metrics.iter().map(|metric| (metric.full_name(), metric.number())).collect()))
    }

    pub(super) fn describe(&self, id: &BlockId) -> Answer {
        let held = self.shared.pool.peek(id);
        let entries = held.iter().filter_map(|hold| Some(entry(hold, intact_key(hold)?))).collect();
        self.note_lease(held.iter().map(Hold::id));
        Answer::Reply(Reply::Keys(Keys { entries, next: None }))
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
