//! The node's numbers, as Prometheus and `tidepool stat` show them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidepool_store::PoolStats;

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A bucket, sum or count of a histogram.
    Histogram,
}

/// One number with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// The name, with labels if any: `tidepool_node_bytes_total{transport="tcp"}`.
    pub name: String,
    /// What it counts.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its value.
    pub value: u64,
}

/// Upper bounds of the latency histograms, in microseconds.
const BOUNDS: [u64; 12] = [10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000];

/// Latencies of one kind of request.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, elapsed: Duration) {
        let micros = elapsed.as_micros() as u64;
        let bucket = BOUNDS.iter().position(|&bound| micros <= bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn collect(&self, request: &str, out: &mut Vec<Metric>) {
        let name = "tidepool_node_request_microseconds";
        let help = "Time from a request's arrival to the end of its answer.";
        let mut metric = |name: String, value| out.push(Metric { name, help, kind: Kind::Histogram, value });
        let mut count = 0;
        for (bucket, bound) in
            self.buckets.iter().zip(BOUNDS.map(|bound| bound.to_string()).iter().chain([&"+Inf".to_owned()]))
        {
            count += bucket.load(Ordering::Relaxed);
            metric(format!("{name}_bucket{{request=\"{request}\",le=\"{bound}\"}}"), count);
        }
        metric(format!("{name}_sum{{request=\"{request}\"}}"), self.sum.load(Ordering::Relaxed));
        metric(format!("{name}_count{{request=\"{request}\"}}"), count);
    }
}

macro_rules! counters {
    ($($field:ident: $kind:ident $name:literal $help:literal,)*) => {
        /// Everything a node counts beside its pool.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
            pub(crate) get_latency: Histogram,
            pub(crate) reserve_latency: Histogram,
            pub(crate) seal_latency: Histogram,
        }

        impl Counters {
            fn collect_plain(&self, out: &mut Vec<Metric>) {
                $(out.push(Metric {
                    name: $name.to_owned(),
                    help: $help,
                    kind: Kind::$kind,
                    value: self.$field.load(Ordering::Relaxed),
                });)*
            }
        }
    };
}

counters! {
    connections: Gauge "tidepool_node_connections" "Connections open.",
    connections_total: Counter "tidepool_node_connections_total" "Connections accepted since the start.",
    connections_refused: Counter "tidepool_node_connections_refused_total" "Connections refused because the limit was reached.",
    malformed: Counter "tidepool_node_malformed_total" "Frames or messages that made no sense.",
    shm_hits: Counter "tidepool_node_hits_total{transport=\"shm\"}" "Reads that found their block.",
    tcp_hits: Counter "tidepool_node_hits_total{transport=\"tcp\"}" "Reads that found their block.",
    foreign_hits: Counter "tidepool_node_foreign_hits_total" "Hits, on this host, on blocks that another client wrote.",
    misses_absent: Counter "tidepool_node_misses_total{reason=\"absent\"}" "Reads that did not get their block.",
    misses_race: Counter "tidepool_node_misses_total{reason=\"lost_race\"}" "Reads that did not get their block.",
    misses_damaged: Counter "tidepool_node_misses_total{reason=\"damaged\"}" "Reads that did not get their block.",
    shm_bytes: Counter "tidepool_node_bytes_total{transport=\"shm\",direction=\"out\"}" "Bytes of blocks moved.",
    tcp_bytes_out: Counter "tidepool_node_bytes_total{transport=\"tcp\",direction=\"out\"}" "Bytes of blocks moved.",
    socket_bytes_in: Counter "tidepool_node_bytes_total{transport=\"tcp\",direction=\"in\"}" "Bytes of blocks moved.",
    mapped_bytes_in: Counter "tidepool_node_bytes_total{transport=\"shm\",direction=\"in\"}" "Bytes of blocks moved.",
    corrupt_reports: Counter "tidepool_node_corrupt_reports_total" "Copies that a reader found corrupt and reported.",
    corrupt_writes: Counter "tidepool_node_corrupt_writes_total" "Writes that did not match their checksums.",
    scrubbed_bytes: Counter "tidepool_node_scrubbed_bytes_total" "Bytes that the scrubber verified.",
    pulled: Counter "tidepool_node_pulled_total" "Blocks copied from another node.",
    views: Gauge "tidepool_node_views" "Borrowed views held by clients.",
    view_bytes: Gauge "tidepool_node_view_bytes" "Bytes pinned by borrowed views.",
    views_refused: Counter "tidepool_node_views_refused_total" "Views refused because the client's limit was reached.",
    late_reservations: Gauge "tidepool_node_quarantined_reservations" "Reservations of writers that lost their socket and still run.",
    late_bytes: Gauge "tidepool_node_quarantined_bytes" "Bytes of those reservations.",
    unannounced: Counter "tidepool_node_unannounced_total" "Puts answered before every healthy catalog had acknowledged them.",
}

impl Counters {
    /// Every number of the node and its pool.
    pub(crate) fn collect(&self, pool: &PoolStats, capacity: u64) -> Vec<Metric> {
        let mut out = Vec::with_capacity(96);
        self.collect_plain(&mut out);
        collect_pool(pool, capacity, &mut out);
        self.get_latency.collect("get", &mut out);
        self.reserve_latency.collect("reserve", &mut out);
        self.seal_latency.collect("seal", &mut out);
        out
    }
}

fn collect_pool(pool: &PoolStats, capacity: u64, out: &mut Vec<Metric>) {
    let mut metric = |kind, name: &str, help, value| out.push(Metric { name: name.to_owned(), help, kind, value });
    metric(Kind::Gauge, "tidepool_node_capacity_bytes", "Bytes for blocks.", capacity);
    metric(Kind::Gauge, "tidepool_node_free_bytes", "Bytes that no block uses.", pool.free_bytes);
    metric(Kind::Gauge, "tidepool_node_blocks", "Blocks held.", pool.blocks);
    metric(Kind::Gauge, "tidepool_node_block_bytes", "Bytes of blocks held.", pool.block_bytes);
    metric(Kind::Gauge, "tidepool_node_reserved", "Reservations under way.", pool.reserved);
    metric(Kind::Gauge, "tidepool_node_holds", "Blocks held in place by views and sends.", pool.holds);
    metric(Kind::Counter, "tidepool_node_sealed_total", "Blocks written.", pool.sealed_total);
    metric(Kind::Counter, "tidepool_node_evictions_total", "Blocks evicted.", pool.evictions_total);
    metric(Kind::Counter, "tidepool_node_evicted_bytes_total", "Bytes evicted.", pool.evicted_bytes_total);
    metric(Kind::Counter, "tidepool_node_removed_total", "Blocks removed on request.", pool.removed_total);
    metric(Kind::Counter, "tidepool_node_damaged_total", "Blocks found damaged and quarantined.", pool.damaged_total);
    metric(
        Kind::Counter,
        "tidepool_node_no_space_total",
        "Reservations refused for want of space.",
        pool.no_space_total,
    );
}
