//! Reports the events that the limit has suppressed, a window later.

use super::limit::{Limiter, OWN_TARGET};
use std::{io, sync::Arc, thread::JoinHandle};
use tracing::Level;

/// The thread that reports; it sleeps while no event is suppressed.
pub(super) struct Reporter {
    limiter: Arc<Limiter>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    pub(super) fn start(limiter: Arc<Limiter>) -> io::Result<Self> {
        let watched = Arc::clone(&limiter);
        let run = move || {
            while !watched.wait() {
                report(&watched);
            }
        };
        let thread = std::thread::Builder::new().name("tp-log".to_owned()).spawn(run)?;
        Ok(Self { limiter, thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.limiter.end();
        let _ = self.thread.take().map(JoinHandle::join);
        report(&self.limiter);
    }
}

/// Logs one line for each place with suppressed events.
pub(super) fn report(limiter: &Limiter) {
    for held in limiter.take() {
        let file = held.site.file().unwrap_or_else(|| held.site.target());
        let (events, line) = (held.events, held.site.line().unwrap_or(0));
        // An error must not vanish from a log of errors only.
        if *held.site.level() == Level::ERROR {
            tracing::error!(target: OWN_TARGET, "{events} more suppressed from {file}:{line}");
        } else {
            tracing::warn!(target: OWN_TARGET, "{events} more suppressed from {file}:{line}");
        }
    }
}
