//! Copying a block and making its checksums in one pass over memory.

use super::{fused, stream};
use crate::regions::{Cursor, for_each_pair};
use tidepool_types::{CHUNK_LEN, chunk_count};
use tidepool_wire::checksum::{BlockChecksum, Running};

/// Bytes that are summed and then copied where both cannot be done in one loop: the sum pulls them into the first two cache
/// levels, where the copy finds them.
const STEP: usize = 32 << 10;

/// Copies `len` bytes of a block and puts the checksums of their chunks into `out`. The bytes are the block's from chunk
/// `first_chunk` on, and end at a chunk boundary or at the block's end. The cursors advance by `len`.
///
/// # Panics
/// If `out` does not have one place per chunk.
///
/// # Safety
/// Both cursors must have `len` bytes left. The destination must be writable and unshared, the source readable, and the two
/// must not overlap. The source must not change meanwhile: the checksums are those of bytes that the caller vouches for.
pub unsafe fn copy_and_checksum(
    to: &mut Cursor<'_>,
    from: &mut Cursor<'_>,
    len: u64,
    checksum: &BlockChecksum,
    first_chunk: u64,
    out: &mut [u32],
) {
    assert_eq!(out.len() as u64, chunk_count(len), "one checksum per chunk");
    // SAFETY: passed on from the caller.
    unsafe { copy_chunks(to, from, len, checksum, first_chunk, out) };
    stream::fence();
}

/// [`copy_and_checksum`] without the fence.
///
/// # Safety
/// As for [`copy_and_checksum`].
pub(super) unsafe fn copy_chunks(
    to: &mut Cursor<'_>,
    from: &mut Cursor<'_>,
    len: u64,
    checksum: &BlockChecksum,
    first_chunk: u64,
    out: &mut [u32],
) {
    each_chunk(len, checksum, first_chunk, out, |in_chunk, running| {
        for_each_pair(to, from, in_chunk, |to, from, len| {
            // SAFETY: the caller promised a stable, readable source and an unshared destination apart from it.
            unsafe {
                let done = fused::copy(to, from, len, running);
                for at in (done..len).step_by(STEP) {
                    let step = STEP.min(len - at);
                    running.update(std::slice::from_raw_parts(from.add(at), step));
                    stream::copy(to.add(at), from.add(at), step);
                }
            }
        });
    });
}

/// Has `feed` give each chunk's bytes to its checksum, and puts the results into `out`.
fn each_chunk(
    len: u64,
    checksum: &BlockChecksum,
    first_chunk: u64,
    out: &mut [u32],
    mut feed: impl FnMut(usize, &mut Running),
) {
    let mut left = len;
    for (number, out) in (first_chunk..).zip(out) {
        let mut running = checksum.start_chunk(number);
        let in_chunk = left.min(CHUNK_LEN);
        left -= in_chunk;
        feed(in_chunk as usize, &mut running);
        *out = running.finish();
    }
}

/// Puts the checksums of the next chunks of `len` bytes of a block into `out`, as [`copy_and_checksum`] does.
///
/// # Safety
/// The cursor must have `len` bytes left, readable and stable.
pub(super) unsafe fn sum_chunks(
    from: &mut Cursor<'_>,
    len: u64,
    checksum: &BlockChecksum,
    first_chunk: u64,
    out: &mut [u32],
) {
    each_chunk(len, checksum, first_chunk, out, |mut in_chunk, running| {
        while in_chunk > 0 {
            let piece = from.take(in_chunk);
            assert!(piece.len > 0, "a chunk is longer than its memory");
            // SAFETY: the caller's promise.
            running.update(unsafe { std::slice::from_raw_parts(piece.start, piece.len) });
            in_chunk -= piece.len;
        }
    });
}
