//! The scrubber: reads every block again and again, at a bounded rate, so that damage is found without a reader.
//!
//! Two bounds: what a pass looks at is paid for by the byte, slots without a block included, and a pass over a nearly empty
//! pool takes as long as one over a full pool, up to ten seconds. Without the second, a few blocks would be read for ever.

use crate::node::Shared;
use crate::process::add;
use std::time::{Duration, Instant};
use tidepool_store::Space;

/// The most bytes between two looks at the clock and at the stop mark.
const STEP: u64 = 4 << 20;
/// What looking at a slot counts for, in bytes: about what the owner keeps of one.
const SLOT: u64 = 64;
/// The bounds of the shortest time that a pass takes.
const SHORTEST_PASS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Runs until the node stops.
pub(crate) fn run(shared: &Shared) {
    let rate = shared.config.scrub_rate.0;
    if rate == 0 {
        return;
    }
    let (shortest, longest) = SHORTEST_PASS;
    let capacity = shared.spaces.all().map(|space| space.memory().capacity()).sum();
    let shortest = time_for(capacity, rate).clamp(shortest, longest);
    loop {
        let started = Instant::now();
        if shared.spaces.all().any(|space| pass(shared, space, rate))
            || shared.stop.wait(shortest.saturating_sub(started.elapsed()))
        {
            return;
        }
    }
}

/// Reads every block of a space once. True when the node is stopping.
fn pass(shared: &Shared, space: &Space, rate: u64) -> bool {
    let mut next = Some(0);
    while let Some(cursor) = next {
        let started = Instant::now();
        let read;
        (read, next) = step(shared, space, cursor, STEP.min(rate));
        if shared.stop.wait(time_for(read, rate).saturating_sub(started.elapsed())) {
            return true;
        }
    }
    false
}

/// Reads blocks from slot `cursor` on until `enough` bytes were looked at. Returns how many were, and where to go on.
fn step(shared: &Shared, space: &Space, mut cursor: u64, enough: u64) -> (u64, Option<u64>) {
    let mut read = 0;
    while read < enough {
        let Some((hold, next)) = space.memory().hold_from(cursor) else {
            return (read + SLOT * space.memory().slots_used().saturating_sub(cursor), None);
        };
        let bytes = hold.bytes().len() as u64;
        hold.quarantine_if_damaged();
        add(&shared.counters.scrubbed_bytes, bytes);
        read += bytes + SLOT * (next - cursor);
        cursor = next;
    }
    (read, Some(cursor))
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}
