//! The file system that a pool's directory lies on: how much memory it has left, whether it gives huge pages, and whether it is
//! one in memory at all.
//!
//! On hugetlbfs a file is a whole number of huge pages, takes no ordinary writes, and the free pages are the host's unless
//! the mount has a size of its own.

use super::OpenError;
use super::files::at;
use rustix::fs::{StatFs, fstatfs, statfs};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

/// What `statfs` calls hugetlbfs.
const HUGETLBFS: u32 = 0x9584_58f6;
/// What it calls the other file systems in memory: tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A pool's file system at one moment.
pub(super) struct Mount {
    /// The size of its pages, where they are huge: files are multiples of it.
    pub(super) huge_page: Option<u64>,
    /// Bytes free.
    pub(super) available: u64,
    /// No file can be made, though there is memory.
    pub(super) is_out_of_inodes: bool,
    /// Whether what is written stays in memory.
    is_in_memory: bool,
}

impl Mount {
    /// The file system that `dir` lies on.
    pub(super) fn of(dir: &Path) -> Result<Self, OpenError> {
        let found = statfs(dir).map_err(|error| at(dir)(error.into()))?;
        let block = found.f_bsize as u64;
        let own = block * found.f_bavail;
        // A file system that does not count inodes says zero of both.
        let is_out_of_inodes = found.f_files > 0 && found.f_ffree == 0;
        let is_in_memory = is_hugetlbfs(&found) || IN_MEMORY.contains(&kind(&found));
        Ok(if is_hugetlbfs(&found) {
            let free = block * free_huge_pages(block);
            // A mount without a size says that it has no blocks at all.
            let available = if found.f_blocks == 0 { free } else { own.min(free) };
            Self { huge_page: Some(block), available, is_out_of_inodes, is_in_memory }
        } else {
            Self { huge_page: None, available: own, is_out_of_inodes, is_in_memory }
        })
    }

    /// Warns of a file system that keeps its files on a disk, or elsewhere.
    pub(super) fn warn_unless_in_memory(&self, dir: &Path) {
        if self.is_in_memory {
            return;
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let (mount, kind) = dir.canonicalize().ok().and_then(|dir| mount_of(&dir, &mounts)).unzip();
        tracing::warn!(dir = %dir.display(), mount, kind, "not a memory file system: blocks are written to where it keeps files");
    }
}

/// Where the file system of `dir`, an absolute path without links, is mounted, and of what kind it is, as `mounts` says
/// (`/proc/self/mountinfo`).
fn mount_of(dir: &Path, mounts: &str) -> Option<(String, String)> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        // The kernel writes these characters of a path in octal; a backslash last, as the others have one.
        let path = before.split(' ').nth(4)?.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n");
        let path = path.replace("\\134", "\\");
        Some((path, after.split(' ').next()?.to_owned()))
    };
    let over = mounts.lines().filter_map(mount).filter(|(path, _)| dir.starts_with(path));
    // Of several on one place the last one is seen.
    over.max_by_key(|(path, _)| path.len())
}

/// The size of the pages of a file on hugetlbfs; `None` for any other file.
pub(super) fn huge_page_of(file: impl AsFd) -> Option<u64> {
    fstatfs(file).ok().filter(is_hugetlbfs).map(|found| found.f_bsize as u64)
}

fn is_hugetlbfs(found: &StatFs) -> bool {
    kind(found) == HUGETLBFS
}

fn kind(found: &StatFs) -> u32 {
    // The field's type and sign differ between architectures; the number has 32 bits.
    found.f_type as u32
}

/// Huge pages of `page` bytes that the host can still give: those that somebody has been promised are not free.
fn free_huge_pages(page: u64) -> u64 {
    let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10);
    let count = |name: &str| -> Option<u64> { fs::read_to_string(format!("{dir}/{name}")).ok()?.trim().parse().ok() };
    let free = count("free_hugepages").unwrap_or(0);
    free.saturating_sub(count("resv_hugepages").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_of_a_directory_is_found() {
        let mounts = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
                      30 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw\n\
                      31 22 8:16 / /mnt/a\\040disk rw shared:2 master:3 - xfs /dev/sdb rw\n\
                      32 22 8:32 / /mnt/a\\040disk rw - btrfs /dev/sdc rw\n\
                      broken\n";
        let found = |dir: &str| mount_of(Path::new(dir), mounts);
        let expect = |mount: &str, kind: &str| Some((mount.to_owned(), kind.to_owned()));
        assert_eq!(found("/dev/shm/tidepool"), expect("/dev/shm", "tmpfs"));
        assert_eq!(found("/dev/shmem"), expect("/", "ext4"));
        assert_eq!(found("/mnt/a disk/x"), expect("/mnt/a disk", "btrfs"));
        assert_eq!(mount_of(Path::new("/dev/shm"), "nonsense"), None);
    }
}
