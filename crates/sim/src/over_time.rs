//! Results over time, in parts that become twice as long whenever there are too many.

use crate::Tally;
use tidepool_trace::Millis;

/// The most parts.
const MOST_PARTS: usize = 1024;
/// The fewest seconds, and parts, from which a steady state can be told.
const LEAST_SECONDS: f64 = 10.0;
const LEAST_PARTS: usize = 2;

/// Sums over requests, by time.
#[derive(Debug, Clone)]
pub struct OverTime {
    /// The length of a part.
    width: Millis,
    parts: Vec<Tally>,
}

impl Default for OverTime {
    fn default() -> Self {
        Self { width: Millis(1000), parts: Vec::new() }
    }
}

impl OverTime {
    /// Adds results at this time.
    pub fn add(&mut self, at: Millis, done: Tally) {
        while at.0 / self.width.0 >= MOST_PARTS as u64 {
            self.parts = self.parts.chunks(2).map(|pair| pair.iter().copied().sum()).collect();
            self.width = Millis(self.width.0.saturating_mul(2));
        }
        let part = (at.0 / self.width.0) as usize;
        if self.parts.len() <= part {
            self.parts.resize(part + 1, Tally::default());
        }
        self.parts[part] += done;
    }

    /// Seconds of a part.
    #[must_use]
    pub fn width_seconds(&self) -> f64 {
        self.width.0 as f64 / 1000.0
    }

    /// The first and the last second of the middle half of all requests, and their sums. A load is at its full strength
    /// during that half if it has more than two generations of sessions: one generation comes up and one ends, each
    /// with half a generation's requests. None if the half has too few seconds, or too small a part of all requests, to
    /// tell.
    #[must_use]
    pub fn middle_half(&self) -> Option<(f64, f64, Tally)> {
        let total: u64 = self.parts.iter().map(|part| part.requests).sum();
        let mut sum = 0;
        let running = self.parts.iter().map(|part| {
            sum += part.requests;
            sum
        });
        let sums: Vec<u64> = running.collect();
        let after = |quarters: u64| sums.partition_point(|sum| sum.saturating_mul(4) <= total.saturating_mul(quarters));
        let (first, last) = (after(1), after(3));
        let second = |part: usize| part as f64 * self.width_seconds();
        let (from, until) = (second(first), second(last));
        let is_enough = last >= first + LEAST_PARTS && until - from >= LEAST_SECONDS;
        is_enough.then(|| (from, until, self.parts[first..last].iter().copied().sum()))
    }

    /// The middle second of every part, with its sums.
    pub fn parts(&self) -> impl Iterator<Item = (f64, &Tally)> {
        let middle = |part: usize| (part as f64 + 0.5) * self.width_seconds();
        self.parts.iter().enumerate().map(move |(part, tally)| (middle(part), tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;
    use tidepool_trace::{BlockHash, Request};

    fn one() -> Tally {
        let blocks = vec![BlockHash(1), BlockHash(2)];
        let request = Request { at: Millis(0), input_tokens: 1024, output_tokens: 7, blocks, origin: None };
        Tally { within_limits: 1, ..Tally::of(&request, Blocks(1), 512) }
    }

    #[test]
    fn the_middle_half_leaves_out_the_first_and_the_last_quarter() {
        let mut over_time = OverTime::default();
        for second in 0..100 {
            over_time.add(Millis(second * 1000), one());
        }
        let (from, until, sum) = over_time.middle_half().expect("a hundred seconds are enough");
        assert_eq!((from, until, sum.requests), (25.0, 75.0, 50));
        over_time.add(Millis(u64::MAX), one());
        assert!(over_time.middle_half().is_none());
    }

    /// A single request that came a day after all others took the steady state away from the report: parts of time are long then,
    /// and ten of them were asked for.
    #[test]
    fn one_that_comes_a_day_later_leaves_the_middle_half_where_it_is() {
        let mut over_time = OverTime::default();
        for second in 0..1000 {
            over_time.add(Millis(second * 1000), one());
        }
        over_time.add(Millis(86_400_000), one());
        let (from, until, sum) = over_time.middle_half().expect("eight minutes are enough");
        assert!((128.0..=256.0).contains(&from) && (640.0..=768.0).contains(&until), "{from} to {until}");
        assert_eq!(sum.requests as f64, until - from);
    }

    #[test]
    fn nothing_is_lost_however_long_it_takes() {
        let mut over_time = OverTime::default();
        for at in [0, 999, 1000, 300_000, 86_400_000, u64::MAX] {
            over_time.add(Millis(at), one());
            assert!(over_time.parts.len() <= MOST_PARTS);
        }
        let sum: Tally = over_time.parts.iter().copied().sum();
        assert_eq!((sum.requests, sum.blocks, sum.hit_blocks, sum.hit_tokens), (6, 12, 6, 3072));
        assert_eq!((sum.input_tokens, sum.output_tokens, sum.within_limits), (6144, 42, 6));
    }
}
