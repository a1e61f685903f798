//! A log says what happened, in the form asked for, and cannot flood.

use super::{limit::PER_WINDOW, report::report, *};
use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;
use tidepool_locks::Mutex;

/// Where the lines of a test go.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn all(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
    }
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock that stands still.
fn stopped() -> Instant {
    *START
}

/// A clock that moves by one window each time it is read.
fn racing() -> Instant {
    static READS: AtomicU64 = AtomicU64::new(0);
    *START + Duration::from_secs(READS.fetch_add(1, Ordering::Relaxed))
}

/// Runs `work` with a log of its own; gives back its lines and its limiter.
fn logged(level: Level, format: Format, clock: fn() -> Instant, work: impl FnOnce(&Limiter)) -> (Vec<String>, u64) {
    let (lines, limiter) = (Lines::default(), Arc::new(Limiter::default()));
    let writer = lines.clone();
    let limit = Limit::new(Arc::clone(&limiter), clock);
    let subscriber = subscriber(&LogConfig { level, format }, limit, move || writer.clone());
    tracing::subscriber::with_default(subscriber, || work(&limiter));
    (lines.all(), limiter.suppressed())
}

fn flood(events: u32) {
    for n in 0..events {
        tracing::warn!(n, "again");
    }
}

#[test]
fn a_place_that_repeats_itself_is_cut_off_counted_and_reported_once() {
    let (lines, suppressed) = logged(Level::Info, Format::Text, stopped, |limiter| {
        flood(1_000);
        tracing::info!("from elsewhere");
        report(limiter);
        report(limiter);
    });
    assert_eq!(lines.iter().filter(|line| line.contains("again")).count(), PER_WINDOW as usize);
    assert_eq!(suppressed, 1_000 - u64::from(PER_WINDOW));
    assert_eq!(lines.iter().filter(|line| line.contains("from elsewhere")).count(), 1);
    let reports: Vec<_> = lines.iter().filter(|line| line.contains("more suppressed")).collect();
    assert_eq!(reports.len(), 1, "{lines:?}");
    assert!(reports[0].contains("990 more suppressed from") && reports[0].contains("tests.rs:"), "{reports:?}");
}

#[test]
fn a_place_that_speaks_now_and_then_is_never_cut_off() {
    let (lines, suppressed) = logged(Level::Info, Format::Text, racing, |_| flood(100));
    assert_eq!((lines.len(), suppressed), (100, 0));
}

#[test]
fn a_json_log_is_one_object_a_line() {
    let (lines, _) = logged(Level::Info, Format::Json, stopped, |limiter| {
        flood(11);
        report(limiter);
    });
    assert_eq!(lines.len(), 11);
    let parsed: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert_eq!(
        (&parsed[3]["n"], &parsed[3]["message"], &parsed[3]["level"]),
        (&3.into(), &"again".into(), &"WARN".into())
    );
    assert!(parsed[10]["message"].as_str().is_some_and(|text| text.starts_with("1 more suppressed")), "{}", lines[10]);
}

#[test]
fn the_level_decides_before_the_limit_and_libraries_only_warn() {
    let (lines, suppressed) = logged(Level::Error, Format::Text, stopped, |limiter| {
        flood(1_000);
        for _ in 0..11 {
            tracing::error!("broken");
        }
        report(limiter);
    });
    assert_eq!((lines.len(), suppressed), (11, 1), "{lines:?}");
    assert!(lines[10].contains("ERROR") && lines[10].contains("1 more suppressed"), "{lines:?}");
    let (lines, _) = logged(Level::Trace, Format::Text, stopped, |_| {
        tracing::trace!("ours");
        tracing::info!(target: "h2::codec", "theirs");
        tracing::warn!(target: "h2::codec", "theirs too");
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn the_end_of_a_log_reports_what_is_still_held_back() {
    let limiter = Arc::new(Limiter::default());
    let (lines, _) = logged(Level::Info, Format::Text, stopped, |used| {
        flood(12);
        for held in used.take() {
            let admitted = (0..PER_WINDOW + 3).filter(|_| limiter.admit(held.site, stopped()));
            assert_eq!(admitted.count(), PER_WINDOW as usize);
        }
        drop(Reporter::start(Arc::clone(&limiter)));
    });
    assert!(lines.last().is_some_and(|line| line.contains("3 more suppressed")), "{lines:?}");
}
