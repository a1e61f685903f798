//! The file system that a pool's directory lies on: how much memory it has left, and whether it gives huge pages.
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

/// A pool's file system at one moment.
pub(super) struct Mount {
    /// The size of its pages, where they are huge: files are multiples of it.
    pub(super) huge_page: Option<u64>,
    /// Bytes free.
    pub(super) available: u64,
    /// No file can be made, though there is memory.
    pub(super) is_out_of_inodes: bool,
}

impl Mount {
    /// The file system that `dir` lies on.
    pub(super) fn of(dir: &Path) -> Result<Self, OpenError> {
        let found = statfs(dir).map_err(|error| at(dir)(error.into()))?;
        let block = found.f_bsize as u64;
        let own = block * found.f_bavail;
        // A file system that does not count inodes says zero of both.
        let is_out_of_inodes = found.f_files > 0 && found.f_ffree == 0;
        Ok(if is_hugetlbfs(&found) {
            let free = block * free_huge_pages(block);
            // A mount without a size says that it has no blocks at all.
            let available = if found.f_blocks == 0 { free } else { own.min(free) };
            Self { huge_page: Some(block), available, is_out_of_inodes }
        } else {
            Self { huge_page: None, available: own, is_out_of_inodes }
        })
    }
}

/// The size of the pages of a file on hugetlbfs; `None` for any other file.
pub(super) fn huge_page_of(file: impl AsFd) -> Option<u64> {
    fstatfs(file).ok().filter(is_hugetlbfs).map(|found| found.f_bsize as u64)
}

fn is_hugetlbfs(found: &StatFs) -> bool {
    // The field's type and sign differ between architectures; the number has 32 bits.
    found.f_type as u32 == HUGETLBFS
}

/// Huge pages of `page` bytes that the host can still give: those that somebody has been promised are not free.
fn free_huge_pages(page: u64) -> u64 {
    let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10);
    let count = |name: &str| -> Option<u64> { fs::read_to_string(format!("{dir}/{name}")).ok()?.trim().parse().ok() };
    let free = count("free_hugepages").unwrap_or(0);
    free.saturating_sub(count("resv_hugepages").unwrap_or(0))
}
