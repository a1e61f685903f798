//! Memory for the table: small chunks cut from large pages.
//!
//! A look-up in a table of many small pages waits as long for the address translation as for the data, so chunks come from
//! blocks of 2 MiB that the kernel is asked to back by one large page each. A block is touched before anybody waits for
//! it ([`Arena::stock_up`]), and goes back to the system when all its chunks are free.
#![expect(unsafe_code, reason = "hands out parts of memory that it allocates itself")]

use super::segment::{CHUNK, Entry};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use tidepool_locks::Mutex;

/// Bytes of a block, and what its address is a multiple of.
const BLOCK: usize = 2 << 20;
/// Chunks in a block.
const PER_BLOCK: usize = BLOCK / size_of::<[Entry; CHUNK]>();
const LAYOUT: Layout = match Layout::from_size_align(BLOCK, BLOCK) {
    Ok(layout) => layout,
    Err(_) => panic!("two powers of two"),
};

type Cells = [Entry; CHUNK];

/// A source of [`Chunk`]s.
#[derive(Debug, Default)]
pub(super) struct Arena {
    // Taken for a few instructions per chunk; never while memory is touched for the first time.
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// By address: the chunks of each block that are free.
    by_address: BTreeMap<usize, Block>,
    /// Addresses of the blocks that have some.
    with_room: BTreeSet<usize>,
    free: usize,
}

impl Blocks {
    /// A free chunk, from the first block that has one: the others may become wholly free.
    fn take(&mut self) -> Option<(NonNull<u8>, u16)> {
        let address = *self.with_room.first()?;
        let block = self.by_address.get_mut(&address)?;
        let number = block.free.pop()?;
        if block.free.is_empty() {
            self.with_room.remove(&address);
        }
        self.free -= 1;
        Some((block.memory, number))
    }
}

#[derive(Debug)]
struct Block {
    memory: NonNull<u8>,
    free: Vec<u16>,
}

// SAFETY: a block's memory is owned by the arena and its chunks, and is only reached through them; nothing in it is tied to
// the thread that allocated it.
unsafe impl Send for Block {}

impl Arena {
    /// Makes sure, without holding any lock for long, that `chunks` chunks can be had at once.
    pub(super) fn stock_up(&self, chunks: usize) {
        while self.blocks.lock().free < chunks {
            let block = Block::new();
            let mut blocks = self.blocks.lock();
            blocks.free += block.free.len();
            let address = block.memory.addr().get();
            blocks.with_room.insert(address);
            blocks.by_address.insert(address, block);
        }
    }

    /// A chunk of empty entries.
    pub(super) fn take(self: &Arc<Self>) -> Chunk {
        loop {
            let taken = self.blocks.lock().take();
            let Some((memory, number)) = taken else {
                self.stock_up(1);
                continue;
            };
            // SAFETY: `number` is below `PER_BLOCK`, so the chunk lies inside the block, aligned as an entry needs (its
            // offset is a multiple of its size and the block is aligned to 2 MiB). It was taken off the free list, so
            // nobody else has it.
            let cells = unsafe {
                let cells = memory.cast::<Cells>().add(usize::from(number));
                cells.write([Entry::EMPTY; CHUNK]);
                cells
            };
            return Chunk { cells, arena: self.clone() };
        }
    }

    fn give_back(&self, cells: NonNull<Cells>) {
        let address = cells.addr().get();
        let base = address & !(BLOCK - 1);
        let mut blocks = self.blocks.lock();
        blocks.free += 1;
        blocks.with_room.insert(base);
        let all_free = blocks.free;
        let Some(block) = blocks.by_address.get_mut(&base) else { return };
        block.free.push(((address - base) / size_of::<Cells>()) as u16);
        // One block's worth stays in stock.
        if block.free.len() == PER_BLOCK && all_free >= 2 * PER_BLOCK {
            blocks.by_address.remove(&base);
            blocks.with_room.remove(&base);
            blocks.free -= PER_BLOCK;
        }
    }
}

impl Block {
    /// Allocates and touches a block.
    fn new() -> Self {
        // SAFETY: the layout is not of size zero.
        let memory = NonNull::new(unsafe { alloc(LAYOUT) }).unwrap_or_else(|| handle_alloc_error(LAYOUT));
        // SAFETY: the range is the allocation itself. The advice changes how the kernel backs the memory, never what the
        // program sees; that it may be refused is fine. The write initialises memory that nobody else knows yet.
        unsafe {
            let _ = rustix::mm::madvise(memory.as_ptr().cast(), BLOCK, rustix::mm::Advice::LinuxHugepage);
            memory.write_bytes(0, BLOCK);
        }
        Self { memory, free: (0..PER_BLOCK as u16).rev().collect() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        debug_assert_eq!(self.free.len(), PER_BLOCK, "chunks keep their arena alive");
        // SAFETY: allocated in `Block::new` with the same layout, and no chunk of it is in use: a block is dropped when
        // all its chunks are free, or with the arena, which every chunk keeps alive.
        unsafe { dealloc(self.memory.as_ptr(), LAYOUT) }
    }
}

/// A row of entries, owned like a box.
#[derive(Debug)]
pub(super) struct Chunk {
    cells: NonNull<Cells>,
    arena: Arc<Arena>,
}

// SAFETY: a chunk owns its cells as a box would, and entries are plain numbers.
unsafe impl Send for Chunk {}
// SAFETY: shared access to a chunk only reads, as with a box.
unsafe impl Sync for Chunk {}

impl Deref for Chunk {
    type Target = Cells;

    #[inline]
    fn deref(&self) -> &Cells {
        // SAFETY: the cells were initialised in `Arena::take`, belong to this chunk alone until it is dropped, and the
        // arena that it holds keeps their block allocated.
        unsafe { self.cells.as_ref() }
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut Cells {
        // SAFETY: as in `deref`, and the chunk is borrowed mutably.
        unsafe { self.cells.as_mut() }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.arena.give_back(self.cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap_and_memory_goes_back_when_they_are_dropped() {
        let arena = Arc::new(Arena::default());
        let mut chunks: Vec<_> = (0..PER_BLOCK * 3 + 1).map(|_| arena.take()).collect();
        for (n, chunk) in chunks.iter_mut().enumerate() {
            assert!(chunk.iter().all(Entry::is_empty));
            chunk.iter_mut().for_each(|entry| entry.id.word = n as u64);
        }
        for (n, chunk) in chunks.iter().enumerate() {
            assert!(chunk.iter().all(|entry| entry.id.word == n as u64));
        }
        assert_eq!(arena.blocks.lock().by_address.len(), 4);
        chunks.clear();
        let blocks = arena.blocks.lock();
        assert_eq!((blocks.by_address.len(), blocks.free), (1, PER_BLOCK));
    }

    #[test]
    fn what_was_stocked_up_is_there() {
        let arena = Arc::new(Arena::default());
        arena.stock_up(PER_BLOCK + 1);
        assert_eq!(arena.blocks.lock().free, PER_BLOCK * 2);
    }
}
