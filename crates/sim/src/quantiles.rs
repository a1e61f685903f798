//! Quantiles of values, in bounded memory: exact below 128, within 1 % above.

/// Steps between two powers of two.
const STEPS_LOG: u32 = 6;
const STEPS: u64 = 1 << STEPS_LOG;

/// Counts of values.
#[derive(Debug, Clone, Default)]
pub struct Quantiles {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    largest: u64,
}

impl Quantiles {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Adds a value `count` times.
    pub fn add_many(&mut self, value: u64, count: u64) {
        let step = step(value);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += count;
        self.total += count;
        self.sum += u128::from(value) * u128::from(count);
        self.largest = self.largest.max(value);
    }

    /// Number of values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The largest value; zero if there is none.
    #[must_use]
    pub const fn largest(&self) -> u64 {
        self.largest
    }

    /// The mean; zero if there are no values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum as f64 / self.total as f64 }
    }

    /// The value that `part` of all values do not exceed; zero if there are none.
    #[must_use]
    pub fn at(&self, part: f64) -> u64 {
        let rank = ((part.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reaches = |count: &u64| {
            below += count;
            below >= rank
        };
        self.counts.iter().position(reaches).map_or(0, |step| middle(step).min(self.largest))
    }

    /// The part of values that are at most `limit`; one if there are none.
    #[must_use]
    pub fn within(&self, limit: u64) -> f64 {
        let counted: u64 = self.counts.iter().take(step(limit) + 1).sum();
        if self.total == 0 { 1.0 } else { counted as f64 / self.total as f64 }
    }

    /// Number of values from each power of two up to the next, from the smallest to the largest.
    #[must_use]
    pub fn octaves(&self) -> Vec<(u64, u64)> {
        let mut octaves: Vec<(u64, u64)> = Vec::new();
        for (step, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let from = middle(step).checked_ilog2().map_or(0, |log| 1 << log);
            match octaves.last_mut() {
                Some((last, sum)) if *last == from => *sum += count,
                _ => octaves.push((from, *count)),
            }
        }
        octaves
    }
}

/// The step of a value; values of one step count as equal.
fn step(value: u64) -> usize {
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_LOG);
    (u64::from(shift) * STEPS + (value >> shift)) as usize
}

/// A value in the middle of a step.
fn middle(step: usize) -> u64 {
    let step = step as u64;
    let shift = (step / STEPS).saturating_sub(1);
    let low = (step - shift * STEPS) << shift;
    low + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_exact_and_large_ones_within_a_per_cent() {
        for value in (0..128).chain((7..63).map(|bit| (1 << bit) + 12_345 % (1 << bit))) {
            let mut quantiles = Quantiles::default();
            quantiles.add(value);
            quantiles.add(u64::MAX);
            let found = quantiles.at(0.5);
            assert!(found.abs_diff(value) as f64 <= value as f64 * 0.01, "{value} {found}");
            assert!(value >= 128 || found == value, "{value} {found}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut quantiles = Quantiles::default();
        (1..=100).for_each(|value| quantiles.add(value));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| quantiles.at(part)), [1, 50, 99, 100]);
        assert_eq!((quantiles.mean(), quantiles.within(25), quantiles.largest()), (50.5, 0.25, 100));
        assert_eq!(quantiles.octaves(), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (64, 37)]);
        assert_eq!((Quantiles::default().at(0.5), Quantiles::default().within(0)), (0, 1.0));
    }
}
