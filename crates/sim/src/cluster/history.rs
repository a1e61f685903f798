//! History of a run's queues: their work at some times, enough to say how busy each was between two of them.

use super::Nanos;
use super::queue::Queue;

/// The most times that are kept; then every other time is dropped.
const MOST_TIMES: usize = 32;

/// The work of all queues at some times, in seconds.
pub(super) struct History {
    /// The distance between two times.
    step: Nanos,
    next: Nanos,
    times: Vec<(Nanos, Vec<f32>)>,
}

impl Default for History {
    fn default() -> Self {
        Self { step: Nanos(1_000_000_000), next: Nanos(0), times: Vec::new() }
    }
}

impl History {
    /// Whether it is time to look again.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Records the work of `queues`, which must be the same ones in the same order every time.
    pub(super) fn note<'a>(&mut self, now: Nanos, queues: impl Iterator<Item = &'a Queue>) {
        if self.times.len() >= MOST_TIMES {
            let mut number = 0;
            self.times.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.step = self.step.after(self.step);
        }
        self.times.push((now, queues.map(|queue| queue.served(now).seconds() as f32).collect()));
        self.next = now.after(self.step);
    }

    /// For each queue, the busy part of the time from `from` to `until`.
    pub(super) fn busy(&self, from: Nanos, until: Nanos) -> Vec<f64> {
        let (before, after) = (self.at(from), self.at(until));
        let span = until.since(from).seconds();
        let part = |(before, after): (f64, f64)| if span > 0.0 { ((after - before) / span).min(1.0) } else { 0.0 };
        before.into_iter().zip(after).map(part).collect()
    }

    /// The work of each queue at a time, interpolated between recorded times.
    fn at(&self, at: Nanos) -> Vec<f64> {
        let later = self.times.partition_point(|(time, _)| *time < at);
        let (Some(after), Some(before)) = (self.times.get(later), self.times.get(later.saturating_sub(1))) else {
            return self
                .times
                .last()
                .map_or_else(Vec::new, |(_, served)| served.iter().copied().map(f64::from).collect());
        };
        let part = at.since(before.0).seconds() / after.0.since(before.0).seconds().max(f64::MIN_POSITIVE);
        let between = |(before, after): (&f32, &f32)| f64::from(*before) + part.min(1.0) * f64::from(after - before);
        before.1.iter().zip(&after.1).map(between).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64) -> Nanos {
        Nanos::of_seconds(second as f64)
    }

    #[test]
    fn queues_are_as_busy_as_they_were_however_long_the_run() {
        let (mut history, mut queues) = (History::default(), vec![Queue::default(); 2]);
        for now in 0..1000 {
            queues[0].join(second(now), 0.25);
            if now == 500 {
                // Work that is queued up counts when it is done.
                queues[1].join(second(now), 300.0);
            }
            if history.is_due(second(now)) {
                history.note(second(now), queues.iter());
            }
        }
        history.note(second(1000), queues.iter());
        assert!(history.times.len() <= MOST_TIMES + 1, "{}", history.times.len());
        let near = |from, until, expected: [f64; 2]| {
            let found = history.busy(second(from), second(until));
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{from} to {until}: {found:?}");
        };
        near(0, 1000, [0.25, 0.3]);
        near(200, 400, [0.25, 0.0]);
        near(600, 700, [0.25, 1.0]);
    }

    #[test]
    fn nothing_is_busy_where_nothing_was_noted() {
        assert!(History::default().busy(second(0), second(10)).is_empty());
        let mut history = History::default();
        history.note(second(3), [Queue::default()].iter());
        assert_eq!(history.busy(second(3), second(3)), [0.0]);
    }
}
