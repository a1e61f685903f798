//! A build's process, in a group of its own, bounded in time and output, and ended together with its children.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, test_kill_process_group};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use tidepool_types::Deadline;

/// The longest wait for a process between two looks at `stop`.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Time for a process to end in order, and for its output to end afterwards.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for killed processes to go; where no process reaps orphans, they stay in the process table.
const GONE: Duration = Duration::from_secs(1);
/// Bytes of output that are kept: the last ones.
const OUTPUT: usize = 16 << 20;
/// Bytes of errors that are kept, and lines that are shown of them.
const ERRORS: usize = 16 << 10;
const ERROR_LINES: usize = 5;

/// A process that has ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The process's standard output.
    pub(super) output: Vec<u8>,
    /// The last lines of its standard error.
    pub(super) errors: String,
    pub(super) seconds: f64,
    /// CPU seconds of the process and of the children that it waited for.
    pub(super) cpu_seconds: f64,
}

/// Why a process did not end by itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it did not end within {0:?}")]
    TooLong(Duration),
    #[error("interrupted")]
    Interrupted,
}

/// Runs `command` to its end, by `limit` at the latest or soon after `stop` is set.
pub(super) fn run(command: &mut Command, limit: Duration, stop: &AtomicBool) -> Result<Ended, Trouble> {
    let start = Instant::now();
    // A group of its own: Ctrl-C in a terminal reaches this program alone, which then ends the whole group.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both were asked for as pipes");
    };
    let (output, errors) = (last_bytes(output, OUTPUT), last_bytes(errors, ERRORS));
    let waited = wait(&child, limit, stop);
    let seconds = start.elapsed().as_secs_f64();
    if waited.is_err() {
        end(&child);
    }
    let pid = Pid::from_child(&child);
    let cpu_seconds = cpu_seconds(pid);
    // Before the process is reaped, while no other process can have its id.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    if waited.is_err() {
        wait_for_the_group(pid);
    }
    waited?;
    let late = |_| io::Error::other("its output did not end when it did");
    let output = output.recv_timeout(PATIENCE).map_err(late)?;
    let errors = last_lines(&errors.recv_timeout(PATIENCE).map_err(late)?);
    Ok(Ended { status, output, errors, seconds, cpu_seconds: cpu_seconds? })
}

fn wait(child: &Child, limit: Duration, stop: &AtomicBool) -> Result<(), Trouble> {
    let process = pidfd(child)?;
    let deadline = Deadline::after(limit);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        if deadline.has_passed() {
            return Err(Trouble::TooLong(limit));
        }
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Trouble::Io(error.into())),
        }
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

/// Asks the process to end, so that it removes its shared memory, and waits a moment. The kill of its group follows.
fn end(child: &Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let _ = wait(child, PATIENCE, &AtomicBool::new(false));
}

/// Waits a moment, until no process is left that could still make files.
fn wait_for_the_group(group: Pid) {
    let deadline = Deadline::after(GONE);
    while test_kill_process_group(group).is_ok() && !deadline.has_passed() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads `pipe` to its end. Returns its last bytes, at least `keep` of them.
fn last_bytes(mut pipe: impl Read + Send + 'static, keep: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..read]);
            if bytes.len() > 2 * keep {
                bytes.drain(..bytes.len() - keep);
            }
        }
        sender.send(bytes)
    });
    receiver
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n")
}

/// CPU seconds, user and system, of an ended process that was not reaped yet, and of the children that it waited for.
fn cpu_seconds(pid: Pid) -> io::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    let ticks = cpu_ticks(&text).ok_or_else(|| io::Error::other(format!("its stat says {text:?}")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// utime, stime, cutime and cstime together, from the text of `/proc/PID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let ticks: Vec<u64> = after_name.split_whitespace().skip(11).take(4).filter_map(|word| word.parse().ok()).collect();
    (ticks.len() == 4).then(|| ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> Result<Ended, Trouble> {
        run(Command::new("sh").args(["-c", script]), limit, &AtomicBool::new(false))
    }

    #[test]
    fn what_a_process_printed_and_how_it_ended_is_told() {
        let ended = shell("echo out; for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 3", LONG).unwrap();
        assert_eq!(ended.output, b"out\n");
        assert_eq!(ended.errors, "line 3\nline 4\nline 5\nline 6\nline 7");
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn cpu_seconds_are_those_of_the_whole_tree() {
        // The grandchild counts to 300,000, which takes more than a tick of 10 ms anywhere.
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let ended = shell(&format!("sh -c '{count}'; true"), LONG).unwrap();
        assert!(ended.cpu_seconds > 0.0, "{ended:?}");
        assert_eq!(cpu_ticks("7 (a) b) S 1 1 1 0 -1 4 5 6 7 8 10 20 300 4000 20 0"), Some(4330));
        assert_eq!(cpu_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_process_that_is_stopped_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {0}.part; mv {0}.part {0}; wait", note.display());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || run(Command::new("sh").args(["-c", &script]), LONG, &stop))
        };
        while !note.exists() {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(stopped.join().unwrap(), Err(Trouble::Interrupted)));
        let pid = std::fs::read_to_string(note).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }

    #[test]
    fn a_process_that_floods_its_output_ends_at_its_limit() {
        assert!(matches!(shell("exec yes", Duration::from_millis(100)), Err(Trouble::TooLong(_))));
    }
}
