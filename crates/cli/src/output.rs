//! Standard output: for people, or for the machines that read `--json`.

use std::io::{self, ErrorKind, Write as _};

/// Prints `text` as it is. A reader that has gone away is no error: it has all it wanted.
pub fn text(text: &str) -> io::Result<()> {
    bytes(text.as_bytes())
}

/// Prints `value` as one line of JSON.
pub fn line(value: &serde_json::Value) -> io::Result<()> {
    text(&format!("{value}\n"))
}

/// Prints `bytes` as they are.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
