//! A pool's files: made and locked at start, removed at the end, leftovers of dead owners cleared away.

use super::{Inner, Pool, PoolStats, Slot};
use crate::heap::Heap;
use crate::journal::Journal;
use crate::layout::{MAX_SLOTS, Shape};
use crate::memory::{self, Memory};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tidepool_policy::Lru;
use tidepool_types::{ByteSize, Epoch, NodeName};

/// What a pool is made of.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The directory of the shared files; a memory file system.
    pub dir: PathBuf,
    /// The owner's name.
    pub name: NodeName,
    /// The owner's incarnation.
    pub epoch: Epoch,
    /// Bytes for blocks.
    pub capacity: ByteSize,
    /// The length that decides how many slots there are: a pool full of smaller blocks runs out of slots before space.
    pub smallest_expected_block: ByteSize,
}

/// Why a pool could not be made.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Too little memory.
    #[error("capacity {capacity}: {dir} has {available} free, and {needed} are needed for blocks and their index")]
    TooLittleMemory {
        /// The mount.
        dir: PathBuf,
        /// The capacity asked for.
        capacity: ByteSize,
        /// What the mount has.
        available: ByteSize,
        /// What the pool takes.
        needed: ByteSize,
    },
    /// Sizes that make no pool.
    #[error("capacity {capacity} with blocks of {block}: a pool has 1 to {MAX_SLOTS} slots of at least 64 bytes")]
    Shape {
        /// The capacity asked for.
        capacity: ByteSize,
        /// The block size asked for.
        block: ByteSize,
    },
    /// Another owner of the same name is at work.
    #[error("node {name} is already running in {dir}: stop it, or choose another name or directory")]
    InUse {
        /// The name.
        name: NodeName,
        /// The directory.
        dir: PathBuf,
    },
    /// Whoever asked for the pool has changed their mind.
    #[error("told to stop before the memory was ready")]
    Stopped,
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |source| OpenError::Io { path: path.to_owned(), source }
}

/// The open files of a pool; dropping them removes them.
pub(super) struct Files {
    map_readable: OwnedFd,
    slab_readable: OwnedFd,
    slab_writable: OwnedFd,
    /// Before the lock: it goes last.
    _names: Names,
    /// Held for as long as the pool lives.
    _lock: OwnedFd,
}

/// The names of a pool's files, whether they are there yet or not; dropping it removes them.
struct Names {
    map: PathBuf,
    slab: PathBuf,
    lock: PathBuf,
}

impl Files {
    pub(super) fn readable(&self) -> [BorrowedFd<'_>; 2] {
        [self.map_readable.as_fd(), self.slab_readable.as_fd()]
    }

    pub(super) fn writable(&self) -> BorrowedFd<'_> {
        self.slab_writable.as_fd()
    }
}

impl Names {
    fn new(config: &PoolConfig) -> Self {
        let path = |extension: &str| config.dir.join(format!("{}.{extension}", config.name));
        Self { map: path("map"), slab: path("slab"), lock: path("lock") }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // Readers that still map the files keep their pages; only the names go. The lock goes last.
        for path in [&self.map, &self.slab, &self.lock] {
            let _ = fs::remove_file(path);
        }
    }
}

impl Pool {
    /// Makes a pool: allocates and touches all of its memory, so that nothing can run out of it later.
    pub fn create(config: &PoolConfig) -> Result<Arc<Self>, OpenError> {
        Self::create_while(config, &|| true)
    }

    /// The same, for as long as `go_on`, asked every few tenths of a second, says yes. Once it says no nothing is left.
    pub fn create_while(config: &PoolConfig, go_on: &dyn Fn() -> bool) -> Result<Arc<Self>, OpenError> {
        let shape = shape_of(config)?;
        fs::create_dir_all(&config.dir).map_err(at(&config.dir))?;
        remove_leftovers(&config.dir);
        let lock_path = config.dir.join(format!("{}.lock", config.name));
        let lock = lock_patiently(&lock_path).map_err(at(&lock_path))?;
        let lock = lock.ok_or_else(|| OpenError::InUse { name: config.name.clone(), dir: config.dir.clone() })?;
        // From here on the names are ours, and go with whatever fails.
        let names = Names::new(config);
        check_space(config, shape)?;
        let (map_writable, map_readable) = create(&names.map, shape.map_bytes(), go_on)?;
        let (slab_writable, slab_readable) = create(&names.slab, shape.slab_bytes(), go_on)?;
        let map = Memory::map(&map_writable, true).map_err(at(&names.map))?;
        let slab = Memory::map(&slab_writable, true).map_err(at(&names.slab))?;
        map.populate(true, go_on);
        slab.populate(true, go_on);
        if !go_on() {
            return Err(OpenError::Stopped);
        }
        shape.describe(map.words(), slab.words());
        let files = Files { map_readable, slab_readable, slab_writable, _names: names, _lock: lock };
        let (freed, changed) = (Condvar::new(), Condvar::new());
        Ok(Arc::new(Self { shape, map, slab, files, inner: Mutex::new(Inner::empty(shape)), freed, changed }))
    }
}

impl Inner {
    fn empty(shape: Shape) -> Self {
        let slots = shape.slots as u32;
        Self {
            last_generation: 0,
            heap: Heap::new(shape.capacity),
            order: Lru::new(slots),
            slots: vec![Slot::default(); slots as usize],
            free_slots: (0..slots).collect(),
            journal: Journal::default(),
            uses: 0,
            stats: PoolStats::default(),
        }
    }
}

fn shape_of(config: &PoolConfig) -> Result<Shape, OpenError> {
    // Whole pages: the slab is mapped and its blocks are aligned to pages.
    let capacity = config.capacity.0 & !4095;
    let slots = capacity.checked_div(config.smallest_expected_block.0).unwrap_or(0);
    if config.smallest_expected_block.0 < 64 || !(1..=MAX_SLOTS).contains(&slots) {
        return Err(OpenError::Shape { capacity: config.capacity, block: config.smallest_expected_block });
    }
    Ok(Shape { epoch: config.epoch, slots, capacity })
}

fn check_space(config: &PoolConfig, shape: Shape) -> Result<(), OpenError> {
    let mount = rustix::fs::statvfs(&config.dir).map_err(|error| at(&config.dir)(error.into()))?;
    let available = mount.f_bavail * mount.f_frsize;
    let needed = shape.map_bytes() + shape.slab_bytes();
    if needed <= available {
        return Ok(());
    }
    let (dir, capacity) = (config.dir.clone(), config.capacity);
    Err(OpenError::TooLittleMemory { dir, capacity, available: ByteSize(available), needed: ByteSize(needed) })
}

/// Makes one file; returns it writable and read-only.
fn create(path: &Path, len: u64, go_on: &dyn Fn() -> bool) -> Result<(OwnedFd, OwnedFd), OpenError> {
    // The lock is ours, so whatever has this name was left by a dead owner.
    let _ = fs::remove_file(path);
    let writable = memory::create(path, len, go_on).map_err(at(path))?;
    if !go_on() {
        return Err(OpenError::Stopped);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let readable = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| at(path)(error.into()))?;
    Ok((writable, readable))
}

/// Takes the lock file; `None` when a live owner has it. Another node that starts in the same directory holds the lock for
/// a moment while it looks for leftovers.
fn lock_patiently(path: &Path) -> io::Result<Option<OwnedFd>> {
    for _ in 0..20 {
        if let Some(file) = lock(path)? {
            return Ok(Some(file));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    lock(path)
}

/// Takes the lock file; `None` when somebody has it.
fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    loop {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The file may have been removed by its last owner between open and lock: then the lock guards nothing.
        let locked = rustix::fs::fstat(&file)?;
        match rustix::fs::stat(path) {
            Ok(named) if (named.st_dev, named.st_ino) == (locked.st_dev, locked.st_ino) => return Ok(Some(file)),
            _ => continue,
        }
    }
}

/// Removes the files of owners that died without doing so.
fn remove_leftovers(dir: &Path) {
    let locks = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in locks.filter(|path| path.extension().is_some_and(|extension| extension == "lock")) {
        if let Ok(Some(_lock)) = lock(&path) {
            tracing::info!(owner = %path.display(), "removing the files of a dead node");
            for extension in ["map", "slab", "sock", "lock"] {
                let _ = fs::remove_file(path.with_extension(extension));
            }
        }
    }
}
