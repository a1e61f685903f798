//! The node's numbers, as Prometheus and `tidepool stat` show them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidepool_store::NodeMemoryStats;
use tidepool_types::{Latency, Metric, Value};
use tidepool_wire::message::Reply;

macro_rules! counters {
    ($($field:ident: $kind:ident $name:literal $([$($label:literal = $labelled:literal),*])? $help:literal,)*) => {
        /// Everything a node counts beside its pool.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: AtomicU64,)*
            pub(crate) get_latency: Latency,
            pub(crate) reserve_latency: Latency,
            pub(crate) seal_latency: Latency,
        }

        impl Counters {
    /// Counts how long a put's request took that was answered with `reply`.
    pub(crate) fn observe(&self, reply: &Reply, took: Duration) {
        match reply {
            Reply::Reserved(_) => self.reserve_latency.observe(took),
            Reply::Sealed(_) => self.seal_latency.observe(took),
            _ => {}
        }
    }

            fn collect_plain(&self, out: &mut Vec<Metric>) {
                $(out.push(Metric {
                    name: $name,
                    labels: vec![$($(($label, $labelled.to_owned())),*)?],
                    help: $help,
                    value: Value::$kind(self.$field.load(Ordering::Relaxed)),
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
    shm_hits: Counter "tidepool_node_hits_total" ["transport" = "shm"] "Reads that found their block.",
    tcp_hits: Counter "tidepool_node_hits_total" ["transport" = "tcp"] "Reads that found their block.",
    foreign_hits: Counter "tidepool_node_foreign_hits_total" "Hits, on this host, on blocks that another client wrote.",
    misses_absent: Counter "tidepool_node_misses_total" ["reason" = "absent"] "Reads that did not get their block.",
    misses_race: Counter "tidepool_node_misses_total" ["reason" = "lost_race"] "Reads that did not get their block.",
    misses_damaged: Counter "tidepool_node_misses_total" ["reason" = "damaged"] "Reads that did not get their block.",
    shm_bytes: Counter "tidepool_node_bytes_total" ["transport" = "shm", "direction" = "out"] "Bytes of blocks moved.",
    tcp_bytes_out: Counter "tidepool_node_bytes_total" ["transport" = "tcp", "direction" = "out"] "Bytes of blocks moved.",
    socket_bytes_in: Counter "tidepool_node_bytes_total" ["transport" = "tcp", "direction" = "in"] "Bytes of blocks moved.",
    mapped_bytes_in: Counter "tidepool_node_bytes_total" ["transport" = "shm", "direction" = "in"] "Bytes of blocks moved.",
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
    pub(crate) fn collect(&self, memory: &NodeMemoryStats, capacity: u64) -> Vec<Metric> {
        let mut out = Vec::with_capacity(64);
        self.collect_plain(&mut out);
        collect_memory(memory, capacity, &mut out);
        for (request, latency) in
            [("get", &self.get_latency), ("reserve", &self.reserve_latency), ("seal", &self.seal_latency)]
        {
            let help = "Time from a request's arrival to the end of its answer.";
            let metric = Metric::new("tidepool_node_request_seconds", help, latency.read());
            out.push(Metric { labels: vec![("request", request.to_owned())], ..metric });
        }
        out
    }
}

fn collect_memory(memory: &NodeMemoryStats, capacity: u64, out: &mut Vec<Metric>) {
    use Value::{Counter, Gauge};
    out.extend([
        Metric::new("tidepool_node_capacity_bytes", "Bytes for blocks.", Gauge(capacity)),
        Metric::new("tidepool_node_free_bytes", "Bytes that no block uses.", Gauge(memory.free_bytes)),
        Metric::new("tidepool_node_blocks", "Blocks held.", Gauge(memory.blocks)),
        Metric::new("tidepool_node_block_bytes", "Bytes of blocks held.", Gauge(memory.block_bytes)),
        Metric::new(
            "tidepool_node_pinned_bytes",
            "Bytes of blocks that are pinned for good.",
            Gauge(memory.pinned_bytes),
        ),
        Metric::new("tidepool_node_space_queue", "Writers that wait for space.", Gauge(memory.waiting)),
        Metric::new("tidepool_node_reserved", "Reservations under way.", Gauge(memory.reserved)),
        Metric::new("tidepool_node_holds", "Blocks held in place by views and sends.", Gauge(memory.holds)),
        Metric::new("tidepool_node_sealed_total", "Blocks written.", Counter(memory.sealed_total)),
        Metric::new("tidepool_node_evictions_total", "Blocks evicted.", Counter(memory.evictions_total)),
        Metric::new("tidepool_node_evicted_bytes_total", "Bytes evicted.", Counter(memory.evicted_bytes_total)),
        Metric::new("tidepool_node_removed_total", "Blocks removed on request.", Counter(memory.removed_total)),
        Metric::new(
            "tidepool_node_damaged_total",
            "Blocks found damaged and quarantined.",
            Counter(memory.damaged_total),
        ),
        Metric::new(
            "tidepool_node_damaged_bytes",
            "Bytes out of use until the node restarts, because blocks in them were found damaged.",
            Gauge(memory.damaged_bytes),
        ),
        Metric::new(
            "tidepool_node_declined_total",
            "Blocks not let in because others would have had to go for them.",
            Counter(memory.declined_total),
        ),
        Metric::new(
            "tidepool_node_no_space_total",
            "Reservations refused for want of space.",
            Counter(memory.no_space_total),
        ),
    ]);
}
