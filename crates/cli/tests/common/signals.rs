//! Signals to a process that a test has started.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::process::Child;

/// Sends a signal to this process, and to no other. When this returns after a STOP, it has stopped: its threads run on for
/// a moment.
pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    if signal == Signal::STOP {
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child stops");
    }
}
