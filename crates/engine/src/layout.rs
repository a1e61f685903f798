//! The layout of an engine's paged blocks in memory.
//!
//! A block of a KV group is scattered: a piece for each layer, or several where a layer keeps keys and values apart.
//! Piece `p` of block `b` lies at `p.base + b * p.stride`. A layout has numbers only; a mover knows the memory behind
//! the addresses.

use thiserror::Error;

/// More pieces than any layout has: a block of thousands of pieces would be slower to move than to compute.
const MOST_PIECES: usize = 4096;

/// One piece of every block of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The piece's address in block 0.
    pub base: usize,
    /// Bytes from one block's piece to the next block's.
    pub stride: usize,
    /// Bytes of the piece.
    pub len: usize,
}

/// The pieces of every group's blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    groups: Vec<Vec<Piece>>,
    blocks: u32,
}

/// Why a layout cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A block has too many pieces.
    #[error("a block of group {group} has {pieces} pieces: allowed are {MOST_PIECES}")]
    TooManyPieces {
        /// The group.
        group: usize,
        /// Its pieces.
        pieces: usize,
    },
    /// A piece is empty, overlaps its neighbour's, or does not fit into the address space.
    #[error("piece {piece:?} of group {group} is empty, overlaps the next block's or does not fit into memory")]
    BadPiece {
        /// The group.
        group: usize,
        /// The piece.
        piece: Piece,
    },
    /// A piece is outside the memory that the mover can reach.
    #[error("piece {piece:?} of group {group} is no memory of {device}: the KV cache is elsewhere, or was freed")]
    NotThere {
        /// The group.
        group: usize,
        /// The piece.
        piece: Piece,
        /// The device whose memory it should be.
        device: String,
    },
}

impl Layout {
    /// Blocks 0 to `blocks` of each group. Pieces that lie next to each other in every block become one.
    pub fn new(groups: Vec<Vec<Piece>>, blocks: u32) -> Result<Self, LayoutError> {
        for (group, pieces) in groups.iter().enumerate() {
            if pieces.len() > MOST_PIECES {
                return Err(LayoutError::TooManyPieces { group, pieces: pieces.len() });
            }
            if let Some(piece) = pieces.iter().find(|piece| !piece.fits(blocks)) {
                return Err(LayoutError::BadPiece { group, piece: *piece });
            }
        }
        Ok(Self { groups: groups.into_iter().map(joined).collect(), blocks })
    }

    /// Number of KV groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether the layout has this block.
    #[must_use]
    pub fn has(&self, group: usize, block: u32) -> bool {
        block < self.blocks && self.groups.get(group).is_some_and(|pieces| !pieces.is_empty())
    }

    /// Bytes in one block of a group.
    #[must_use]
    pub fn block_len(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |pieces| pieces.iter().map(|piece| piece.len).sum())
    }

    /// Bytes in the longest block.
    pub(crate) fn longest_block(&self) -> usize {
        (0..self.groups.len()).map(|group| self.block_len(group)).max().unwrap_or(0)
    }

    /// The address and the length of each piece of a block, in order; `None` if there is no such block.
    pub(crate) fn pieces(&self, group: usize, block: u32) -> Option<impl Iterator<Item = (usize, usize)> + '_> {
        self.has(group, block).then(|| self.groups[group].iter().map(move |piece| (piece.at(block), piece.len)))
    }

    /// The first piece that has no memory at one of its ends, by group.
    pub(crate) fn find_missing(&self, has: impl Fn(usize, usize) -> bool) -> Option<(usize, Piece)> {
        let last = self.blocks.saturating_sub(1);
        let pieces =
            self.groups.iter().enumerate().flat_map(|(group, pieces)| pieces.iter().map(move |piece| (group, *piece)));
        let is_there = |piece: &Piece| has(piece.base, piece.len) && has(piece.at(last), piece.len);
        pieces.filter(|_| self.blocks > 0).find(|(_, piece)| !is_there(piece))
    }
}

impl Piece {
    fn at(&self, block: u32) -> usize {
        self.base + block as usize * self.stride
    }

    fn fits(&self, blocks: u32) -> bool {
        let end = self.stride.checked_mul(blocks as usize).and_then(|span| self.base.checked_add(span));
        self.base != 0 && self.len > 0 && self.len <= self.stride && end.is_some_and(|end| end <= isize::MAX as usize)
    }
}

/// Pieces in order, with those that touch in every block made one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.stride == piece.stride && last.base + last.len == piece.base => last.len += piece.len,
            _ => joined.push(piece),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(groups: Vec<Vec<Piece>>, blocks: u32) -> Result<Layout, LayoutError> {
        Layout::new(groups, blocks)
    }

    #[test]
    fn layers_that_touch_in_every_block_are_one_piece() {
        let piece = |base, len| Piece { base, stride: 64, len };
        let together = layout(vec![vec![piece(4096, 16), piece(4112, 16), piece(4160 - 16, 16)]], 4).unwrap();
        assert_eq!(together.groups, [[piece(4096, 32), piece(4144, 16)]]);
        assert_eq!(together.block_len(0), 48);
    }

    #[test]
    fn pieces_that_cannot_be_are_refused() {
        let refused =
            |piece| layout(vec![Vec::new(), vec![piece]], 8) == Err(LayoutError::BadPiece { group: 1, piece });
        assert!(refused(Piece { base: 0, stride: 8, len: 8 }));
        assert!(refused(Piece { base: 4096, stride: 8, len: 9 }));
        assert!(refused(Piece { base: 4096, stride: 8, len: 0 }));
        assert!(refused(Piece { base: usize::MAX - 8, stride: 8, len: 8 }));
    }

    #[test]
    fn blocks_and_groups_that_are_not_there_have_no_memory() {
        let layout = layout(vec![vec![Piece { base: 4096, stride: 8, len: 8 }], Vec::new()], 2).unwrap();
        assert!(layout.has(0, 1));
        assert!(!layout.has(0, 2) && !layout.has(1, 0) && !layout.has(2, 0));
        assert!(layout.pieces(1, 0).is_none() && layout.pieces(0, 2).is_none());
    }
}
