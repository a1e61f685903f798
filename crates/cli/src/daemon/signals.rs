//! SIGTERM, Ctrl-C and SIGHUP: the first asks for an orderly end. A SIGTERM or Ctrl-C a second or more later insists, and ends
//! the process at once.
//!
//! Signals within that second are the same request: `timeout` signals its child and then the child's group, and some service
//! managers do likewise. A terminal that closes sends SIGHUP more than once (the kernel and the shell both do), so SIGHUP never
//! insists. One that is ignored when the program starts stays ignored: that is how nohup works.
//!
//! signal-hook rather than blocking the signals and reading them from a signalfd: rustix has no safe way to block a signal,
//! and this crate has no unsafe code. signal-hook without its defaults brings one small crate beside it.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals as Iterator,
    low_level,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    time::{Duration, Instant},
};

/// Sent to a process whose file would grow past its limit; signal-hook has no name for it.
const SIGXFSZ: i32 = 25;

/// Signals this soon after the first belong to the same request.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// The signals that end a daemon, caught from [`Signals::catch`] on.
pub struct Signals {
    ending: Arc<AtomicBool>,
    first: Receiver<i32>,
}

impl Signals {
    /// Catches the signals. [`Signals::wait`] returns at once after an earlier signal.
    pub fn catch() -> io::Result<Self> {
        // A file that may not grow (ulimit -f) is an error for its writer, not the end of the process.
        flag::register(SIGXFSZ, Arc::default())?;
        let (tell, first) = sync_channel(1);
        // Only the first signal counts: it fills the channel until `wait` takes it.
        let ending = heed(move |signal| {
            let _ = tell.try_send(signal);
        })?;
        Ok(Self { ending, first })
    }

    /// Whether a signal has come.
    pub fn have_come(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Waits for a signal.
    pub fn wait(self) {
        let signal = self.first.recv().ok();
        tracing::info!(signal, "stopping; a signal after a second or more ends at once");
    }
}

/// A flag that the first SIGTERM, Ctrl-C or SIGHUP sets.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    heed(|_| ())
}

/// Starts the thread that handles signals. Each signal sets the flag and is passed to `tell`; one that insists ends the
/// process.
fn heed(tell: impl Fn(i32) + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let mut signals = Iterator::new([SIGTERM, SIGINT])?;
    if minds_hangups() {
        signals.handle().add_signal(SIGHUP)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let work = move || {
        let mut request = Request::default();
        for signal in signals.forever() {
            if request.is_insisted_on(signal, Instant::now()) {
                low_level::exit(128 + signal);
            }
            set.store(true, Ordering::Relaxed);
            tell(signal);
        }
    };
    std::thread::Builder::new().name("tp-signals".to_owned()).spawn(work)?;
    Ok(stop)
}

/// The request for an orderly end, from its first signal on.
#[derive(Default)]
struct Request {
    first: Option<Instant>,
}

impl Request {
    /// Whether `signal`, which comes at `now`, insists and is not part of the request.
    fn is_insisted_on(&mut self, signal: i32, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        signal != SIGHUP && now.saturating_duration_since(first) >= SAME_REQUEST
    }
}

/// Whether the process handles SIGHUP.
fn minds_hangups() -> bool {
    !is_ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), SIGHUP)
}

/// Whether a process with this `/proc/PID/status` ignores `signal`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `timeout` and some service managers send SIGTERM twice within milliseconds. The second one ended a daemon at once: its
    /// files stayed and its node was dead instead of left. A signal insists only from a second after the first on.
    #[test]
    fn a_signal_insists_from_a_second_after_the_first_on() {
        let (start, millis) = (Instant::now(), Duration::from_millis);
        for first in [SIGTERM, SIGINT, SIGHUP] {
            let mut request = Request::default();
            assert!(!request.is_insisted_on(first, start));
            for again in [SIGTERM, SIGINT, SIGHUP] {
                assert!(!request.is_insisted_on(again, start));
                assert!(!request.is_insisted_on(again, start + millis(999)));
                assert_eq!(request.is_insisted_on(again, start + millis(1000)), again != SIGHUP);
            }
        }
    }

    #[test]
    fn ignored_signals_are_read_from_the_status_page() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }
}
