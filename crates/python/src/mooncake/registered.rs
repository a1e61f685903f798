//! Registered buffers. The pool needs no registration; here it tells addresses that may be read and written from those
//! that would crash the process.

use super::number::Number;
use std::collections::BTreeMap;
use tidepool_locks::RwLock;

/// A piece of the caller's memory, as Python gives it: address and length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) address: usize,
    pub(super) len: usize,
}

impl Piece {
    pub(super) fn new(address: Number, len: Number) -> Self {
        Self { address: address.0, len: len.0 }
    }

    /// # Safety
    /// The piece must lie in registered memory that stays there, and that no thread writes to, while the slice is used.
    pub(super) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }

    /// # Safety
    /// As [`Piece::bytes`], and no other thread may read it.
    pub(super) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) }
    }
}

/// Registered buffers by address.
#[derive(Default)]
pub(super) struct Registered(RwLock<BTreeMap<usize, usize>>);

impl Registered {
    /// Notes a buffer; false when it overlaps another one, is empty or is not mapped.
    pub(super) fn add(&self, address: usize, len: usize) -> bool {
        let mut buffers = self.0.write();
        let Some(end) = address.checked_add(len).filter(|_| len > 0) else { return false };
        let before = buffers.range(..end).next_back();
        if before.is_some_and(|(start, len)| start + len > address) || !is_mapped(address, end) {
            return false;
        }
        buffers.insert(address, len);
        true
    }

    /// Forgets the buffer at `address`; false when there is none.
    pub(super) fn remove(&self, address: usize) -> bool {
        self.0.write().remove(&address).is_some()
    }

    pub(super) fn clear(&self) {
        self.0.write().clear();
    }

    /// Whether every piece lies in a registered buffer.
    pub(super) fn hold(&self, pieces: &[Piece]) -> bool {
        self.hold_each([pieces])[0]
    }

    /// As [`Self::hold`] for the pieces of each block.
    pub(super) fn hold_each<'a>(&self, blocks: impl IntoIterator<Item = &'a [Piece]>) -> Vec<bool> {
        let buffers = self.0.read();
        let holds = |piece: &Piece| {
            let before = buffers.range(..=piece.address).next_back();
            before
                .is_some_and(|(start, len)| piece.address.checked_add(piece.len).is_some_and(|end| end <= start + len))
        };
        blocks.into_iter().map(|pieces| pieces.iter().all(holds)).collect()
    }
}

/// Whether the process has every page of the range mapped.
fn is_mapped(start: usize, end: usize) -> bool {
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
    let mut resident = vec![0u8; 4096];
    let step = page * resident.len();
    (start / page * page..end).step_by(step).all(|from| {
        let len = step.min(end - from);
        // SAFETY: it writes a byte per page of the range into `resident`, which has as many, and touches nothing else.
        unsafe { libc::mincore(from as *mut libc::c_void, len, resident.as_mut_ptr()) == 0 }
    })
}
