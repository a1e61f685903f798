//! Statistics of pairs of runs of two builds: pure functions, no clock and no processes.
//!
//! A pair is one run of the old build and one of the new build, started one after the other. A run's figure is the median of
//! its timings: timings of one run share processes and the placement of their memory, so only runs count as independent.
//!
//! The estimate is that of Hodges and Lehmann: the median of the means of any two pairs' log ratios. A few pairs that
//! something else on the machine spoiled hardly move it. The interval belongs to it: Wilcoxon's signed-rank test, exact for
//! any number of pairs, with no assumption but symmetry, which two runs of one build have by construction.

use serde::Serialize;

/// Fewer pairs give the verdict "open", however clear they are.
pub(super) const FEWEST_PAIRS: usize = 20;
/// The most pairs; the verdict is made with the interval they give.
pub(super) const MOST_PAIRS: usize = 60;
/// An interval is narrow from this half-width on.
pub(super) const NARROW: f64 = 0.025;
/// Seconds that the pairs of a group of fields may take.
pub(super) const MOST_SECONDS: f64 = 20.0 * 60.0;
/// The chance of an interval to miss on one side.
const MISS: f64 = 0.025;

/// A ratio of two builds and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Estimate {
    /// The ratio.
    pub(super) ratio: f64,
    /// The interval's lower end; zero where there are too few pairs for an interval.
    pub(super) low: f64,
    /// The interval's upper end; null in JSON where there are too few pairs for an interval.
    pub(super) high: f64,
}

impl Estimate {
    /// The estimate from the pairs' ratios, which are positive.
    pub(super) fn of(ratios: &[f64]) -> Self {
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mut means: Vec<f64> = (0..logs.len())
            .flat_map(|i| (i..logs.len()).map(move |j| (i, j)))
            .map(|(i, j)| f64::midpoint(logs[i], logs[j]))
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let ratio = crate::bench::compare::median(&means).exp();
        match beyond(logs.len()).checked_sub(1) {
            Some(end) => Self { ratio, low: means[end].exp(), high: means[means.len() - 1 - end].exp() },
            None => Self { ratio, low: 0.0, high: f64::INFINITY },
        }
    }

    /// Half of the interval.
    pub(super) fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The lower end's place among the sorted means, counted from one; zero where no interval is that sure. It is the
/// largest place for which the signed-rank sum of `pairs` stays below it with a chance of at most [`MISS`].
fn beyond(pairs: usize) -> usize {
    // How likely each sum of a random subset of the ranks 1..=pairs is.
    let mut chances = vec![0.0; pairs * (pairs + 1) / 2 + 1];
    chances[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (0..=rank * (rank + 1) / 2).rev() {
            let with = sum.checked_sub(rank).map_or(0.0, |rest| chances[rest]);
            chances[sum] = f64::midpoint(chances[sum], with);
        }
    }
    let sums = chances.iter().scan(0.0, |total, chance| {
        *total += chance;
        Some(*total)
    });
    sums.take_while(|&total| total <= MISS).count()
}

/// The verdict of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Verdict {
    /// The new build is not slower by more than 5 %.
    Pass,
    /// The new build is slower.
    Fail,
    /// Too much noise to tell.
    Open,
}

impl Verdict {
    /// The verdict on `estimate`, a speed of the new build over the old one, from `pairs` pairs.
    pub(super) fn of(estimate: &Estimate, pairs: usize) -> Self {
        match estimate {
            _ if pairs < FEWEST_PAIRS => Self::Open,
            Estimate { ratio, high, .. } if *high < 1.0 && *ratio < 0.97 => Self::Fail,
            Estimate { low, .. } if *low >= 0.95 => Self::Pass,
            _ => Self::Open,
        }
    }
}

/// Whether CPU seconds, new over old, rise by no more than 3 %.
pub(super) fn cpu_is_alike(new_over_old: f64) -> bool {
    new_over_old <= 1.03
}

/// Whether two more pairs are not worth their time. `widest` is the half-width of the widest interval, `seconds` the
/// time of all `pairs` so far.
pub(super) fn is_enough(pairs: usize, widest: f64, seconds: f64) -> bool {
    let two_more = seconds / pairs.max(1) as f64 * 2.0;
    pairs >= MOST_PAIRS || (pairs >= FEWEST_PAIRS && widest <= NARROW) || seconds + two_more > MOST_SECONDS
}

#[cfg(test)]
mod tests;
