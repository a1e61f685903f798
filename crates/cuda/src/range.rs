//! Memory of this process that takes many addresses and few pages.
#![expect(unsafe_code, reason = "memory is mapped by address")]

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr;

/// A range of addresses that maps the same pages again and again: as wide as a pool to a device, which looks addresses
/// up, and small in the host's memory. Page-aligned, as a pool's memory is.
#[derive(Debug)]
pub(crate) struct Range {
    start: *mut u8,
    len: usize,
}

impl Range {
    /// Maps `len` bytes of addresses over `pages` bytes of memory. `len` is a multiple of `pages`, and `pages` of the
    /// page size.
    pub(crate) fn new(len: usize, pages: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("tidepool-sample", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, pages as u64)?;
        // SAFETY: the kernel picks unused addresses.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let range = Self { start: start.cast(), len };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        for at in (0..len).step_by(pages) {
            let place = range.start.wrapping_add(at).cast();
            // SAFETY: in place of a part of the range that was just taken; its file is as long.
            unsafe { rustix::mm::mmap(place, pages, both, MapFlags::SHARED | MapFlags::FIXED, &file, 0)? };
        }
        Ok(range)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no borrow of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_pages_lie_behind_every_part_of_a_range() {
        let range = Range::new(1 << 20, 1 << 16).unwrap();
        assert!(range.start().addr().is_multiple_of(4096));
        // SAFETY: both addresses are of the range.
        unsafe { range.start().write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { range.start().add((1 << 20) - (1 << 16)).read_volatile() }, 7);
    }
}
