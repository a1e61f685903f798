//! Statistics of a trace.

use crate::{Blocks, Curve, CurveBuilder, Prefill, Quantiles};
use std::collections::HashSet;
use tidepool_trace::{Millis, Request, SessionId};

/// A trace's statistics, without those of caches.
#[derive(Debug, Clone, Default)]
pub struct TraceStat {
    /// Requests.
    pub requests: u64,
    /// The arrival of the last request.
    pub end: Millis,
    /// Blocks of all inputs.
    pub blocks: u64,
    /// Tokens of inputs.
    pub input_tokens: Quantiles,
    /// Tokens of answers.
    pub output_tokens: Quantiles,
    /// Requests that name their conversation.
    pub in_sessions: u64,
    /// Conversations with at least one request.
    pub sessions: u64,
    /// Milliseconds that conversations paused before their turns.
    pub pauses: Quantiles,
    /// Milliseconds between two uses of a block.
    pub reuse_gaps: Quantiles,
}

/// Gathers a [`TraceStat`] and a [`Curve`] in one pass. Takes memory for the followed blocks and the conversations'
/// ids.
pub struct StatBuilder {
    stat: TraceStat,
    /// Conversations, by id: counting first turns would miss those that began before the trace, and count repeated ones
    /// twice.
    sessions: HashSet<SessionId>,
    curve: CurveBuilder,
}

impl StatBuilder {
    /// An empty builder, for blocks of `block_tokens` tokens, that follows `most_tracked` of them at a time.
    #[must_use]
    pub fn new(most_tracked: usize, block_tokens: u32) -> Self {
        let curve = CurveBuilder::new(most_tracked, Prefill::default(), block_tokens);
        Self { stat: TraceStat::default(), sessions: HashSet::new(), curve }
    }

    /// Adds the next request.
    pub fn add(&mut self, request: &Request) {
        self.stat.add(request);
        self.sessions.extend(request.origin.map(|origin| origin.session));
        self.curve.add(request);
    }

    /// The statistics and the curve.
    #[must_use]
    pub fn finish(self) -> (TraceStat, Curve) {
        let (reuse_gaps, sessions) = (self.curve.reuse_gaps().clone(), self.sessions.len() as u64);
        let stat = TraceStat { reuse_gaps, sessions, ..self.stat };
        (stat, self.curve.finish())
    }
}

impl TraceStat {
    fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.end = self.end.max(request.at);
        self.blocks += request.blocks.len() as u64;
        self.input_tokens.add(u64::from(request.input_tokens));
        self.output_tokens.add(u64::from(request.output_tokens));
        if let Some(origin) = request.origin {
            self.in_sessions += 1;
            if origin.turn > 0 {
                self.pauses.add(origin.pause.0);
            }
        }
    }
}

impl Curve {
    /// The hit rate without a limit: no cache can do better.
    #[must_use]
    pub fn ceiling(&self) -> f64 {
        self.hit_rate(Blocks::UNLIMITED)
    }

    /// How many other blocks were used between two uses of a block.
    #[must_use]
    pub fn reuse_distances(&self) -> Quantiles {
        let mut quantiles = Quantiles::default();
        let unit = self.unit().0;
        for size in (unit..=self.largest().0).step_by(unit as usize) {
            let references = self.hit_references(Blocks(size)) - self.hit_references(Blocks(size - unit));
            quantiles.add_many(size - unit, references.round().max(0.0) as u64);
        }
        quantiles
    }
}
