//! Metrics: numbers counted in atomics, read as a list that any exposition can render.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One metric as of one instant.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The metric's name, with its unit.
    pub name: &'static str,
    /// Labels that tell the metric from others of the same name.
    pub labels: Vec<(&'static str, String)>,
    /// One sentence that explains the metric.
    pub help: &'static str,
    /// The metric's value.
    pub value: Value,
}

/// A metric's number and its kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number that only rises.
    Counter(u64),
    /// A number that rises and falls.
    Gauge(u64),
    /// How often a value fell at or below each bound.
    Histogram {
        /// Upper bounds in seconds, each with the number of values at or below it.
        buckets: Vec<(f64, u64)>,
        /// The number of all values.
        count: u64,
        /// The sum of all values, in seconds.
        sum: f64,
    },
}

impl Metric {
    /// A metric without labels.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, value: Value) -> Self {
        Self { name, labels: Vec::new(), help, value }
    }

    /// The name with its labels, as Prometheus writes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.labels.is_empty() {
            return self.name.to_owned();
        }
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{}{{{}}}", self.name, labels.join(","))
    }

    /// The number itself; of a histogram, the number of its values.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Histogram { count: value, .. } => value,
        }
    }
}

/// Upper bounds of the latency buckets, in microseconds.
const BOUNDS: [u64; 12] = [10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000];

/// A histogram of durations that any thread may add to.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Latency {
    /// Adds one duration.
    pub fn observe(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The histogram now.
    #[must_use]
    pub fn read(&self) -> Value {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (n, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            buckets.extend(BOUNDS.get(n).map(|bound| (*bound as f64 / 1e6, count)));
        }
        Value::Histogram { buckets, count, sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_every_value_once_and_cumulates() {
        let latency = Latency::default();
        for micros in [5, 10, 11, 2_000_000] {
            latency.observe(Duration::from_micros(micros));
        }
        let Value::Histogram { buckets, count, sum } = latency.read() else { panic!("not a histogram") };
        assert_eq!((count, buckets[0].1, buckets[1].1, buckets[11].1), (4, 2, 3, 3));
        assert!((sum - 2.000_026).abs() < 1e-9);
    }

    #[test]
    fn labels_are_part_of_the_full_name() {
        let labels = vec![("transport", "tcp".to_owned())];
        let metric = Metric { labels, ..Metric::new("x_total", "X.", Value::Counter(3)) };
        assert_eq!((metric.full_name().as_str(), metric.number()), ("x_total{transport=\"tcp\"}", 3));
    }
}
