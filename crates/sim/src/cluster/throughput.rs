//! Throughput: work done per second.

use crate::Tally;

/// Work done per second in a part of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// The start of that part, in seconds since the first arrival.
    pub from: f64,
    /// The end of that part.
    pub until: f64,
    /// Answers.
    pub requests: f64,
    /// Answers that met the limits on their times.
    pub within_limits: f64,
    /// Tokens of the answered inputs.
    pub input_tokens: f64,
    /// Tokens of the answers.
    pub output_tokens: f64,
}

impl Throughput {
    /// The throughput of a `sum` of requests answered between two seconds.
    pub(super) fn of(sum: &Tally, from: f64, until: f64) -> Self {
        let rate = |amount: u64| if until > from { amount as f64 / (until - from) } else { 0.0 };
        Self {
            from,
            until,
            requests: rate(sum.requests),
            within_limits: rate(sum.within_limits),
            input_tokens: rate(sum.input_tokens),
            output_tokens: rate(sum.output_tokens),
        }
    }
}
