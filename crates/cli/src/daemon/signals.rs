//! SIGTERM, Ctrl-C and SIGHUP: the first asks for an orderly end, a second SIGTERM or Ctrl-C ends at once.
//!
//! A terminal that closes sends SIGHUP more than once (the kernel and the shell both do), so a second one changes nothing.
//! One that is ignored when the program starts stays ignored: that is how nohup works.
//!
//! signal-hook rather than blocking the signals and reading them from a signalfd: rustix has no safe way to block a signal,
//! and this crate has no unsafe code. signal-hook without its defaults brings one small crate beside it.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    iterator::Signals as Iterator,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Sent to a process whose file would grow past its limit; signal-hook has no name for it.
const SIGXFSZ: i32 = 25;

/// The signals that end a daemon, caught from [`Signals::catch`] on.
pub struct Signals {
    signals: Iterator,
    ending: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them. One that comes before [`Signals::wait`] is waited for no longer.
    pub fn catch() -> io::Result<Self> {
        let ending = stop_flag()?;
        // A file that may not grow (ulimit -f) is an error for whoever wanted it, not the end of the process.
        flag::register(SIGXFSZ, Arc::default())?;
        let signals = Iterator::new([SIGTERM, SIGINT])?;
        if minds_hangups() {
            signals.handle().add_signal(SIGHUP)?;
        }
        Ok(Self { signals, ending })
    }

    /// Whether one has come.
    pub fn have_come(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Sleeps until one comes.
    pub fn wait(mut self) {
        let signal = self.signals.forever().next();
        tracing::info!(signal, "stopping; a second signal ends at once");
    }
}

/// What the first SIGTERM or Ctrl-C sets, and a SIGHUP; the second of the former ends the process at once.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    if minds_hangups() {
        flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset and sets it.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Whether SIGHUP is not ignored.
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

    #[test]
    fn ignored_signals_are_read_from_the_status_page() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP));
        assert!(!is_ignored(status, SIGINT) && !is_ignored(status, SIGTERM));
        assert!(!is_ignored("", SIGHUP));
    }
}
