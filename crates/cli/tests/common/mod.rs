//! Real processes on free ports, with directories of their own in memory, ended when a test ends.
#![allow(dead_code, reason = "each test file uses a part of this")]

pub(crate) mod signals;

use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tidepool_testing::eventually;

/// Longer than anything here takes on the slowest machine; only a failing test gets there.
pub(crate) const AGES: Duration = Duration::from_secs(60);

const ANY_PORT: &str = "127.0.0.1:0";

/// What is in a directory.
pub(crate) fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("the directory is there");
    entries.map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Runs the program to its end.
pub(crate) fn tidepool(args: &[&str]) -> Output {
    with_input(args, b"")
}

/// Runs the program to its end with `input` on its standard input.
pub(crate) fn with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is built");
    // A program that does not read its input may be gone already.
    let _ = child.stdin.take().expect("a piped input").write_all(input);
    child.wait_with_output().expect("the program ends")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    command.args(args).stdout(Stdio::piped());
    command
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one JSON object that a command printed.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A daemon that serves. Dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    /// The line that it printed when it was ready.
    pub(crate) ready: Value,
}

impl Daemon {
    /// Starts `args` and waits until it serves.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with(args, command(&[]))
    }

    /// The same by way of `command`, which runs the program with the arguments it gets.
    pub(crate) fn start_with(args: &[&str], mut command: Command) -> Self {
        let args = [args, &["--json", "--log-level", "warn"]].concat();
        let mut child = command.args(&args).stdout(Stdio::piped()).spawn().expect("the program is built");
        let mut stdout = BufReader::new(child.stdout.take().expect("a piped output"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the program prints a line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{args:?} printed {line:?}: {error}"));
        Self { child, _stdout: stdout, ready }
    }

    /// A pool of one catalog and one node called `one`, in `dir`.
    pub(crate) fn pool(dir: &Path) -> Self {
        Self::start(&pool_args(dir))
    }

    /// A catalog.
    pub(crate) fn catalog() -> Self {
        Self::start(&["catalog", "--listen", ANY_PORT, "--metrics-listen", ANY_PORT])
    }

    /// A node in `dir` that announces to `catalogs`.
    pub(crate) fn node(name: &str, dir: &Path, catalogs: &str) -> Self {
        Self::start(&node_args(name, dir, catalogs))
    }

    /// An address out of the ready line.
    pub(crate) fn address(&self, part: &str, field: &str) -> &str {
        self.ready[part][field].as_str().unwrap_or_else(|| panic!("no {part}.{field} in {}", self.ready))
    }

    /// Runs a command against this daemon's pool.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    /// Runs a command against this daemon's pool with `input` on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &[u8]) -> Output {
        let place = ["--catalogs", self.address("catalog", "listen"), "--dir", self.address("node", "dir")];
        with_input(&[args, &place].concat(), input)
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signals::send(&self.child, signal);
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let mut ended = None;
        eventually("the daemon ends", || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.expect("it was waited for")
    }

    /// Has it end in order.
    pub(crate) fn stop(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arguments of a small pool in `dir`, all ports free ones.
pub(crate) fn pool_args(dir: &Path) -> Vec<&str> {
    let mut args = node_args("one", dir, ANY_PORT);
    args[0] = "up";
    args.truncate(args.len() - 2);
    args.extend(["--catalog-listen", ANY_PORT, "--catalog-metrics-listen", ANY_PORT]);
    args
}

/// Arguments of a small node in `dir`, all ports free ones.
pub(crate) fn node_args<'a>(name: &'a str, dir: &'a Path, catalogs: &'a str) -> Vec<&'a str> {
    let dir = dir.to_str().expect("temporary directories have plain names");
    #[rustfmt::skip]
    let args = vec![
        "node", "--name", name, "--dir", dir, "--capacity", "16MiB",
        "--data-listen", ANY_PORT, "--metrics-listen", ANY_PORT, "--catalogs", catalogs,
    ];
    args
}

/// Gets a page: its status and its body.
pub(crate) fn page(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the pages are served");
    stream.set_read_timeout(Some(AGES)).expect("a socket has a time-out");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("the request is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("the answer has a status");
    (status, body.to_owned())
}

/// The value of a metric on the page at `address`; zero where it is not shown.
pub(crate) fn metric(address: &str, name: &str) -> u64 {
    let (_, body) = page(address, "/metrics");
    let line = body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a whole number"))
}

/// A set of signals out of `/proc/PID/status`: bit 0 is signal 1.
pub(crate) fn signal_mask(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("the set is there");
    u64::from_str_radix(mask.trim(), 16).expect("a set of signals is a hexadecimal number")
}

/// Ten prompts of 20 blocks in turn, ten times: 200 blocks hold all of them.
pub(crate) fn rounds(dir: &TempDir) -> PathBuf {
    let prompt = |n: usize| (0..20).map(|block| (n % 10 * 100 + block).to_string()).collect::<Vec<_>>().join(", ");
    let line = |n: usize| {
        let (at, ids) = (n * 1000, prompt(n));
        format!("{{\"timestamp\": {at}, \"input_length\": 10240, \"output_length\": 5, \"hash_ids\": [{ids}]}}\n")
    };
    let path = dir.path().join("rounds.jsonl");
    std::fs::write(&path, (0..100).map(line).collect::<String>()).unwrap();
    path
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
