//! Look-ups: the length of a prefix that the pool can serve, asked without waiting.
//!
//! A new question goes to a thread, and its first answer is "not yet"; a later call finds the answer. Answers are
//! remembered for a moment, in a bounded table, since an engine asks again about every request that it could not
//! schedule. An answer with missing blocks lasts until the engine has stored some itself. Hashes are chained, so the
//! last hash and the start name the whole question: requests with the same prompt share one answer.

use crate::crew::Crew;
use crate::found::Found;
use crate::keys::{Hashes, KeyPrefix};
use crate::plan::{Need, Window, longest};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_client::{Client, PutOptions};
use tidepool_locks::{Condvar, Mutex};

/// The blocks of one KV group on one rank.
#[derive(Debug, Clone)]
pub struct Chain {
    /// The prefix of their keys.
    pub prefix: KeyPrefix,
    /// Hashed blocks in one of these blocks.
    pub step: usize,
    /// The blocks that a prefix needs.
    pub need: Need,
}

/// Settings of look-ups.
#[derive(Debug, Clone)]
pub struct LookupConfig {
    /// Time after which a look-up answers with the blocks found so far.
    pub deadline: Duration,
    /// How long an answer stays valid after it was first given.
    pub fresh: Duration,
    /// Answers that are remembered; beyond that, the oldest is dropped.
    pub remembered: usize,
    /// Threads that ask the pool.
    pub threads: usize,
    /// Questions that may wait for a thread; further questions are answered with 0.
    pub waiting: usize,
}

impl Default for LookupConfig {
    fn default() -> Self {
        let (deadline, fresh) = (Duration::from_millis(500), Duration::from_secs(1));
        Self { deadline, fresh, remembered: 4096, threads: 2, waiting: 1024 }
    }
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookupStats {
    /// Look-ups in the pool.
    pub lookups: u64,
    /// Hashed blocks asked about.
    pub blocks_asked: u64,
    /// Blocks of these in prefixes that can be loaded.
    pub blocks_found: u64,
    /// Questions answered from memory, not counting each answer's first time.
    pub remembered: u64,
    /// Questions refused, and notes dropped, because too many were waiting.
    pub refused: u64,
    /// Time spent in look-ups.
    pub micros: u64,
}

/// Answers questions about one set of chains.
pub struct Lookup {
    shared: Arc<Shared>,
    crew: Crew<Work>,
}

enum Work {
    Question(Question),
    Note(Vec<u8>, Vec<u8>),
}

struct Shared {
    client: Client,
    chains: Vec<Chain>,
    /// The unit of prefixes, in hashed blocks: whole blocks of every group.
    unit: usize,
    config: LookupConfig,
    /// Short sections: noting and fetching answers.
    answers: Mutex<Answers>,
    arrived: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    lookups: AtomicU64,
    blocks_asked: AtomicU64,
    blocks_found: AtomicU64,
    remembered: AtomicU64,
    refused: AtomicU64,
    micros: AtomicU64,
}

#[derive(Default)]
struct Answers {
    by_question: HashMap<Vec<u8>, Answer>,
    /// Names of questions, the oldest first.
    order: VecDeque<Vec<u8>>,
    /// Number of times that this engine has stored blocks.
    stored: u64,
}

enum Answer {
    /// `stored` is the number of stores when the question was asked.
    Pending { stored: u64 },
    /// `told` is when the answer was first given; until then it does not age, or an engine with long steps would ask
    /// for ever. Where blocks were missing, `missed_at` is the number of stores by then: after another store the blocks
    /// may be there.
    Known { found: Arc<Found>, told: Option<Instant>, missed_at: Option<u64> },
}

impl Lookup {
    /// Starts the threads. Answers are multiples of every chain's step.
    pub fn start(client: &Client, chains: Vec<Chain>, config: LookupConfig) -> io::Result<Self> {
        let unit = chains.iter().fold(1, |unit, chain| lcm(unit, chain.step.max(1)));
        let (threads, waiting) = (config.threads, config.waiting);
        let client = client.within(config.deadline);
        let shared = Arc::new(Shared {
            client,
            chains,
            unit,
            config,
            answers: Mutex::default(),
            arrived: Condvar::new(),
            counters: Counters::default(),
        });
        let pool = shared.client.clone();
        let crew = Crew::start("tidepool-lookup", threads, waiting, move |work: Work, _: &_| match work {
            Work::Question(question) => question.work_out(),
            // No caller waits for a note: if it is lost, only the note is missing from the pool.
            Work::Note(key, value) => drop(pool.put(key, &value, &PutOptions::default())),
        });
        Ok(Self { shared, crew: crew? })
    }

    /// The number of hashed blocks after the first `skip` that can be loaded, or `None` if it is not known yet: ask
    /// again. `hashes` are those after `skip`. Waits for at most `patience`.
    #[must_use]
    pub fn ask(&self, hashes: Hashes, skip: usize, patience: Duration) -> Option<usize> {
        self.find(hashes, skip, patience).map(|found| found.run)
    }

    /// As [`Lookup::ask`], with the place of each block.
    #[must_use]
    pub fn find(&self, hashes: Hashes, skip: usize, patience: Duration) -> Option<Arc<Found>> {
        let nothing = || Some(Arc::default());
        let Some(last) = hashes.last() else { return nothing() };
        if self.shared.chains.is_empty() || !skip.is_multiple_of(self.shared.unit) {
            return nothing();
        }
        let name = [&(skip as u64).to_le_bytes(), last].concat();
        if let Some(answer) = self.shared.recall(&name) {
            return answer.or_else(|| self.shared.wait(&name, patience));
        }
        let found = Found::default();
        let question = Question { shared: Arc::clone(&self.shared), name: name.clone(), hashes, found };
        if let Err(Work::Question(refused)) = self.crew.give(Work::Question(question)) {
            count(&self.shared.counters.refused, 1);
            drop(refused);
            return nothing();
        }
        self.shared.wait(&name, patience)
    }

    /// Tells the look-up that the engine has stored blocks: missing blocks may be there now.
    pub fn have_stored(&self) {
        self.shared.answers.lock().stored += 1;
    }

    /// Stores a small block in the background; drops it when the queue is full.
    pub fn note(&self, key: Vec<u8>, value: Vec<u8>) {
        if self.crew.give(Work::Note(key, value)).is_err() {
            count(&self.shared.counters.refused, 1);
        }
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> LookupStats {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LookupStats {
            lookups: read(&counters.lookups),
            blocks_asked: read(&counters.blocks_asked),
            blocks_found: read(&counters.blocks_found),
            remembered: read(&counters.remembered),
            refused: read(&counters.refused),
            micros: read(&counters.micros),
        }
    }
}

/// A question under way. Dropping it leaves an answer, however it ended.
struct Question {
    shared: Arc<Shared>,
    name: Vec<u8>,
    hashes: Hashes,
    found: Found,
}

impl Question {
    fn work_out(mut self) {
        let (began, counters) = (Instant::now(), &self.shared.counters);
        self.found = self.shared.measure(&self.hashes);
        count(&counters.lookups, 1);
        count(&counters.blocks_asked, self.hashes.len() as u64);
        count(&counters.blocks_found, self.found.run as u64);
        count(&counters.micros, began.elapsed().as_micros() as u64);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let is_whole = self.found.run == self.hashes.len();
        self.shared.learn(&self.name, std::mem::take(&mut self.found), is_whole);
    }
}

impl Shared {
    /// The answer, if it is known; `Some(None)` while it is pending; `None` for a new question, which is pending from
    /// now on.
    fn recall(&self, name: &[u8]) -> Option<Option<Arc<Found>>> {
        let mut answers = self.answers.lock();
        let stored = answers.stored;
        match answers.by_question.get_mut(name) {
            Some(Answer::Pending { .. }) => return Some(None),
            Some(Answer::Known { found, told, missed_at }) => match told {
                None => {
                    *told = Some(Instant::now());
                    return Some(Some(Arc::clone(found)));
                }
                Some(since) if since.elapsed() < self.config.fresh && missed_at.is_none_or(|at| at == stored) => {
                    count(&self.counters.remembered, 1);
                    return Some(Some(Arc::clone(found)));
                }
                Some(_) => {}
            },
            None => {
                if answers.order.len() >= self.config.remembered
                    && let Some(oldest) = answers.order.pop_front()
                {
                    answers.by_question.remove(&oldest);
                }
                answers.order.push_back(name.to_vec());
            }
        }
        answers.by_question.insert(name.to_vec(), Answer::Pending { stored });
        None
    }

    fn learn(&self, name: &[u8], found: Found, is_whole: bool) {
        let mut answers = self.answers.lock();
        // A question that was forgotten meanwhile is asked again.
        if let Some(answer) = answers.by_question.get_mut(name)
            && let Answer::Pending { stored } = *answer
        {
            *answer = Answer::Known { found: Arc::new(found), told: None, missed_at: (!is_whole).then_some(stored) };
        }
        drop(answers);
        self.arrived.notify_all();
    }

    fn wait(&self, name: &[u8], patience: Duration) -> Option<Arc<Found>> {
        let until = Instant::now() + patience;
        let mut answers = self.answers.lock();
        loop {
            if let Some(Answer::Known { found, told, .. }) = answers.by_question.get_mut(name) {
                told.get_or_insert_with(Instant::now);
                return Some(Arc::clone(found));
            }
            if Instant::now() >= until || self.arrived.wait_until(&mut answers, until).timed_out() {
                return None;
            }
        }
    }

    /// Asks the pool for the length of the prefix, and the places of its blocks.
    fn measure(&self, hashes: &Hashes) -> Found {
        let keys = |chain: &Chain, most: usize| -> Vec<Vec<u8>> {
            hashes.every(chain.step).take(most / chain.step).map(|hash| chain.prefix.key(hash)).collect()
        };
        let full: Vec<&Chain> = self.chains.iter().filter(|chain| chain.need == Need::All).collect();
        let wanted: Vec<_> = full.iter().map(|chain| keys(chain, hashes.len())).collect();
        let Ok(matches) = self.client.match_prefix(&wanted) else { return Found::default() };
        let runs = matches.chains.iter().zip(&full).map(|(found, chain)| found.run() * chain.step);
        let most = runs.min().unwrap_or(hashes.len());

        let parted: Vec<(&Chain, usize)> =
            self.chains.iter().filter_map(|chain| Some((chain, window(chain)?))).collect();
        let wanted: Vec<_> = parted.iter().map(|(chain, _)| keys(chain, most)).collect();
        let Ok(held) = self.client.exists(&wanted.concat()) else { return Found::default() };
        let mut rest = &held[..];
        let windows = parted.iter().zip(&wanted).map(|((chain, blocks), keys)| {
            let (held, after) = rest.split_at(keys.len());
            rest = after;
            Window { step: chain.step, blocks: *blocks, held }
        });
        let run = longest(most, self.unit, &windows.collect::<Vec<_>>());
        Found::new(run, &self.chains, matches)
    }
}

fn window(chain: &Chain) -> Option<usize> {
    match chain.need {
        Need::All => None,
        Need::Last(blocks) => Some(blocks),
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
