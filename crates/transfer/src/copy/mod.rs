//! Copies out of and into shared memory, faster than `memcpy` where that matters.
//!
//! A large `memcpy` reads every destination line before it overwrites it and pushes the reader's working set out of the
//! cache. [`copy`] writes large pieces with non-temporal stores instead: they skip that read and the cache. Small pieces are
//! left to `memcpy`, whose result stays in cache for whoever asked for it. [`copy_and_checksum`] makes a block's chunk
//! checksums while the bytes pass through the cache, so a put touches memory once. [`CopyPool`] spreads large jobs over a
//! few threads.
//!
//! Every function here ends with a store fence: when it returns, its bytes are ordered before any later store of the
//! caller, such as the one that publishes them.
//!
//! **Racing reads.** A reader of shared memory copies first and checks the slot's generation afterwards, so the source may
//! change under the copy. These functions never branch on or compute with the copied bytes (only `copy_and_checksum` does,
//! and it must be given a stable source), so a race yields bytes that the check then throws away.

mod apart;
mod checksummed;
mod fused;
mod pool;
mod stream;

pub use checksummed::copy_and_checksum;
pub use pool::{Awake, ChecksumsInto, CopyJob, CopyPool, SumJob};

use crate::regions::Cursor;

/// Copies of at least this many bytes bypass the cache. Into a destination that is not in cache, non-temporal stores win
/// from a few kilobytes on; into one that is, and that is read at once, plain stores do (`examples/copy_speed.rs` prints
/// both). This is where a destination is no longer likely to be in the first two levels.
pub const STREAMING_MIN: usize = 128 << 10;

/// Copies `len` bytes from `src` to `dst`, bypassing the cache for large pieces.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` bytes, and the two must not overlap. Another process may write to
/// the source meanwhile; the bytes copied are then unspecified and the caller must discard them.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise is exactly what both ways of copying ask for.
    unsafe {
        if len >= STREAMING_MIN {
            copy_streaming(dst, src, len);
        } else {
            std::ptr::copy_nonoverlapping(src, dst, len);
        }
    }
}

/// Copies like [`copy`], bypassing the cache whatever the length: for a small piece of a large job whose destination
/// nobody reads soon.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { stream::copy(dst, src, len) };
    stream::fence();
}

/// Copies `len` bytes between two scattered places, each piece as [`copy`] does. The cursors advance by `len`.
///
/// # Safety
/// Both cursors must have `len` bytes left and the promise of [`copy`] must hold for each piece.
pub unsafe fn copy_scattered(to: &mut Cursor<'_>, from: &mut Cursor<'_>, len: usize) {
    // SAFETY: the caller's promise covers every piece that the two cursors hand out.
    crate::regions::for_each_pair(to, from, len, |to, from, len| unsafe { copy(to, from, len) });
}

/// Copies like [`copy_scattered`], bypassing the cache whatever the length and without the fence: for one of many small
/// pieces. [`fence`] must follow the last one.
///
/// # Safety
/// As for [`copy_scattered`].
pub unsafe fn stream_scattered(to: &mut Cursor<'_>, from: &mut Cursor<'_>, len: usize) {
    // SAFETY: as above.
    crate::regions::for_each_pair(to, from, len, |to, from, len| unsafe { stream::copy(to, from, len) });
}

/// Orders all stores so far before later ones.
pub fn fence() {
    stream::fence();
}

#[cfg(test)]
mod tests;
