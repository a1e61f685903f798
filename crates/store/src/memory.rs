//! Shared memory: files that are allocated and touched when made, mapped by whoever is handed a descriptor.

use crate::sync::AtomicU64;
use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Memory is allocated and populated in steps of this many bytes: one for all of it would hold up signals, and whoever
/// wants to stop, for as long as the kernel takes.
const STEP: u64 = 64 << 20;

/// A shared mapping of a whole file.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range that stays mapped until drop; what may be done with its bytes is decided by
// the protocol over them, which uses atomics or tolerates races.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Makes a file `len` bytes long, all of them backed by memory from now on. `go_on` is asked between steps: when it says no,
/// the file stays as it is, too short.
pub(crate) fn allocate(file: &OwnedFd, len: u64, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut steps = (0..len).step_by(STEP as usize).take_while(|_| go_on());
    let step = |start| rustix::fs::fallocate(file, FallocateFlags::empty(), start, STEP.min(len - start));
    Ok(steps.try_for_each(step)?)
}

impl Memory {
    /// Maps all of `file`. The owner must never shorten a file that it has handed out.
    pub(crate) fn map(file: impl AsFd, writable: bool) -> io::Result<Self> {
        let len = rustix::fs::fstat(&file)?.st_size as u64;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 || !len.is_multiple_of(8) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a shared file of {len} bytes")));
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory that Rust knows of.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Enters all pages into this process's page tables, so that the first copy is as fast as the second. The kernel
    /// takes tenths of a second per gigabyte; failing costs speed only.
    /// `go_on` is asked between pieces.
    pub(crate) fn populate(&self, writable: bool, go_on: &dyn Fn() -> bool) {
        let advice = if writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        for start in (0..self.len as u64).step_by(STEP as usize).take_while(|_| go_on()) {
            let len = STEP.min(self.len as u64 - start);
            if let Some(address) = self.at(start, len) {
                // SAFETY: populating pages changes no byte of them.
                let _ = unsafe { rustix::mm::madvise(address.cast(), len as usize, advice) };
            }
        }
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// The mapping as words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range is mapped until drop, page-aligned, and every bit pattern is a valid atomic; other processes
        // may change it at any time, which atomics allow. A read-only mapping is only ever loaded from.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / 8) }
    }

    /// The address of `len` bytes at `offset`, if they lie inside the mapping.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: the offset lies inside the mapping.
        (end <= self.len as u64).then(|| unsafe { self.start.as_ptr().add(offset as usize) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Asks the processor to have the line at `address` in cache soon.
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
