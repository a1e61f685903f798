//! A recording: turns look-ups, as the recorder hears of them, into requests of a trace in the order of their times.

use crate::output;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};
use tidepool_client::catalogs::{Heard, HeardLookup, Missing, Recorder};
use tidepool_trace::{BlockHash, Millis, Request};

/// Time that a look-up waits before it is written: clients report every second, so an earlier one may still come.
const HOLD_BACK: Duration = Duration::from_secs(3);
/// Time within which look-ups from before the end are reported.
const LAST_WORDS: Duration = Duration::from_millis(1500);
/// How often the recording checks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// Blocks of look-ups that wait to be written; with more, the earliest is written before its time.
const MOST_WAITING: usize = 4 << 20;
/// Approximate bytes of a line without its blocks, and of each block.
const LINE_BYTES: u64 = 60;
const BLOCK_BYTES: u64 = 16;

/// The bounds that end a recording.
pub(super) struct Bounds {
    pub(super) time: Option<Duration>,
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// The requests of a recording, until it is over.
pub(super) struct Recording<'a, F> {
    recorder: Recorder<'a>,
    started: Instant,
    bounds: Bounds,
    block_tokens: u32,
    is_told_to_end: F,
    /// Drawn for each recording: a block's name in a trace is neither its id nor its name in another trace.
    names: RandomState,
    waiting: BinaryHeap<Reverse<Waiting>>,
    waiting_blocks: usize,
    heard: u64,
    missing: Missing,
    /// The time of the last request.
    last: Millis,
    requests: u64,
    bytes: u64,
    /// The time at which it ended.
    ended: Option<Instant>,
    /// Catalogs that the recorder does not hear, and since when there are any.
    lost: BTreeSet<String>,
    gap_since: Option<Instant>,
    /// The total length of earlier gaps.
    gap: Duration,
}

/// A look-up, ordered by its time and then by when the recorder heard of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at: Instant,
    number: u64,
    blocks: Vec<u64>,
}

impl<'a, F: Fn() -> bool> Recording<'a, F> {
    pub(super) fn new(
        recorder: Recorder<'a>,
        started: Instant,
        bounds: Bounds,
        block_tokens: u32,
        is_told_to_end: F,
    ) -> Self {
        Self {
            recorder,
            started,
            bounds,
            block_tokens,
            is_told_to_end,
            names: RandomState::new(),
            waiting: BinaryHeap::new(),
            waiting_blocks: 0,
            heard: 0,
            missing: Missing::default(),
            last: Millis(0),
            requests: 0,
            bytes: 0,
            ended: None,
            lost: BTreeSet::new(),
            gap_since: None,
            gap: Duration::ZERO,
        }
    }

    /// The option whose bound ended the recording, if one did.
    pub(super) const fn full(&self) -> Option<&'static str> {
        match (self.requests >= self.bounds.requests, self.bytes >= self.bounds.bytes) {
            (true, _) => Some("--limit"),
            (false, true) => Some("--size"),
            (false, false) => None,
        }
    }

    /// Look-ups that are missing.
    pub(super) const fn missing(&self) -> Missing {
        self.missing
    }

    /// Whether everything that will come has come.
    fn is_over(&mut self, now: Instant) -> bool {
        let time_is_up = self.bounds.time.is_some_and(|time| now >= self.started + time);
        if self.ended.is_none() && (time_is_up || (self.is_told_to_end)()) {
            self.ended = Some(now);
        }
        self.ended.is_some_and(|ended| now >= ended + LAST_WORDS)
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Lookups { lookups, missing } => {
                self.missing = self.missing.and(missing);
                lookups.into_iter().for_each(|lookup| self.keep(lookup));
            }
            Heard::Listening(catalog) => {
                output::complain(&format!("catalog {catalog}: listening again"));
                self.lost.remove(&catalog);
                self.note_gap(Instant::now());
            }
            Heard::Lost { catalog, reason, since } => {
                // Once for each loss, not for each retry.
                if self.lost.insert(catalog.clone()) {
                    output::complain(&format!("catalog {catalog}: {reason}; it is tried again"));
                    self.gap_since.get_or_insert(since.max(self.started));
                }
            }
        }
    }

    /// Ends the gap if the recorder hears all catalogs.
    fn note_gap(&mut self, now: Instant) {
        if self.lost.is_empty()
            && let Some(since) = self.gap_since.take()
        {
            self.gap += now - since;
        }
    }

    /// The total time in which the recorder did not hear some catalog, whose look-ups may be missing.
    pub(super) fn gap(&self) -> Duration {
        let open = self.gap_since.map(|since| self.ended.unwrap_or_else(Instant::now).saturating_duration_since(since));
        self.gap + open.unwrap_or_default()
    }

    fn keep(&mut self, HeardLookup { at, ids }: HeardLookup) {
        // A look-up from before the recording was reported for another recorder.
        if at < self.started {
            return;
        }
        let blocks: Vec<u64> = ids.iter().map(|id| self.names.hash_one(id)).collect();
        self.waiting_blocks += blocks.len();
        self.waiting.push(Reverse(Waiting { at, number: self.heard, blocks }));
        self.heard += 1;
    }

    /// The earliest look-up, once no earlier one is expected.
    fn due(&mut self, now: Instant, is_over: bool) -> Option<Waiting> {
        let Reverse(first) = self.waiting.peek()?;
        let is_due = is_over || first.at + HOLD_BACK <= now || self.waiting_blocks > MOST_WAITING;
        let Reverse(first) = is_due.then(|| self.waiting.pop())??;
        self.waiting_blocks -= first.blocks.len();
        Some(first)
    }

    fn request(&mut self, Waiting { at, blocks, .. }: Waiting) -> Request {
        self.requests += 1;
        self.bytes += LINE_BYTES + BLOCK_BYTES * blocks.len() as u64;
        let since = at.saturating_duration_since(self.started).as_millis();
        // A look-up that was reported late comes after those already written.
        self.last = self.last.max(Millis(u64::try_from(since).unwrap_or(u64::MAX)));
        let tokens = blocks.len() as u64 * u64::from(self.block_tokens);
        Request {
            at: self.last,
            input_tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            output_tokens: 0,
            blocks: blocks.into_iter().map(BlockHash).collect(),
            origin: None,
        }
    }
}

impl<F: Fn() -> bool> Iterator for Recording<'_, F> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            if self.full().is_some() {
                return None;
            }
            let now = Instant::now();
            let is_over = self.is_over(now);
            if let Some(due) = self.due(now, is_over) {
                return Some(self.request(due));
            }
            if is_over {
                return None;
            }
            if let Some(heard) = self.recorder.next(LOOK) {
                self.hear(heard);
            }
        }
    }
}
