//! Progress on standard error: only in a terminal, and only for work that takes a while.

use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::IsTerminal as _,
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// The bytes from which work gets a bar; less work is over before a bar can be read.
const WORTH_A_BAR: u64 = 16 << 20;
/// The time after which work gets a spinner.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// A bar over `total` bytes, hidden where it would not be seen or needed.
pub fn bytes(what: &'static str, total: u64) -> ProgressBar {
    if total < WORTH_A_BAR || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// Does `work`; shows a spinner if that takes a while.
pub fn waiting<T>(what: &'static str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, over) = sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
                let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                let spinner = ProgressBar::new_spinner().with_style(style).with_message(what);
                spinner.enable_steady_tick(TURN);
                // The sender is dropped when the work is done.
                let _ = over.recv();
                spinner.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}
