//! What a cache did for a trace.

use crate::Blocks;
use tidepool_trace::Request;

/// Sums over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Blocks of their inputs.
    pub blocks: u64,
    /// Those that were hit.
    pub hit_blocks: u64,
    /// Tokens of their inputs.
    pub input_tokens: u64,
    /// Those in blocks that were hit.
    pub hit_tokens: u64,
}

impl Tally {
    /// Adds a request of which `hits` blocks, of `block_tokens` tokens each, were hit.
    pub fn add(&mut self, request: &Request, hits: Blocks, block_tokens: u32) {
        self.requests += 1;
        self.blocks += request.blocks.len() as u64;
        self.hit_blocks += hits.0;
        self.input_tokens += u64::from(request.input_tokens);
        self.hit_tokens += (hits.0 * u64::from(block_tokens)).min(u64::from(request.input_tokens));
    }

    /// Blocks hit over all blocks; zero if there are none.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { self.hit_blocks as f64 / self.blocks as f64 }
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |sum, next| Self {
            requests: sum.requests + next.requests,
            blocks: sum.blocks + next.blocks,
            hit_blocks: sum.hit_blocks + next.hit_blocks,
            input_tokens: sum.input_tokens + next.input_tokens,
            hit_tokens: sum.hit_tokens + next.hit_tokens,
        })
    }
}
