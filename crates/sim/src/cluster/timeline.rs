//! When something was busy, in few numbers: parts of time that become twice as long whenever there are too many of them.

use super::Nanos;

/// Parts that are kept.
const MOST_PARTS: usize = 64;
/// Nanoseconds of the first parts, as a power of two: about a second.
const FIRST_LOG: u32 = 30;

/// Busy nanoseconds of every part of time, from the start of the run.
#[derive(Debug, Clone, Default)]
pub(super) struct Timeline {
    parts: Vec<u64>,
    /// How often parts have become twice as long.
    doubled: u32,
    /// When it was busy last.
    end: Nanos,
}

impl Timeline {
    /// Busy from one time to another.
    pub(super) fn add(&mut self, from: Nanos, until: Nanos) {
        while self.part(until) >= MOST_PARTS {
            let pairs = self.parts.chunks(2).map(|pair| pair.iter().sum());
            self.parts = pairs.collect();
            self.doubled += 1;
        }
        self.end = self.end.max(until);
        let last = self.part(until);
        if self.parts.len() <= last {
            self.parts.resize(last + 1, 0);
        }
        for part in self.part(from)..=last {
            self.parts[part] += self.overlap(part, from, until);
        }
    }

    /// Busy nanoseconds from one time to another, parts being busy evenly as far as they go.
    pub(super) fn between(&self, from: Nanos, until: Nanos) -> f64 {
        let until = until.min(self.end);
        let whole = |part: usize| self.overlap(part, Nanos(0), self.end).max(1) as f64;
        let share = |part: usize| self.overlap(part, from, until) as f64 / whole(part);
        (0..self.parts.len()).map(|part| self.parts[part] as f64 * share(part)).sum()
    }

    const fn width(&self) -> u64 {
        1 << (FIRST_LOG + self.doubled)
    }

    const fn part(&self, at: Nanos) -> usize {
        (at.0 >> (FIRST_LOG + self.doubled)) as usize
    }

    /// Nanoseconds that a part has in common with a span.
    fn overlap(&self, part: usize, from: Nanos, until: Nanos) -> u64 {
        let start = part as u64 * self.width();
        until.0.min(start + self.width()).saturating_sub(from.0.max(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn busy_time_is_found_where_it_was_however_long_the_run() {
        let mut timeline = Timeline::default();
        for second in 0..1000 {
            timeline.add(Nanos(second * SECOND), Nanos(second * SECOND + SECOND / 4));
        }
        timeline.add(Nanos(5000 * SECOND), Nanos(6000 * SECOND));
        assert!(timeline.parts.len() <= MOST_PARTS);
        let seconds = |from: u64, until: u64| timeline.between(Nanos(from * SECOND), Nanos(until * SECOND)) / 1e9;
        assert!((seconds(0, 10_000) - 1250.0).abs() < 1e-3, "{}", seconds(0, 10_000));
        assert!((seconds(200, 800) - 150.0).abs() < 10.0, "{}", seconds(200, 800));
        assert!((seconds(5200, 5600) - 400.0).abs() < 1e-3, "{}", seconds(5200, 5600));
        assert!(seconds(2000, 4000).abs() < 1e-3);
    }
}
