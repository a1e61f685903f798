//! The parent's end of a side: starts its process, talks to it with deadlines, and ends it.

use super::{BenchError, serve::Sample, sides::SidePlan};
use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::JoinHandle,
    time::Duration,
};
use tidepool_types::Deadline;

/// The most lines that wait to be read. A side answers one line a request; a side that fills this breaks the protocol
/// and blocks on its pipe.
const WAITING_LINES: usize = 16;

/// A running side. Dropping it ends the process, by its pid, and waits for it.
#[derive(Debug)]
pub struct Side {
    name: String,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    detail: String,
}

/// The command that starts this program, where that is not the executable of the process.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts this program when another program (a Python interpreter) runs it.
pub fn set_program(command: Vec<OsString>) {
    // A second call sets the same command.
    let _ = PROGRAM.set(command);
}

impl Side {
    /// Starts this program as the side that `plan` describes and waits until it is ready.
    pub fn start(name: &str, plan: &SidePlan, deadline: Deadline) -> Result<Self, BenchError> {
        let io = |source| BenchError::Io { side: name.to_owned(), source };
        let plan = serde_json::to_string(plan).map_err(|error| io(error.into()))?;
        let mut command = match PROGRAM.get().map(Vec::as_slice) {
            Some([program, first @ ..]) => {
                let mut command = Command::new(program);
                command.args(first);
                command
            }
            _ => Command::new(std::env::current_exe().map_err(io)?),
        };
        command.args(["bench-side", &plan]);
        Self::spawn(name, &mut command, deadline)
    }

    /// Starts `command`, which speaks the protocol of [`super::serve`], and waits until it is ready.
    pub fn spawn(name: &str, command: &mut Command, deadline: Deadline) -> Result<Self, BenchError> {
        let io = |source| BenchError::Io { side: name.to_owned(), source };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(io)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked for as pipes");
        };
        let (sender, lines) = sync_channel(WAITING_LINES);
        let reader = Some(std::thread::spawn(move || forward_lines(stdout, &sender)));
        let mut side = Self { name: name.to_owned(), child, stdin, lines, reader, detail: String::new() };
        let ready = side.receive(deadline)?;
        side.detail = side.expect(&ready, "ready")?;
        Ok(side)
    }

    /// The detail in the side's `ready` line.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the side do its work once, and then verify every byte of it, outside the timing.
    pub fn sample(&mut self, variant: u64, deadline: Deadline) -> Result<Sample, BenchError> {
        self.send(&format!("run {variant}\n"))?;
        let line = self.receive(deadline)?;
        let done = self.expect(&line, "done")?;
        let sample = parse_sample(&done).ok_or_else(|| self.unexpected(&line))?;
        self.send("verify\n")?;
        let line = self.receive(deadline)?;
        self.expect(&line, "ok")?;
        Ok(sample)
    }

    fn send(&mut self, line: &str) -> Result<(), BenchError> {
        self.stdin.write_all(line.as_bytes()).map_err(|source| BenchError::Io { side: self.name.clone(), source })
    }

    fn receive(&mut self, deadline: Deadline) -> Result<String, BenchError> {
        let waited = deadline.remaining();
        self.lines.recv_timeout(waited).map_err(|error| match error {
            RecvTimeoutError::Timeout => BenchError::TimedOut { side: self.name.clone(), waited },
            RecvTimeoutError::Disconnected => self.unexpected("the end of its output"),
        })
    }

    /// The rest of `line` after the word that it must start with.
    fn expect(&self, line: &str, word: &str) -> Result<String, BenchError> {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            _ if first == word => Ok(rest.to_owned()),
            "error" => Err(BenchError::Side { side: self.name.clone(), message: rest.to_owned() }),
            _ => Err(self.unexpected(line)),
        }
    }

    fn unexpected(&self, line: &str) -> BenchError {
        BenchError::Side { side: self.name.clone(), message: format!("answered {line:?}") }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // A failure means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Empties the queue, since the reader may wait on it before it sees the end of the pipe.
        while self.lines.recv().is_ok() {}
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn forward_lines(stdout: ChildStdout, sender: &SyncSender<String>) {
    for line in BufReader::new(stdout).lines() {
        let Ok(line) = line else { return };
        if sender.send(line).is_err() {
            return;
        }
    }
}

fn parse_sample(text: &str) -> Option<Sample> {
    let (seconds, amount) = text.split_once(' ')?;
    let elapsed = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
    Some(Sample { elapsed, amount: amount.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, budget: Duration) -> Result<Side, BenchError> {
        Side::spawn("test", Command::new("sh").args(["-c", script]), Deadline::after(budget))
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_side_that_answers_gives_samples() {
        let script = "echo ready here; read a; echo done 2.5e-1 10; read b; echo ok";
        let mut side = shell(script, LONG).unwrap();
        assert_eq!(side.detail(), "here");
        let sample = side.sample(0, Deadline::after(LONG)).unwrap();
        assert_eq!(sample.rate(), 40.0);
    }

    #[test]
    fn a_side_that_says_nothing_times_out_and_is_gone_afterwards() {
        let error = shell("exec sleep 60", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, BenchError::TimedOut { .. }), "{error}");
        let side = shell("echo ready; exec sleep 60", LONG).unwrap();
        let process = format!("/proc/{}", side.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(side);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn a_side_that_fails_or_ends_says_so() {
        let mut side = shell("echo ready; read a; echo error block 7 is wrong", LONG).unwrap();
        let error = side.sample(0, Deadline::after(LONG)).unwrap_err();
        assert_eq!(error.to_string(), "side test: block 7 is wrong");
        assert!(shell("exit 0", LONG).is_err());
        assert!(shell("echo hello", LONG).is_err());
    }

    #[test]
    fn a_side_that_floods_its_output_does_not_hang_the_parent() {
        drop(shell("echo ready; exec yes", LONG).unwrap());
    }
}
