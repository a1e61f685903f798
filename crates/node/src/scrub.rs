//! The scrubber: reads every block again and again, at a bounded rate, so that damage is found without a reader.

use crate::node::Shared;
use crate::process::add;
use std::time::{Duration, Instant};

/// The most bytes between two looks at the clock and at the stop mark.
const STEP: u64 = 4 << 20;

/// Runs until the node stops.
pub(crate) fn run(shared: &Shared) {
    let rate = shared.config.scrub_rate.0;
    if rate == 0 {
        return;
    }
    let mut cursor = 0;
    loop {
        let started = Instant::now();
        let mut bytes = 0;
        while bytes < STEP.min(rate) {
            let Some((hold, next)) = shared.pool.hold_from(cursor) else {
                cursor = 0;
                break;
            };
            bytes += hold.bytes().len() as u64;
            hold.quarantine_if_damaged();
            cursor = next;
        }
        add(&shared.counters.scrubbed_bytes, bytes);
        // An empty pool is looked at ten times a second.
        let due = if bytes == 0 { 0.1 } else { bytes as f64 / rate as f64 };
        let pause = Duration::from_secs_f64(due).saturating_sub(started.elapsed());
        if shared.stop.wait(pause) {
            return;
        }
    }
}
