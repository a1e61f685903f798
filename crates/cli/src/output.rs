//! Standard output, for people or for the machines that read `--json`; and standard error.
//!
//! A reader that has gone away is no error: it has all that it wanted. Every function returns whether a reader is left.

use std::io::{self, ErrorKind, Write as _};

/// Prints `text` as it is.
pub fn text(text: &str) -> io::Result<bool> {
    bytes(text.as_bytes())
}

/// Prints `value` as one line of JSON.
pub fn line(value: &serde_json::Value) -> io::Result<bool> {
    text(&format!("{value}\n"))
}

/// Prints `bytes` as they are.
pub fn bytes(bytes: &[u8]) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints `text`, a line or more, on standard error. Ignores failures: no reader is left to tell.
pub fn complain(text: &str) {
    text.lines().for_each(|line| drop(writeln!(io::stderr(), "tidepool: {line}")));
}
