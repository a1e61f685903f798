//! What was done a second.

use crate::Tally;

/// What was done a second in a part of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throughput {
    /// When that part begins, in seconds since the first arrival.
    pub from: f64,
    /// When it ends.
    pub until: f64,
    /// Answers.
    pub requests: f64,
    /// Of these, answers that met the limits on their times.
    pub within_limits: f64,
    /// Tokens of the inputs that were answered.
    pub input_tokens: f64,
    /// Tokens of the answers.
    pub output_tokens: f64,
}

impl Throughput {
    /// Of what was answered from one second to another.
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
