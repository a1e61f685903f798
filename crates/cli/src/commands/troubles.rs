//! Troubles between a replay and its pool: in words and in numbers, and whether they make the report a partial one.

use super::traces::{counted, rounded};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidepool_replay::{Absence, Counts, Outage, Partial, Progress, Replay, Settings};

/// A trouble in more than this part of the requests to the pool, or of the time, makes the report partial.
const NOTABLE: f64 = 0.01;
/// With a slowdown above this factor, engines met in another order than they should.
const TOO_SLOW: f64 = 2.0;
/// The most outages in the text, if they are long enough; JSON has all of them.
const TOLD: usize = 3;
const WORTH_TELLING: f64 = 0.1;
/// The shortest silence of a node in the text, in seconds: on a busy machine shorter ones are common.
const SILENCE: f64 = 1.0;
/// The most absences of nodes in the text; JSON has all of them.
const MOST_NODES: usize = 10;

/// Why a report is partial.
const FAILED: &str = "the pool failed in more than 1 % of the time, of the look-ups or of the blocks: blocks that it would have served count as misses";
const OTHER_BLOCKS: &str = "blocks of another length are stored under this run's name, and look-ups of them count as misses: \
    the pool did not fail; give another --name, or the --token-bytes that they were stored with";

/// The troubles of a replay, and the counts to judge them by.
pub(super) struct Troubles<'a> {
    settings: &'a Settings,
    progress: &'a Progress,
    played: &'a Replay,
}

/// Whether `part` is a notable part of `all`.
fn is_notable(part: f64, all: f64) -> bool {
    part > NOTABLE * all
}

impl<'a> Troubles<'a> {
    /// The troubles of a replay that has ended.
    pub(super) const fn of(settings: &'a Settings, progress: &'a Progress, played: &'a Replay) -> Self {
        Self { settings, progress, played }
    }

    /// Blocks with wrong bytes: there must be none.
    pub(super) fn wrong(&self) -> u64 {
        self.progress.wrong_blocks.load(Ordering::Relaxed)
    }

    /// Why the report does not cover all requests with a pool, if it does not.
    pub(super) fn why_partial(&self) -> Option<&'static str> {
        let Counts { promised_blocks, other_blocks, .. } = self.played.counts;
        let was_dead = self.played.absences.iter().any(|absence| absence.was_dead);
        let reasons = [
            (self.has_failed(), FAILED),
            (is_notable(other_blocks as f64, promised_blocks as f64), OTHER_BLOCKS),
            (was_dead, "a node of the pool went away: its blocks count as misses"),
        ];
        let reason = reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason));
        self.played.partial.map(why).or(reason)
    }

    /// Whether the pool failed in a notable part of its requests. A block evicted between look-up and read is no
    /// failure: pools that are small for their traffic evict.
    fn has_failed(&self) -> bool {
        let Counts { put_blocks, held_blocks, failed_puts, lookups, failed_lookups, .. } = self.played.counts;
        let puts = put_blocks + held_blocks + failed_puts;
        let out: f64 = self.played.outages.iter().map(|outage| self.lasted(outage)).sum();
        is_notable(out, self.played.ended.as_secs_f64() / self.settings.pace)
            || is_notable(failed_puts as f64, puts as f64)
            || is_notable(failed_lookups as f64, lookups as f64)
    }

    /// The real length of an outage, in seconds.
    fn lasted(&self, outage: &Outage) -> f64 {
        self.real_seconds(outage.began, outage.ended)
    }

    /// The real seconds between two times of the trace.
    fn real_seconds(&self, began: Duration, ended: Duration) -> f64 {
        ended.saturating_sub(began).as_secs_f64() / self.settings.pace
    }

    /// A sentence for each trouble.
    pub(super) fn remarks(&self) -> Vec<String> {
        let Counts { lookups, failed_lookups, other_blocks, too_large_puts, no_space_puts, .. } = self.played.counts;
        let size = rounded(self.settings.cluster.block_bytes);
        let some = |count: u64| Some(count).filter(|count| *count > 0);
        let not_taken = |count: u64| format!("{} not taken", counted(count, "block was", "blocks were"));
        let counts = [
            some(failed_lookups).map(|failed| {
                let all = counted(lookups, "look-up", "look-ups");
                format!("of {all} no catalog answered {failed}: the blocks they would have found count as missing")
            }),
            some(too_large_puts)
                .map(|count| format!("{}: a block of {size} is larger than any node could take", not_taken(count))),
            some(no_space_puts).map(|count| format!("{}: no node had room in time", not_taken(count))),
            some(other_blocks).map(|count| {
                let found = counted(count, "time a look-up found a block", "times look-ups found blocks");
                format!(
                    "{found} of another length than this run's {size}, stored under its name ({}) before: they serve nobody; \
                     give another --name, or the --token-bytes that they were stored with",
                    self.settings.name
                )
            }),
        ];
        let nodes = self.played.absences.iter().filter_map(|absence| self.absence(absence)).take(MOST_NODES);
        self.outages()
            .into_iter()
            .chain(nodes)
            .chain(counts.into_iter().flatten())
            .chain(self.afterwards())
            .chain(self.lag())
            .collect()
    }

    /// The requests played without a pool, once that was gone.
    fn afterwards(&self) -> Option<String> {
        let Replay { counts, all_counts: all, .. } = self.played;
        let requests = counted(all.answered - counts.answered, "request was", "requests were");
        let puts = counted(all.failed_puts - counts.failed_puts, "block was", "blocks were");
        let lookups = counted(all.failed_lookups - counts.failed_lookups, "look-up was", "look-ups were");
        (self.played.partial == Some(Partial::PoolGone)).then(|| {
            format!(
                "{requests} still answered without the pool; {puts} not taken and {lookups} not answered then: this report has none of it"
            )
        })
    }

    /// The lag of this machine behind the schedule, if there was any.
    fn lag(&self) -> Option<String> {
        let (slowdown, pace) = (self.played.counts.slowdown, self.settings.pace);
        (slowdown > TOO_SLOW).then(|| {
            format!(
                "this machine did not keep up with a pace of {pace}: sending requests and computing prompts took {slowdown:.1} times as \
                 long as it should; times do not count that, but requests found what was held later than they should have; a lower --pace helps"
            )
        })
    }

    fn outages(&self) -> Vec<String> {
        let outages = self.played.outages.iter();
        let (mut told, mut others): (Vec<&Outage>, Vec<&Outage>) =
            outages.partition(|outage| self.lasted(outage) >= WORTH_TELLING);
        others.extend(told.drain(told.len().min(TOLD)..));
        let told = told.iter().map(|outage| {
            let (began, lasted) = (outage.began.as_secs_f64(), self.lasted(outage));
            let puts = counted(outage.failed_puts, "block was", "blocks were");
            let lookups = counted(outage.failed_lookups, "look-up was", "look-ups were");
            format!(
                "the pool took nothing for {lasted:.1} s, from {began:.1} s of the trace's time on: {puts} not taken, {lookups} not answered"
            )
        });
        let more = (!others.is_empty()).then(|| {
            let seconds: f64 = others.iter().map(|outage| self.lasted(outage)).sum();
            let puts = counted(others.iter().map(|outage| outage.failed_puts).sum(), "block was", "blocks were");
            let times = counted(others.len() as u64, "other time", "other times");
            format!("the pool took nothing {times}, for {seconds:.3} s in all: {puts} not taken")
        });
        told.chain(more).collect()
    }

    /// A node's absence, and its possible cost.
    fn absence(&self, absence: &Absence) -> Option<String> {
        let Absence { node, began, ended, left, was_dead, lost_blocks } = absence;
        let seconds = self.real_seconds(*began, ended.unwrap_or(self.played.ended));
        let what = match (was_dead, ended) {
            (false, Some(_)) if seconds < SILENCE => return None,
            (false, Some(_)) => format!("was silent for {seconds:.1} s"),
            (false, None) => format!("was silent in the end, for {seconds:.1} s"),
            (true, None) if *left => "was stopped and did not come back".to_owned(),
            (true, None) => "went away without a word and did not come back".to_owned(),
            (true, Some(_)) => format!("went away and came back after {seconds:.1} s"),
        };
        let (began, lost) = (began.as_secs_f64(), counted(*lost_blocks, "block", "blocks"));
        Some(format!(
            "node {node} {what}, from {began:.1} s of the trace's time on; meanwhile {lost} that a look-up had found could not be read"
        ))
    }

    /// The troubles for people.
    pub(super) fn text(&self) -> String {
        let Counts { put_blocks: put, failed_puts: failed, lost_blocks: lost, slowdown, .. } = self.played.counts;
        let (late, wrong) = (self.played.latest.as_secs_f64(), self.wrong());
        let notes: String = self.remarks().iter().map(|remark| format!("NOTE          {remark}\n")).collect();
        let partial = self.why_partial().map_or_else(String::new, |why| format!("PARTIAL       {why}\n"));
        format!(
            "blocks        {put} put, {failed} not taken, {lost} gone before they were read, {wrong} wrong\n\
             late          {late:.3} s at most; sending and computing took {slowdown:.2} times as long as it should\n{notes}{partial}"
        )
    }

    /// The troubles for machines.
    pub(super) fn json(&self) -> Value {
        let Replay { counts, all_counts: all, .. } = self.played;
        let absence = |absence: &Absence| {
            json!({
                "node": absence.node.as_str(),
                "began_seconds": absence.began.as_secs_f64(),
                "real_seconds": self.real_seconds(absence.began, absence.ended.unwrap_or(self.played.ended)),
                "came_back": absence.ended.is_some(),
                "left": absence.left,
                "was_dead": absence.was_dead,
                "lost_blocks": absence.lost_blocks,
            })
        };
        let outage = |outage: &Outage| {
            json!({
                "began_seconds": outage.began.as_secs_f64(),
                "real_seconds": self.lasted(outage),
                "failed_puts": outage.failed_puts,
                "failed_lookups": outage.failed_lookups,
            })
        };
        json!({
            "wrong_blocks": self.wrong(),
            "lost_blocks": counts.lost_blocks,
            "other_blocks": counts.other_blocks,
            "promised_blocks": counts.promised_blocks,
            "failed_puts": counts.failed_puts,
            "too_large_puts": counts.too_large_puts,
            "no_space_puts": counts.no_space_puts,
            "put_blocks": counts.put_blocks,
            "held_blocks": counts.held_blocks,
            "lookups": counts.lookups,
            "failed_lookups": counts.failed_lookups,
            "outages": self.played.outages.iter().map(outage).collect::<Vec<_>>(),
            "absences": self.played.absences.iter().map(absence).collect::<Vec<_>>(),
            "after_the_pool": {
                "requests": all.answered - counts.answered,
                "failed_puts": all.failed_puts - counts.failed_puts,
                "lost_blocks": all.lost_blocks - counts.lost_blocks,
                "lookups": all.lookups - counts.lookups,
                "failed_lookups": all.failed_lookups - counts.failed_lookups,
            },
            "latest_seconds": self.played.latest.as_secs_f64(),
            "slowdown": counts.slowdown,
            "partial": self.why_partial().is_some(),
            "why_partial": self.why_partial(),
            "ended_early": self.played.partial.map(why),
            "remarks": self.remarks(),
            "pace": self.settings.pace,
        })
    }
}

/// Why a run ended early, and what follows from it.
const fn why(partial: Partial) -> &'static str {
    match partial {
        Partial::Stopped => "it was stopped: this is about the requests that were answered before",
        Partial::PoolGone => {
            "the pool took nothing any more: this is about the requests that were answered while it did"
        }
    }
}

/// The message that fails a run.
pub(super) fn wrong_bytes(blocks: u64) -> String {
    format!("{} with wrong bytes", counted(blocks, "block came", "blocks came"))
}
