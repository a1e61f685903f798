//! The report of a simulated or replayed run of a cluster.

use super::{Cluster, Load, Throughput};
use crate::{Blocks, OverTime, Quantiles, Tally};
use std::time::Duration;
use tidepool_trace::{Millis, Request};

/// A queue that is busy for this part of the time holds the cluster back.
const SATURATED: f64 = 0.8;

/// The outcome of one request. Times count from the start of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer {
    /// Blocks that were hit, the engine's own included.
    pub hits: Blocks,
    /// Of these, blocks that the engine had itself.
    pub local: Blocks,
    /// Seconds that its prompt took to compute.
    pub prefill: f64,
    /// When it arrived.
    pub arrived: Duration,
    /// When its first token was out.
    pub first_token: Duration,
    /// Seconds between two of its tokens.
    pub token: f64,
    /// When its last token was out.
    pub done: Duration,
}

impl Answer {
    /// The outcome of a request that has only arrived.
    pub(super) fn arrived(arrived: Duration) -> Self {
        Self { arrived, ..Self::default() }
    }
}

/// The outcome of a trace on a cluster. Times are in microseconds.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Requests, blocks hit anywhere, and requests that met both limits.
    pub tally: Tally,
    /// Of the hits, blocks that the engine had itself.
    pub local_hit_blocks: u64,
    /// Of the hits, blocks that came from a node's disk.
    pub disk_hit_blocks: u64,
    /// Blocks that went out of the pool.
    pub evicted_blocks: u64,
    /// Bytes that went from pool to engines.
    pub loaded_bytes: u64,
    /// Bytes that went from one host to another.
    pub network_bytes: u64,
    /// From arrival to the first token.
    pub first_token: Quantiles,
    /// From arrival to the last token.
    pub end_to_end: Quantiles,
    /// Between two tokens.
    pub between_tokens: Quantiles,
    /// Seconds of GPU time that computing all prompts in full would have taken.
    pub prefill_seconds: f64,
    /// Seconds of GPU time that engines computed.
    pub computed_seconds: f64,
    /// How busy each kind of queue was during [`Report::throughput`].
    pub loads: Vec<Load>,
    /// Requests and hits, by when they were answered.
    pub over_time: OverTime,
    /// Seconds from the first arrival to the last answer.
    pub seconds: f64,
    /// When the first request arrived.
    started: Option<Duration>,
}

impl Report {
    /// Notes that a request arrived: the first arrival begins the run.
    pub fn arrived(&mut self, at: Duration) {
        self.started.get_or_insert(at);
    }

    /// Notes that the run is over.
    pub fn ended(&mut self, at: Duration) {
        self.seconds = at.saturating_sub(self.started.unwrap_or(at)).as_secs_f64();
    }

    /// Notes the outcome of a request on `cluster`.
    pub fn note(&mut self, cluster: &Cluster, request: &Request, answer: &Answer) {
        let Answer { hits, local, prefill, arrived, first_token, token, done } = *answer;
        self.local_hit_blocks += local.0;
        let loaded = (hits.0 - local.0).saturating_mul(cluster.block_bytes);
        self.loaded_bytes = self.loaded_bytes.saturating_add(loaded);
        self.prefill_seconds += cluster.speed.prefill.seconds(0.0, f64::from(request.input_tokens));
        self.computed_seconds += prefill;
        let first = first_token.saturating_sub(arrived);
        let met = first.as_secs_f64() <= cluster.first_token_limit && token <= cluster.token_limit;
        let done_with = Tally { within_limits: met.into(), ..Tally::of(request, hits, cluster.block_tokens) };
        self.tally += done_with;
        self.first_token.add(micros(first));
        self.between_tokens.add(micros(Duration::from_secs_f64(token)));
        self.end_to_end.add(micros(done.saturating_sub(arrived)));
        let since = done.saturating_sub(self.started.unwrap_or(arrived));
        let since = Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        self.over_time.add(since, done_with);
    }

    /// Throughput in the steady state: the middle half of all answers ([`OverTime::middle_half`]). None if the run is
    /// too short to have one.
    #[must_use]
    pub fn steady(&self) -> Option<Throughput> {
        self.over_time.middle_half().map(|(from, until, sum)| Throughput::of(&sum, from, until))
    }

    /// Throughput from the first arrival to the last answer, the cluster's filling and emptying included.
    #[must_use]
    pub fn whole_run(&self) -> Throughput {
        Throughput::of(&self.tally, 0.0, self.seconds)
    }

    /// Throughput in the steady state, or in the whole run if that is too short to have one.
    #[must_use]
    pub fn throughput(&self) -> Throughput {
        self.steady().unwrap_or_else(|| self.whole_run())
    }

    /// The part of all requests that met both limits; none without requests.
    #[must_use]
    pub fn part_within_limits(&self) -> Option<f64> {
        let Tally { requests, within_limits, .. } = self.tally;
        (requests > 0).then(|| within_limits as f64 / requests as f64)
    }

    /// Seconds that a request waited in queues of a kind, on average. A request that waits in several at once counts in
    /// each.
    #[must_use]
    pub fn mean_wait(&self, load: &Load) -> f64 {
        load.waited / self.tally.requests.max(1) as f64
    }

    /// The kind of queue that requests waited in most, if they waited at all: all the time, or only now and then.
    #[must_use]
    pub fn most_waited(&self) -> Option<Load> {
        let waited = self.loads.iter().filter(|load| load.waited > 0.0);
        waited.max_by(|a, b| a.waited.total_cmp(&b.waited)).copied()
    }

    /// The kinds of queues that held the cluster back: those with a queue that was busy most of the time, the longest
    /// waits first. A busy GPU is what the owner pays for; any other kind is worth a look.
    #[must_use]
    pub fn saturated(&self) -> Vec<Load> {
        let mut busy: Vec<Load> = self.loads.iter().filter(|load| load.most >= SATURATED).copied().collect();
        busy.sort_by(|a, b| b.waited.total_cmp(&a.waited));
        busy
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
