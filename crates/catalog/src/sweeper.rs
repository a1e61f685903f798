//! Takes the entries of ended streams out of the index, a little at a time.

use crate::core::Core;
use crate::index::{Index, SlotSet};
use crate::metrics;
use std::sync::Arc;
use std::time::Duration;

/// Steps between two chances for other tasks.
const STEPS_PER_TURN: usize = 8;

/// Sweeps for as long as it is polled.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        let slots = core.directory.slots().queued().await;
        let gone = SlotSet::default();
        slots.iter().for_each(|slot| gone.insert(*slot));
        for step in 0..Index::STEPS {
            core.index.sweep(step, |slot| gone.contains(slot));
            if step % STEPS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        // A look-up that started before the streams ended may still take their slots for theirs.
        while core.directory.old_view_in_use() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        metrics::add(&core.counters.sweeps, slots.len());
        core.directory.free(slots);
    }
}
