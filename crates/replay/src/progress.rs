//! Progress of a replay: counters over all engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidepool_client::{PutError, Stored};

/// The least time that a prompt counts with in [`Progress::slowdown`]: a shorter lag does not matter.
const LEAST_COMPUTING: Duration = Duration::from_millis(250);

/// Counters of a running replay, above all of the pool's faults.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests that were answered.
    pub answered: AtomicU64,
    /// Blocks that came with wrong bytes: there must not be one.
    pub wrong_blocks: AtomicU64,
    /// Look-ups.
    pub lookups: AtomicU64,
    /// Look-ups that no catalog answered, though some blocks were not on this host.
    pub failed_lookups: AtomicU64,
    /// Blocks that look-ups promised.
    pub promised_blocks: AtomicU64,
    /// Of these, blocks that a read did not get.
    pub lost_blocks: AtomicU64,
    /// Blocks of these with another size than this run's: another run stored them under the same names.
    pub other_blocks: AtomicU64,
    /// Blocks that the pool refused.
    pub failed_puts: AtomicU64,
    /// Blocks of these that are too large for any node.
    pub too_large_puts: AtomicU64,
    /// Blocks of these for which no node made room in time.
    pub no_space_puts: AtomicU64,
    /// Blocks that were put.
    pub put_blocks: AtomicU64,
    /// Blocks that were held already when they were put.
    pub held_blocks: AtomicU64,
    /// Microseconds of the trace's time that prompts should have been computed for, and that they were late: a request
    /// was sent late, or its thread woke up late.
    computing_micros: AtomicU64,
    lag_micros: AtomicU64,
    /// Prompts that were computed.
    prompts: AtomicU64,
    /// Whether the caller wants the run to end.
    stop: Arc<AtomicBool>,
    /// Whether the pool is gone, which also ends the run.
    gone: AtomicBool,
}

/// The values of [`Progress`] at one time; that has their meanings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the counter of its name")]
pub struct Counts {
    pub answered: u64,
    pub lookups: u64,
    pub failed_lookups: u64,
    pub promised_blocks: u64,
    pub lost_blocks: u64,
    pub other_blocks: u64,
    pub failed_puts: u64,
    pub too_large_puts: u64,
    pub no_space_puts: u64,
    pub put_blocks: u64,
    pub held_blocks: u64,
    /// See [`Progress::slowdown`].
    pub slowdown: f64,
}

/// Why a run ended before all requests were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial {
    /// The caller stopped the run.
    Stopped,
    /// The pool refused every block for too long. Answers since the first refusal do not count.
    PoolGone,
}

impl Progress {
    /// Counters of a run that ends when `stop` is set, for instance by a signal handler; answers until then count.
    #[must_use]
    pub fn until(stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..Self::default() }
    }

    pub(crate) fn pool_is_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Why the run should end early, if it should.
    pub(crate) fn ending(&self) -> Option<Partial> {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        if is(&self.gone) { Some(Partial::PoolGone) } else { is(&self.stop).then_some(Partial::Stopped) }
    }

    /// Notes that a request was sent to its engine this late.
    pub(crate) fn sent(&self, late: Duration) {
        self.lag_micros.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
    }

    /// The values of all counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            answered: read(&self.answered),
            lookups: read(&self.lookups),
            failed_lookups: read(&self.failed_lookups),
            promised_blocks: read(&self.promised_blocks),
            lost_blocks: read(&self.lost_blocks),
            other_blocks: read(&self.other_blocks),
            failed_puts: read(&self.failed_puts),
            too_large_puts: read(&self.too_large_puts),
            no_space_puts: read(&self.no_space_puts),
            put_blocks: read(&self.put_blocks),
            held_blocks: read(&self.held_blocks),
            slowdown: self.slowdown(),
        }
    }

    /// Notes that a prompt was computed for `seconds` as planned, and `late` longer.
    pub(crate) fn computed(&self, seconds: f64, late: Duration) {
        self.prompts.fetch_add(1, Ordering::Relaxed);
        self.computing_micros.fetch_add((1e6 * seconds) as u64, Ordering::Relaxed);
        self.lag_micros.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
    }

    /// The factor by which sending requests and computing prompts took too long: 1 if this machine kept up. A prompt
    /// that takes next to nothing, because its blocks are held, counts as if it took a little: otherwise every wink
    /// would be a slowdown.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        let [computing, lag, prompts] =
            [&self.computing_micros, &self.lag_micros, &self.prompts].map(|sum| sum.load(Ordering::Relaxed) as f64);
        let computing = computing.max(prompts * LEAST_COMPUTING.as_micros() as f64);
        if computing > 0.0 { 1.0 + lag / computing } else { 1.0 }
    }

    /// Counts puts that failed, by reason.
    pub(crate) fn note_failures(&self, stored: &[Result<Stored, PutError>]) {
        for error in stored.iter().filter_map(|stored| stored.as_ref().err()) {
            Self::add(&self.failed_puts, 1);
            match error {
                PutError::TooLarge { .. } => Self::add(&self.too_large_puts, 1),
                PutError::NoSpace => Self::add(&self.no_space_puts, 1),
                _ => {}
            }
        }
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay whose prompts were all held computed next to nothing, and was told to have been 6,254 times too slow.
    #[test]
    fn a_wink_is_no_slowdown_where_there_is_nothing_to_compute() {
        let progress = Progress::default();
        assert!((progress.slowdown() - 1.0).abs() < 1e-9);
        for _ in 0..100 {
            progress.sent(Duration::from_millis(10));
            progress.computed(1e-5, Duration::from_millis(40));
        }
        assert!((progress.slowdown() - 1.2).abs() < 1e-9, "{}", progress.slowdown());
        progress.computed(75.0, Duration::from_secs(95));
        assert!((progress.slowdown() - (1.0 + 100.0 / 75.001)).abs() < 1e-6, "{}", progress.slowdown());
    }
}
