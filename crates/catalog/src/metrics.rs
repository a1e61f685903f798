//! The catalog's numbers: counted in atomics, read as a list of named metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use tidepool_types::{Latency, Metric, Value};

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
                    $(Metric::new($name, $help, Value::Counter(self.$field.load(Ordering::Relaxed))),)*
                    Metric::new(
                        "tidepool_catalog_lookup_seconds",
                        "Time that look-ups and prefix matches took inside the catalog.",
                        self.lookup_latency.read(),
                    ),
                ]
            }
        }
    };
}

counters! {
    lookups, "tidepool_catalog_lookups_total", "Look-ups answered.";
    matches, "tidepool_catalog_prefix_matches_total", "Prefix matches answered.";
    waits_held, "tidepool_catalog_waits_held_total", "Waits that ended with a block that is held.";
    waits_over, "tidepool_catalog_waits_over_total", "Waits that ended without one, when their time was up.";
    lookup_keys, "tidepool_catalog_lookup_keys_total", "Ids looked up.";
    found_keys, "tidepool_catalog_lookup_found_total", "Ids looked up that the pool held.";
    absent_keys, "tidepool_catalog_lookup_absent_total", "Ids looked up that the pool did not hold.";
    incomplete_answers, "tidepool_catalog_incomplete_answers_total", "Answers given while the catalog was not complete.";
    rejected, "tidepool_catalog_rejected_requests_total", "Requests refused because they were malformed or too large.";
    streams, "tidepool_catalog_streams_total", "Inventory streams opened.";
    refused_streams, "tidepool_catalog_streams_refused_total", "Inventory streams refused: name in use, forgotten, or too many.";
    snapshots, "tidepool_catalog_snapshots_total", "Snapshots started.";
    resyncs, "tidepool_catalog_resyncs_total", "Snapshots asked for again because something was missing.";
    changes, "tidepool_catalog_changes_total", "Changes and snapshot entries applied.";
    sweeps, "tidepool_catalog_sweeps_total", "Streams whose entries were swept.";
    subscriber_gaps, "tidepool_catalog_subscriber_gaps_total", "Streams told anew to subscribers that did not keep up.";
    reported_lookups, "tidepool_catalog_reported_lookups_total", "Look-ups that clients told of while somebody recorded.";
    dropped_reports, "tidepool_catalog_reported_lookups_dropped_total", "Look-ups that a recorder was too slow for.";
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
    fn names_are_unique_and_carry_the_crate() {
        let metrics = Counters::default().read();
        let mut names: Vec<_> = metrics.iter().map(|metric| metric.name).collect();
        assert!(names.iter().all(|name| name.starts_with("tidepool_catalog_")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), metrics.len());
    }
}
