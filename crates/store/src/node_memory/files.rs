//! A pool's files: made and locked at start, removed at the end, leftovers of dead owners cleared away.

use super::marked::{self, Lock, Mark, Name};
use super::mount::Mount;
use super::{Inner, NodeMemory};
use crate::layout::{CONTROL_BYTES, MAP_MARK, MAX_SLOTS, SLAB_MARK, Shape};
use crate::memory_file::{self, MemoryFile};
use crate::tier::SlowerTiers;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tidepool_locks::{Condvar, Mutex};
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_types::{ByteSize, Epoch, NodeName, TenantSecret};

/// What a pool is made of.
#[derive(Debug, Clone)]
pub struct NodeMemoryConfig {
    /// The directory of the shared files; a memory file system.
    pub dir: PathBuf,
    /// The owner's name.
    pub name: NodeName,
    /// The secret of the tenant whose blocks these are.
    pub secret: TenantSecret,
    /// The owner's incarnation.
    pub epoch: Epoch,
    /// Bytes for blocks.
    pub capacity: ByteSize,
    /// The length that decides how many slots there are: a pool full of smaller blocks runs out of slots before space.
    pub smallest_expected_block: ByteSize,
    /// Which block goes when room is needed.
    pub eviction: Policy,
    /// Which blocks come in once it is full.
    pub admission: Rule,
}

/// Why a pool could not be made.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Too little memory.
    #[error(
        "capacity {capacity}: {dir} has {available} free{}, and {needed} are needed for blocks and their index",
        if *huge { " in huge pages (more: /proc/sys/vm/nr_hugepages, or the mount's size)" } else { "" }
    )]
    TooLittleMemory {
        /// The mount.
        dir: PathBuf,
        /// The capacity asked for.
        capacity: ByteSize,
        /// What the mount has.
        available: ByteSize,
        /// What the pool takes.
        needed: ByteSize,
        /// The mount gives huge pages.
        huge: bool,
    },
    /// Less than a huge page.
    #[error("capacity {capacity}: {dir} gives memory in huge pages of {page}, so the least is {page}")]
    LessThanAPage {
        /// The mount.
        dir: PathBuf,
        /// The capacity asked for.
        capacity: ByteSize,
        /// The size of its pages.
        page: ByteSize,
    },
    /// No file can be made, though there is memory.
    #[error("{dir} has no inode left for another file")]
    NoInodes {
        /// The mount.
        dir: PathBuf,
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
    /// A file that is not Tidepool's has a name that the pool needs.
    #[error("{path} is in the way, and is no file of a Tidepool node: move it, or choose another name or directory")]
    Foreign {
        /// The file, which stays as it is.
        path: PathBuf,
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

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    move |source| OpenError::Io { path: path.to_owned(), source }
}

/// The open files of a pool; dropping them removes them. Readers that still map them keep their pages; only the names go.
pub(super) struct Files {
    map_readable: OwnedFd,
    slab_readable: OwnedFd,
    slab_writable: OwnedFd,
    /// Taken once, by whoever removes the files.
    names: Mutex<Option<Names>>,
}

struct Names {
    _files: [Name; 2],
    /// Held for as long as the files have names; goes last.
    _lock: Lock,
}

impl Files {
    pub(super) fn readable(&self) -> [BorrowedFd<'_>; 2] {
        [self.map_readable.as_fd(), self.slab_readable.as_fd()]
    }

    pub(super) fn writable(&self) -> BorrowedFd<'_> {
        self.slab_writable.as_fd()
    }
}

impl NodeMemory {
    /// Removes the pool's files now, whoever still uses the pool: memory that is mapped stays, only the names go. For an owner
    /// that ends and cannot wait for them.
    pub fn remove_files(&self) {
        let names = self.files.names.lock().take();
        drop(names);
    }
}

impl NodeMemory {
    /// Makes a pool: allocates and touches all of its memory, so that nothing can run out of it later.
    pub fn create(config: &NodeMemoryConfig) -> Result<Arc<Self>, OpenError> {
        Self::create_while(config, &|| true)
    }

    /// The same, for as long as `go_on`, asked every few tenths of a second, says yes. Once it says no nothing is left.
    pub fn create_while(config: &NodeMemoryConfig, go_on: &dyn Fn() -> bool) -> Result<Arc<Self>, OpenError> {
        Self::create_over(SlowerTiers::default(), config, go_on)
    }

    /// The same on top of slower tiers.
    pub(super) fn create_over(
        slower: SlowerTiers,
        config: &NodeMemoryConfig,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Arc<Self>, OpenError> {
        // Nothing is made for sizes that fit no mount.
        shape_of(config, None)?;
        fs::create_dir_all(&config.dir).map_err(at(&config.dir))?;
        let mount = Mount::of(&config.dir)?;
        mount.warn_unless_in_memory(&config.dir);
        let huge_page = mount.huge_page;
        let shape = shape_of(config, huge_page)?;
        let lengths = [shape.map_bytes(), shape.slab_bytes()].map(|len| len.next_multiple_of(huge_page.unwrap_or(1)));
        let needed = ByteSize(lengths.iter().sum());
        let path = |extension: &str| config.dir.join(format!("{}.{extension}", config.name));
        let (map_path, slab_path) = (path("map"), path("slab"));
        marked::remove_leftovers(&config.dir, &[("map", MAP_MARK), ("slab", SLAB_MARK)], go_on);
        let lock = marked::lock_patiently(&path("lock"), &|| map_path.exists(), go_on);
        let lock = match lock.map_err(|error| explain(error, config, needed, 0))? {
            Some(lock) => lock,
            None if !go_on() => return Err(OpenError::Stopped),
            None => return Err(OpenError::InUse { name: config.name.clone(), dir: config.dir.clone() }),
        };
        check_space(config, needed)?;
        let map_file = create(&map_path, MAP_MARK).map_err(|error| explain(error, config, needed, 0))?;
        let slab_file = create(&slab_path, SLAB_MARK).map_err(|error| explain(error, config, needed, 0))?;
        let made = |file: &SharedFile, path, len| -> Result<MemoryFile, OpenError> {
            rustix::fs::ftruncate(&file.writable, len).map_err(|error| at(path)(error.into()))?;
            let memory = MemoryFile::map(&file.writable, true).map_err(at(path))?;
            memory.touch(go_on);
            // Whatever could not be touched fails here, with its reason.
            let allocated = memory_file::allocate(&file.writable, len, go_on).map_err(at(path));
            allocated.map_err(|error| explain(error, config, needed, map_file.allocated() + slab_file.allocated()))?;
            if go_on() { Ok(memory) } else { Err(OpenError::Stopped) }
        };
        let map = made(&map_file, &map_path, lengths[0])?;
        let slab = made(&slab_file, &slab_path, lengths[1])?;
        shape.describe(map.words(), slab.words());
        let files = Files {
            map_readable: map_file.readable,
            slab_readable: slab_file.readable,
            slab_writable: slab_file.writable,
            names: Mutex::new(Some(Names { _files: [map_file.name, slab_file.name], _lock: lock })),
        };
        let (freed, changed) = (Condvar::new(), Condvar::new());
        let inner = Mutex::new(Inner::empty(shape, config));
        Ok(Arc::new(Self { secret: config.secret, shape, map, slab, files, slower, inner, freed, changed }))
    }
}

fn shape_of(config: &NodeMemoryConfig, huge_page: Option<u64>) -> Result<Shape, OpenError> {
    let capacity = match huge_page {
        // The control page in front of the blocks comes out of the huge pages, so that none is wasted.
        Some(page) => (config.capacity.0 - config.capacity.0 % page).checked_sub(CONTROL_BYTES).ok_or_else(|| {
            let (dir, capacity) = (config.dir.clone(), config.capacity);
            OpenError::LessThanAPage { dir, capacity, page: ByteSize(page) }
        })?,
        // Whole pages: the slab is mapped and its blocks are aligned to pages.
        None => config.capacity.0 & !4095,
    };
    let slots = capacity.checked_div(config.smallest_expected_block.0).unwrap_or(0);
    if config.smallest_expected_block.0 < 64 || !(1..=MAX_SLOTS).contains(&slots) {
        return Err(OpenError::Shape { capacity: config.capacity, block: config.smallest_expected_block });
    }
    Ok(Shape { epoch: config.epoch, slots, capacity })
}

fn check_space(config: &NodeMemoryConfig, needed: ByteSize) -> Result<(), OpenError> {
    let mount = Mount::of(&config.dir)?;
    if needed.0 <= mount.available { Ok(()) } else { Err(too_little(config, &mount, needed, 0)) }
}

/// What is said of a mount that is full, though it may not have been a moment ago; `own` bytes of it are this pool's.
fn explain(error: OpenError, config: &NodeMemoryConfig, needed: ByteSize, own: u64) -> OpenError {
    match error {
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => match Mount::of(&config.dir) {
            Ok(mount) if own == 0 && mount.is_out_of_inodes => OpenError::NoInodes { dir: config.dir.clone() },
            Ok(mount) => too_little(config, &mount, needed, own),
            Err(error) => error,
        },
        other => other,
    }
}

fn too_little(config: &NodeMemoryConfig, mount: &Mount, needed: ByteSize, own: u64) -> OpenError {
    let (dir, capacity) = (config.dir.clone(), config.capacity);
    OpenError::TooLittleMemory {
        dir,
        capacity,
        available: ByteSize(mount.available + own),
        needed,
        huge: mount.huge_page.is_some(),
    }
}

/// One of the two shared files, just made.
struct SharedFile {
    name: Name,
    writable: OwnedFd,
    readable: OwnedFd,
}

impl SharedFile {
    /// Bytes that it has by now.
    fn allocated(&self) -> u64 {
        rustix::fs::fstat(&self.writable).map_or(0, |found| found.st_blocks as u64 * 512)
    }
}

fn create(path: &Path, mark: Mark) -> Result<SharedFile, OpenError> {
    // The lock is ours, so a marked file of this name was left by a dead owner.
    marked::clear(path, mark)?;
    let (name, writable) = marked::create(path, mark).map_err(at(path))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let readable = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| at(path)(error.into()))?;
    Ok(SharedFile { name, writable, readable })
}
