//! Shared memory: files that are allocated and touched when made, mapped by whoever is handed a descriptor.
//!
//! Where the kernel can, they lie in huge pages: a copy of a small block is mostly the walk to its page, and memory is
//! cleared, entered into page tables and pinned for a device 512 pages at a time.

use crate::sync::AtomicU64;
use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use tidepool_locks::Mutex;

/// Memory is allocated and populated in steps of this many bytes: one for all of it would hold up signals, and whoever
/// wants to stop, for as long as the kernel takes.
const STEP: u64 = 64 << 20;
/// Threads that touch memory: more would wait for the kernel's locks, and for the memory.
const MOST_THREADS: usize = 16;
/// Bytes of a huge page. Only where mappings start at a multiple of it does the kernel map a file's huge pages as such.
const HUGE_PAGE: usize = 2 << 20;
/// More than the pages of any file system.
const LARGEST_PAGE: usize = 16 << 30;

/// A shared mapping of a whole file.
pub(crate) struct MemoryFile {
    start: NonNull<u8>,
    len: usize,
    _addresses: Addresses,
}

/// A range of addresses, and whatever is mapped there.
struct Addresses {
    start: *mut u8,
    len: usize,
}

impl Addresses {
    /// Addresses that nothing else is mapped at until these are dropped.
    fn reserve(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory that Rust knows of.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)? };
        Ok(Self { start: start.cast(), len })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives it.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

// SAFETY: a mapping is only an address range that stays mapped until drop; what may be done with its bytes is decided by
// the protocol over them, which uses atomics or tolerates races.
unsafe impl Send for MemoryFile {}
// SAFETY: as above.
unsafe impl Sync for MemoryFile {}

/// Makes a file at least `len` bytes long, all of them backed by memory from now on. `go_on` is asked between steps: when it says no,
/// the file stays as it is.
pub(crate) fn allocate(file: &OwnedFd, len: u64, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut steps = (0..len).step_by(STEP as usize).take_while(|_| go_on());
    let step = |start| rustix::fs::fallocate(file, FallocateFlags::empty(), start, STEP.min(len - start));
    Ok(steps.try_for_each(step)?)
}

impl MemoryFile {
    /// Maps all of `file`. The owner must never shorten a file that it has handed out.
    pub(crate) fn map(file: impl AsFd, writable: bool) -> io::Result<Self> {
        let found = rustix::fs::fstat(&file)?;
        let len = usize::try_from(found.st_size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len == 0 || !len.is_multiple_of(8) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a shared file of {len} bytes")));
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // A file on hugetlbfs may have larger pages.
        let page = (found.st_blksize as usize).clamp(HUGE_PAGE, LARGEST_PAGE).next_power_of_two();
        let addresses = Addresses::reserve(len.checked_add(page).ok_or(io::ErrorKind::OutOfMemory)?)?;
        let aligned = addresses.start.wrapping_add(addresses.start.align_offset(page));
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: it takes the place of addresses that were reserved for it: a page more than it is long.
        let start = unsafe { rustix::mm::mmap(aligned.cast(), len, protection, flags, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len, _addresses: addresses })
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
                if !go_on() || self.touch_piece(piece).is_err() {
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

    fn touch_piece(&self, piece: Range<u64>) -> io::Result<()> {
        self.ask_for_huge_pages(piece.clone());
        self.populate_piece(piece, true)
    }

    /// Has the kernel back a piece with huge pages. Where it cannot (before Linux 6.1, on another file system, where memory
    /// does not lie together), small ones do as well, but slower.
    fn ask_for_huge_pages(&self, piece: Range<u64>) {
        let pages = piece.clone().step_by(HUGE_PAGE).filter(|page| page + HUGE_PAGE as u64 <= piece.end);
        // The kernel does so only where something is there already: the first of the small pages.
        if pages.map(|page| self.populate_piece(page..page + 1, true)).all(|touched| touched.is_ok())
            && let Some(address) = self.at(piece.start, piece.end - piece.start)
        {
            // SAFETY: the bytes stay what they are, and where they are; only the pages under them change.
            unsafe { libc::madvise(address.cast(), (piece.end - piece.start) as usize, libc::MADV_COLLAPSE) };
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 8 << 20;

    fn file() -> OwnedFd {
        let file = tempfile::tempfile_in("/dev/shm").expect("/dev/shm can be written to");
        file.set_len(LEN).expect("a length");
        file.into()
    }

    /// Kilobytes of a mapping that are mapped in huge pages.
    fn in_huge_pages(memory: &MemoryFile) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process's mappings");
        let start = format!("{:x}-", memory.start.as_ptr().addr());
        let lines = maps.lines().skip_while(|line| !line.starts_with(&start));
        let said = lines.skip(1).find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
        said.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).expect("the kernel says so of each mapping")
    }

    /// Whether the kernel makes huge pages of small ones here.
    fn kernel_can() -> bool {
        let memory = MemoryFile::map(file(), true).expect("mapped");
        memory.populate(true, &|| true);
        let address = memory.at(0, LEN).expect("all of it");
        // SAFETY: no byte changes.
        unsafe { libc::madvise(address.cast(), LEN as usize, libc::MADV_COLLAPSE) == 0 }
    }

    #[test]
    fn memory_lies_in_huge_pages_where_the_kernel_has_them() {
        if !kernel_can() {
            eprintln!("SKIPPED: this kernel makes no huge pages of /dev/shm, or has none to give");
            return;
        }
        // Others on this host may have taken the last one a moment ago.
        let touch = |_| {
            let file = file();
            let owner = MemoryFile::map(&file, true).expect("mapped");
            owner.touch(&|| true);
            (file, owner)
        };
        let whole = (0..10).map(touch).find(|(_, owner)| in_huge_pages(owner) == LEN / 1024);
        let (file, owner) = whole.expect("all of the owner's");
        let reader = MemoryFile::map(&file, false).expect("mapped");
        reader.populate(false, &|| true);
        assert_eq!(in_huge_pages(&reader), LEN / 1024, "and a reader's");
        assert!(owner.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn mappings_come_and_go_without_a_trace() {
        let mapped = || std::fs::read_to_string("/proc/self/maps").expect("this process's mappings").lines().count();
        let file = file();
        drop(MemoryFile::map(&file, true).expect("mapped"));
        let before = mapped();
        (0..100).for_each(|_| drop(MemoryFile::map(&file, true).expect("mapped")));
        assert!(mapped() <= before + 5, "a hundred mappings left {} lines of {before}", mapped());
    }
}
