//! The catalog's numbers: counted in atomics, read as a list of named metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What kind of number a metric is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Only ever rises.
    Counter(u64),
    /// Rises and falls.
    Gauge(u64),
    /// How often a value fell at or below each bound.
    Histogram {
        /// Upper bounds, each with the number of values at or below it, in seconds.
        buckets: Vec<(f64, u64)>,
        /// All values.
        count: u64,
        /// Their sum, in seconds.
        sum: f64,
    },
}

/// One metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, with its unit.
    pub name: &'static str,
    /// One sentence about it.
    pub help: &'static str,
    /// Its value now.
    pub value: Value,
}

/// Upper bounds of the latency buckets, in microseconds.
const BOUNDS: [u64; 10] = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000, 100_000];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Latency {
    pub(crate) fn observe(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self) -> Value {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (n, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            if let Some(bound) = BOUNDS.get(n) {
                buckets.push((*bound as f64 / 1e6, count));
            }
        }
        Value::Histogram { buckets, count, sum: self.micros.load(Ordering::Relaxed) as f64 / 1e6 }
    }
}

/// Declares the counters once: field, name, help.
macro_rules! counters {
    ($($field:ident, $name:literal, $help:literal;)*) => {
        /// What the catalog counts as it works.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
            pub(crate) lookup_latency: Latency,
        }

        impl Counters {
            /// The counters and the histogram; the gauges come from whoever knows them.
            pub(crate) fn read(&self) -> Vec<Metric> {
                vec![
                    $(Metric { name: $name, help: $help, value: Value::Counter(self.$field.load(Ordering::Relaxed)) },)*
                    Metric {
                        name: "tidepool_catalog_lookup_seconds",
                        help: "Time that look-ups and prefix matches took inside the catalog.",
                        value: self.lookup_latency.read(),
                    },
                ]
            }
        }
    };
}

counters! {
    lookups, "tidepool_catalog_lookups_total", "Look-ups answered.";
    matches, "tidepool_catalog_prefix_matches_total", "Prefix matches answered.";
    lookup_keys, "tidepool_catalog_lookup_keys_total", "Ids looked up.";
    found_keys, "tidepool_catalog_lookup_found_total", "Ids looked up that the pool held.";
    absent_keys, "tidepool_catalog_lookup_absent_total", "Ids looked up that the pool did not hold.";
    incomplete_answers, "tidepool_catalog_incomplete_answers_total", "Answers given while the catalog was not complete.";
    rejected, "tidepool_catalog_rejected_requests_total", "Requests refused because they were malformed or too large.";
    streams, "tidepool_catalog_streams_total", "Inventory streams opened.";
    refused_streams, "tidepool_catalog_streams_refused_total", "Inventory streams refused: name in use, or too many.";
    snapshots, "tidepool_catalog_snapshots_total", "Snapshots started.";
    resyncs, "tidepool_catalog_resyncs_total", "Snapshots asked for again because something was missing.";
    changes, "tidepool_catalog_changes_total", "Changes and snapshot entries applied.";
    sweeps, "tidepool_catalog_sweeps_total", "Streams whose entries were swept.";
    refused_connections, "tidepool_catalog_connections_refused_total", "Connections closed because there were too many.";
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards() {
        let latency = Latency::default();
        for micros in [10, 20, 21, 1_000_000] {
            latency.observe(Duration::from_micros(micros));
        }
        let Value::Histogram { buckets, count, sum } = latency.read() else { panic!("a histogram") };
        assert_eq!((buckets[0], buckets[1], count), ((20e-6, 2), (50e-6, 3), 4));
        assert!((sum - 1.000_051).abs() < 1e-9);
    }

    #[test]
    fn names_are_unique_and_carry_the_crate() {
        let metrics = Counters::default().read();
        let mut names: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
        assert!(names.iter().all(|name| name.starts_with("tidepool_catalog_")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), metrics.len());
    }
}
