//! Memory like a pool's: a file under /dev/shm, mapped shared. The file has no name, so no file is left behind.

use rustix::{
    fs::{Mode, OFlags},
    mm::{MapFlags, ProtFlags},
};
use std::{
    io,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

/// A shared mapping of a nameless file that no other process has.
#[derive(Debug)]
pub(super) struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

impl SharedMemory {
    /// Maps `len` bytes and allocates them: too little memory is an error here, not a fault later.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that no other mapping uses, and the file has exactly `len` bytes.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, len })
    }
}

impl Deref for SharedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is `len` readable bytes until drop. The file was created without a name and its descriptor is
        // closed, so no other process can change or truncate it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for SharedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, writable too; `&mut self` makes this the only reference to the only mapping.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this is the range that `new` mapped, and every reference into it borrowed `self`. A failure leaves the
        // memory mapped until the process ends, which harms nobody.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping is plain memory that this value owns, like a box of bytes.
unsafe impl Send for SharedMemory {}
// SAFETY: shared references give only reads of memory that nobody else writes.
unsafe impl Sync for SharedMemory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_holds_what_was_written() {
        let mut memory = SharedMemory::new(1 << 20).unwrap();
        memory.fill(7);
        assert!(memory.iter().all(|&byte| byte == 7));
        assert_eq!(memory.len(), 1 << 20);
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(SharedMemory::new(1 << 50).is_err());
    }
}
