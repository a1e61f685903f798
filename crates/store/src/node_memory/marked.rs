//! Files that prove to be a pool's: each bears its mark from the instant it has a name, and nothing without it is removed.
//!
//! The directory may hold other programs' files. A file is made without a name, marked, and then linked, so that not even
//! an owner killed at the worst moment leaves one that could be taken for somebody else's.

use super::OpenError;
use super::mount::huge_page_of;
use crate::memory_file::{self, MemoryFile};
use crate::sync::Ordering;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first eight bytes of a file of ours.
pub(super) type Mark = [u8; 8];

/// All that is in a lock file; one on hugetlbfs is empty, since a byte there would cost a huge page.
pub(super) const LOCK: Mark = *b"TDPLLOCK";

/// A name of ours; dropping it removes it.
pub(super) struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A lock that is held, and its name.
pub(super) struct Lock {
    _name: Name,
    _file: OwnedFd,
}

/// Makes a file that bears `mark` under a name that must be free.
pub(super) fn create(path: &Path, mark: Mark) -> io::Result<(Name, OwnedFd)> {
    let file = nameless(path, mark)?;
    link(&file, path)?;
    Ok((Name(path.to_owned()), file))
}

/// Removes what a dead owner left under this name. What does not bear the mark is in the way, and stays.
pub(super) fn clear(path: &Path, mark: Mark) -> Result<(), OpenError> {
    let at_path = |source| failed(path, source);
    match look(path, mark).map_err(at_path)? {
        Found::Nothing => Ok(()),
        Found::Ours(_) => fs::remove_file(path).map_err(at_path),
        Found::Foreign => Err(OpenError::Foreign { path: path.to_owned() }),
    }
}

/// How long a lock may be held without an owner at work.
const CLEARING: Duration = Duration::from_secs(60);
/// The same with one: it may be just about to go.
const OWNED: Duration = Duration::from_millis(200);

/// Takes the lock file; `None` when a live owner has it, or `go_on` says no. Another node that starts in the same directory
/// has the lock while it removes a dead owner's files: freeing their memory takes seconds, and all that time `is_owned` says
/// no, since their names go first.
pub(super) fn lock_patiently(
    path: &Path,
    is_owned: &dyn Fn() -> bool,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Lock>, OpenError> {
    let (mut waited, mut owned) = (Duration::ZERO, Duration::ZERO);
    loop {
        let lock = lock(path)?;
        if lock.is_some() || waited >= CLEARING || owned >= OWNED || !go_on() {
            return Ok(lock);
        }
        let pause = Duration::from_millis(10);
        std::thread::sleep(pause);
        waited += pause;
        owned = if is_owned() { owned + pause } else { Duration::ZERO };
    }
}

/// Takes the lock file, making it if there is none; `None` when somebody has it.
fn lock(path: &Path) -> Result<Option<Lock>, OpenError> {
    let at_path = |source| failed(path, source);
    let held = |file| Lock { _name: Name(path.to_owned()), _file: file };
    loop {
        match look(path, LOCK).map_err(at_path)? {
            Found::Foreign => return Err(OpenError::Foreign { path: path.to_owned() }),
            Found::Ours(file) if !try_lock(&file).map_err(at_path)? => return Ok(None),
            Found::Ours(file) if is_named(&file, path) => return Ok(Some(held(file))),
            // Removed by its last owner between open and lock: such a lock guards nothing.
            Found::Ours(_) => {}
            Found::Nothing => {
                let file = nameless(path, LOCK).map_err(at_path)?;
                // Nobody else can have it before it has a name.
                let _ = try_lock(&file).map_err(at_path)?;
                match link(&file, path) {
                    Ok(()) => return Ok(Some(held(file))),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(at_path(error)),
                }
            }
        }
    }
}

/// Removes the files of owners that died without doing so: those whose lock bears the mark and is held by nobody. Stops when
/// `go_on` says no.
pub(super) fn remove_leftovers(dir: &Path, siblings: &[(&str, Mark)], go_on: &dyn Fn() -> bool) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let locks = entries.filter(|path| path.extension().is_some_and(|extension| extension == "lock"));
    for path in locks.take_while(|_| go_on()) {
        let Ok(Found::Ours(file)) = look(&path, LOCK) else { continue };
        if !matches!(try_lock(&file), Ok(true)) || !is_named(&file, &path) {
            continue;
        }
        tracing::info!(owner = %path.display(), "removing the files of a dead node");
        // Whatever else has one of these names is not in anybody's way yet.
        for (extension, mark) in siblings {
            let _ = clear(&path.with_extension(extension), *mark);
        }
        let _ = clear_socket(&path.with_extension("sock"));
        drop(Name(path));
    }
}

/// Removes a socket that a dead owner left under this name; false when what is there is no socket.
pub fn clear_socket(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt as _;
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map(|()| true),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn failed(path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { path: path.to_owned(), source }
}

/// A marked file in the directory of `path` that has no name yet, and is gone unless it gets one.
fn nameless(path: &Path, mark: Mark) -> io::Result<OwnedFd> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let file = rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    match huge_page_of(&file) {
        Some(_) if mark == LOCK => {}
        Some(page) => mark_mapped(&file, mark, page)?,
        None if rustix::io::pwrite(&file, &mark, 0)? == mark.len() => {}
        None => return Err(Errno::NOSPC.into()),
    }
    Ok(file)
}

/// Marks a file that takes no ordinary writes, through its first page.
fn mark_mapped(file: &OwnedFd, mark: Mark, page: u64) -> io::Result<()> {
    memory_file::allocate(file, page, &|| true)?;
    let first = MemoryFile::map(file, true)?;
    first.words()[0].store(u64::from_le_bytes(mark), Ordering::Release);
    Ok(())
}

fn link(file: &OwnedFd, path: &Path) -> io::Result<()> {
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

/// What has a name.
enum Found {
    Nothing,
    Ours(OwnedFd),
    Foreign,
}

/// Looks at what has this name, whatever it is.
fn look(path: &Path, mark: Mark) -> io::Result<Found> {
    // Neither a pipe without a writer nor a link elsewhere may hold this up.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        // A link, or a socket.
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Found::Foreign),
        Err(error) => return Err(error.into()),
    };
    Ok(if bears(&file, mark) { Found::Ours(file) } else { Found::Foreign })
}

fn bears(file: &OwnedFd, mark: Mark) -> bool {
    let mut found = Mark::default();
    match rustix::io::pread(file, &mut found, 0) {
        // Nobody loses a byte with an empty file.
        Ok(0) => mark == LOCK && huge_page_of(file).is_some(),
        Ok(len) => len == mark.len() && found == mark,
        Err(_) => false,
    }
}

fn try_lock(file: &OwnedFd) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_named(file: &OwnedFd, path: &Path) -> bool {
    match (rustix::fs::fstat(file), rustix::fs::lstat(path)) {
        (Ok(open), Ok(named)) => (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino),
        _ => false,
    }
}
