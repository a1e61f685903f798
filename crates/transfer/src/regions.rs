//! Walking scattered memory: a cursor over [`Regions`], and pairs of contiguous pieces.

use crate::ops::{Region, Regions};

impl Region {
    /// A region over memory that the caller only reads from.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// A region over memory that the caller lends for writing.
    #[must_use]
    pub fn of_mut(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len() }
    }
}

impl Regions {
    /// The regions, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Region] {
        match self {
            Self::One(region) => std::slice::from_ref(region),
            Self::Many(regions) => regions,
        }
    }

    /// Bytes in all regions together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.as_slice().iter().map(|region| region.len as u64).sum()
    }

    /// A cursor at the first byte.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self.as_slice())
    }

    /// A cursor at byte `offset`, or at the end if there are fewer bytes.
    #[must_use]
    pub fn cursor_at(&self, offset: u64) -> Cursor<'_> {
        let mut cursor = self.cursor();
        cursor.skip(offset);
        cursor
    }
}

/// A place in scattered memory that only moves forward.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    /// Regions from the current one on; the current one is cut by `used`.
    rest: &'a [Region],
    /// Bytes of `rest[0]` that lie behind the cursor; always fewer than it has.
    used: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first byte of `regions`.
    #[must_use]
    pub fn new(regions: &'a [Region]) -> Self {
        let mut cursor = Self { rest: regions, used: 0 };
        cursor.settle();
        cursor
    }

    /// The contiguous memory at the cursor, at most `max` bytes; empty at the end only.
    #[must_use]
    pub fn peek(&self, max: usize) -> Region {
        match self.rest.first() {
            Some(region) => {
                Region { start: region.start.wrapping_add(self.used), len: (region.len - self.used).min(max) }
            }
            None => Region { start: std::ptr::NonNull::dangling().as_ptr(), len: 0 },
        }
    }

    /// Takes the contiguous memory at the cursor, at most `max` bytes.
    pub fn take(&mut self, max: usize) -> Region {
        let region = self.peek(max);
        self.used += region.len;
        self.settle();
        region
    }

    /// Moves forward by `bytes`, or to the end.
    pub fn skip(&mut self, mut bytes: u64) {
        while bytes > 0 && !self.rest.is_empty() {
            bytes -= self.take(usize::try_from(bytes).unwrap_or(usize::MAX)).len as u64;
        }
    }

    /// Appends the memory from the cursor on, at most `len` bytes in at most `max_pieces` pieces; returns its length. The
    /// cursor stays.
    pub fn pieces(&self, len: u64, max_pieces: usize, out: &mut Vec<Region>) -> u64 {
        let (mut ahead, mut taken) = (self.clone(), 0);
        for _ in 0..max_pieces {
            let region = ahead.take(usize::try_from(len - taken).unwrap_or(usize::MAX));
            if region.len == 0 {
                break;
            }
            taken += region.len as u64;
            out.push(region);
        }
        taken
    }

    /// Keeps the invariant of `used`: steps over used-up and empty regions.
    fn settle(&mut self) {
        while let [first, rest @ ..] = self.rest
            && self.used == first.len
        {
            (self.rest, self.used) = (rest, 0);
        }
    }
}

/// Hands out the pairs of contiguous pieces that `len` bytes at both cursors consist of, and advances both. Stops early
/// where one of them ends.
pub fn for_each_pair(
    to: &mut Cursor<'_>,
    from: &mut Cursor<'_>,
    mut len: usize,
    mut each: impl FnMut(*mut u8, *const u8, usize),
) {
    while len > 0 {
        let piece = to.peek(len).len.min(from.peek(len).len);
        if piece == 0 {
            return;
        }
        each(to.take(piece).start, from.take(piece).start, piece);
        len -= piece;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_steps_over_empty_regions_and_stops_at_the_end() {
        let mut bytes = [0u8; 10];
        let base = bytes.as_mut_ptr();
        let region = |at: usize, len| Region { start: base.wrapping_add(at), len };
        let regions = Regions::Many(vec![region(0, 0), region(1, 3), region(4, 0), region(6, 4), region(9, 0)]);
        assert_eq!(regions.total(), 7);
        let mut cursor = regions.cursor_at(2);
        assert_eq!((cursor.peek(9).start, cursor.peek(9).len), (base.wrapping_add(3), 1));
        let mut pieces = Vec::new();
        assert_eq!(cursor.pieces(4, 8, &mut pieces), 4);
        assert_eq!(pieces.iter().map(|piece| piece.len).collect::<Vec<_>>(), [1, 3]);
        cursor.skip(99);
        assert_eq!(cursor.take(1).len, 0);
    }
}
