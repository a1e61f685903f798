//! Files whose reading a signal can end: a pipe may stay silent for ever, and a signal alone does not end a read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest wait for a silent file between two looks at `stop`.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A file for reading. Once `stop` is set, reading fails.
pub(super) struct Stoppable {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Stoppable {
    /// Opens a file; a dash is standard input. A pipe without a writer makes reads wait, not this call.
    pub(super) fn open(path: &Path, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let file = match path == Path::new("-") {
            true => io::stdin().as_fd().try_clone_to_owned()?,
            false => open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?,
        };
        Ok(Self { file: file.into(), stop: Arc::clone(stop) })
    }
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("stopped"));
            }
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_pipe_is_read_as_it_fills_and_a_silent_one_until_somebody_stops() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let stop = Arc::default();
        let mut pipe = Stoppable::open(&path, &stop).unwrap();
        let reads = std::thread::spawn(move || {
            let mut bytes = [0; 16];
            let first = pipe.read(&mut bytes).map(|count| bytes[..count].to_vec());
            (first, pipe.read(&mut bytes))
        });
        let mut writer = File::options().write(true).open(&path).unwrap();
        writer.write_all(b"bytes").unwrap();
        stop.store(true, Ordering::Relaxed);
        let (first, second) = reads.join().unwrap();
        // The flag may be seen before the bytes are.
        assert!(first.is_err() || first.unwrap() == b"bytes");
        assert_eq!(second.unwrap_err().to_string(), "stopped");
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let mut text = String::new();
        Stoppable::open(Path::new("Cargo.toml"), &Arc::default()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, std::fs::read_to_string("Cargo.toml").unwrap());
    }
}
