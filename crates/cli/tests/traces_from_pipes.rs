//! Commands that read a trace from a pipe obey a signal: they report the requests so far, and wait for no more.

mod common;

use common::{code, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use tidepool_testing::eventually;

const LINE: &str = "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [1, 2]}\n";

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether the process catches SIGINT by now, has read all of its standard input and sleeps.
fn is_waiting(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0").trim();
    let catches = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or(0) & 2 != 0;
    let unread = rustix::io::ioctl_fionread(child.stdin.as_ref().unwrap());
    // Looked at last: what was read has been used before it sleeps again.
    catches && unread == Ok(0) && is_asleep(child)
}

fn is_asleep(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tS"))
}

fn stopped(mut child: Child, text: &str) -> Output {
    child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    eventually("a command that waits for more", || is_waiting(&child));
    // Its end of the pipe stays open: only the signal can end the command.
    let writer = child.stdin.take();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(writer);
    output
}

/// The first Ctrl-C changed nothing for a command that waited for its standard input.
#[test]
fn ctrl_c_ends_a_command_that_waits_for_more_of_a_trace() {
    for args in [&["sim", "-"][..], &["sim", "-", "--engines", "2"], &["plan", "-"], &["trace", "stat", "-"]] {
        let output = stopped(start(args), &LINE.repeat(2));
        assert_eq!(code(&output), 4, "{args:?}: {}", stderr(&output));
        let said = "stopped: the report covers the 2 requests before";
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(!stdout(&output).is_empty(), "{args:?}");
    }
    // Half a line is none, and no malformed one.
    let cut = stopped(start(&["trace", "stat", "-", "--strict"]), &format!("{LINE}{}", &LINE[..30]));
    assert_eq!(stderr(&cut), "tidepool: stopped: the report covers the 1 request before\n");
}

#[test]
fn ctrl_c_ends_a_command_that_writes_what_it_waits_for_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let output = stopped(start(&["trace", "convert", "-", "-o", file.to_str().unwrap()]), LINE);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("stopped: "), "{}", stderr(&output));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn ctrl_c_ends_a_replay_that_waits_for_requests() {
    let output = stopped(start(&["replay", "-", "--no-pool", "--pace", "1000"]), LINE);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(stderr(&output).contains("stopped"), "{}", stderr(&output));
}

#[test]
fn ctrl_c_ends_a_command_whose_trace_has_not_begun() {
    let output = stopped(start(&["trace", "stat", "-"]), "");
    assert_eq!((code(&output), stderr(&output).as_str()), (1, "tidepool: -: stopped\n"));
}
