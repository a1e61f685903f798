//! SIGTERM and Ctrl-C: the first asks for an orderly end, the second ends at once.
//!
//! signal-hook rather than blocking the signals and reading them from a signalfd: rustix has no safe way to block a signal,
//! and this crate has no unsafe code. signal-hook without its defaults brings one small crate beside it.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
    iterator::Signals as Iterator,
};
use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

/// The signals that end a daemon, caught from [`Signals::catch`] on.
pub struct Signals(Iterator);

impl Signals {
    /// Catches them. One that comes before [`Signals::wait`] is waited for no longer.
    pub fn catch() -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the first signal finds the flag unset and sets it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&ending))?;
            flag::register(signal, Arc::clone(&ending))?;
        }
        Ok(Self(Iterator::new([SIGTERM, SIGINT])?))
    }

    /// Sleeps until one comes.
    pub fn wait(mut self) {
        let signal = self.0.forever().next();
        tracing::info!(signal, "stopping; a second signal ends at once");
    }
}
