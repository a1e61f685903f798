//! Shared memory: files that are allocated and touched when made, mapped by whoever is handed a descriptor.

use crate::sync::AtomicU64;
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory is allocated and populated in steps of this many bytes: one for all of it would hold up signals, and whoever
/// wants to stop, for as long as the kernel takes.
const STEP: u64 = 64 << 20;
/// Threads that touch memory: more would wait for the kernel's locks, and for the memory.
const MOST_THREADS: usize = 16;

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

/// Makes a file at least `len` bytes long, all of them backed by memory from now on. `go_on` is asked between steps: when it says no,
/// the file stays as it is.
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
    /// takes tenths of a second per gigabyte; failing costs speed only. `go_on` is asked between pieces.
    pub(crate) fn populate(&self, writable: bool, go_on: &dyn Fn() -> bool) {
        self.pieces().take_while(|_| go_on()).for_each(|piece| {
            let _ = self.populate_piece(piece, writable);
        });
    }

    /// The same for a file's owner, for writing, by every processor: memory that was never touched is cleared first, which takes
    /// seconds per gigabyte on a virtual machine. Ends early where memory runs out: allocating the file says so.
    pub(crate) fn touch(&self, go_on: &dyn Fn() -> bool) {
        let pieces = Mutex::new(self.pieces());
        let is_over = AtomicBool::new(false);
        let work = |go_on: &dyn Fn() -> bool| {
            // Not in the loop's head, where the lock would be held throughout.
            let next = || pieces.lock().next();
            while !is_over.load(Ordering::Relaxed)
                && let Some(piece) = next()
            {
                if !go_on() || self.populate_piece(piece, true).is_err() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        };
        let others = std::thread::available_parallelism().map_or(0, |all| all.get().min(MOST_THREADS) - 1);
        std::thread::scope(|scope| {
            (0..others).for_each(|_| {
                // One that cannot be started leaves the others more to do.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || work(&|| true));
            });
            work(go_on);
        });
    }

    fn pieces(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let len = self.len();
        (0..len).step_by(STEP as usize).map(move |start| start..len.min(start + STEP))
    }

    fn populate_piece(&self, piece: Range<u64>, writable: bool) -> io::Result<()> {
        let advice = if writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        let len = piece.end - piece.start;
        let address = self.at(piece.start, len).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: populating pages changes no byte of them.
        unsafe { rustix::mm::madvise(address.cast(), len as usize, advice)? };
        Ok(())
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
