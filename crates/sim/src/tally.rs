//! Tally: the sums of a cache's results over requests.

use crate::Blocks;
use tidepool_trace::Request;

/// Sums over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Blocks of their inputs.
    pub blocks: u64,
    /// Blocks that were hit.
    pub hit_blocks: u64,
    /// Tokens of their inputs.
    pub input_tokens: u64,
    /// Tokens in blocks that were hit.
    pub hit_tokens: u64,
    /// Tokens of their answers.
    pub output_tokens: u64,
    /// Requests that met the limits on their times, where there are limits.
    pub within_limits: u64,
}

impl Tally {
    /// The tally of one request with `hits` blocks hit, of `block_tokens` tokens each.
    #[must_use]
    pub fn of(request: &Request, hits: Blocks, block_tokens: u32) -> Self {
        let input_tokens = u64::from(request.input_tokens);
        Self {
            requests: 1,
            blocks: request.blocks.len() as u64,
            hit_blocks: hits.0,
            input_tokens,
            hit_tokens: (hits.0 * u64::from(block_tokens)).min(input_tokens),
            output_tokens: u64::from(request.output_tokens),
            within_limits: 0,
        }
    }

    /// Adds a request with `hits` blocks hit, of `block_tokens` tokens each.
    pub fn add(&mut self, request: &Request, hits: Blocks, block_tokens: u32) {
        *self += Self::of(request, hits, block_tokens);
    }

    /// Blocks hit over all blocks; zero if there are none.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.blocks == 0 { 0.0 } else { self.hit_blocks as f64 / self.blocks as f64 }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.blocks += more.blocks;
        self.hit_blocks += more.hit_blocks;
        self.input_tokens += more.input_tokens;
        self.hit_tokens += more.hit_tokens;
        self.output_tokens += more.output_tokens;
        self.within_limits += more.within_limits;
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut sum, next| {
            sum += next;
            sum
        })
    }
}
