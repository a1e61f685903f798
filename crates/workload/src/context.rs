//! A session's context: the pieces of text that it sends with every turn, and their block hashes.
//!
//! A block's hash covers the pieces in it and the hash before it, so that equal hashes mean equal prefixes: sessions that begin
//! with the same pieces share blocks up to the one in which they part.

use tidepool_trace::BlockHash;

/// A name of a piece of text: equal names mean equal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) u64);

/// Scatters the bits of a number and what came before it.
pub(crate) const fn mix(before: u64, value: u64) -> u64 {
    tidepool_types::mix(before.rotate_left(25) ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Pieces of text in order, cut into blocks.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    block_tokens: u32,
    pieces: Vec<(Text, u32)>,
    tokens: u32,
    full: Vec<BlockHash>,
    /// Hash of everything up to the last token, and the number of tokens behind the last full block.
    running: u64,
    open: u32,
}

impl Context {
    pub(crate) const fn new(block_tokens: u32) -> Self {
        Self { block_tokens, pieces: Vec::new(), tokens: 0, full: Vec::new(), running: 0, open: 0 }
    }

    pub(crate) const fn tokens(&self) -> u32 {
        self.tokens
    }

    pub(crate) const fn pieces(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn push(&mut self, text: Text, tokens: u32) {
        self.pieces.push((text, tokens));
        self.tokens += tokens;
        let mut from = 0;
        while from < tokens {
            let taken = (tokens - from).min(self.block_tokens - self.open);
            self.running = mix(mix(mix(self.running, text.0), u64::from(from)), u64::from(taken));
            from += taken;
            self.open += taken;
            if self.open == self.block_tokens {
                self.full.push(BlockHash(self.running));
                self.open = 0;
            }
        }
    }

    /// Keeps only the first `pieces` pieces. Returns the number of tokens removed.
    pub(crate) fn truncate(&mut self, pieces: usize) -> u32 {
        let mut kept = Self::new(self.block_tokens);
        for &(text, tokens) in &self.pieces[..pieces.min(self.pieces.len())] {
            kept.push(text, tokens);
        }
        let gone = self.tokens - kept.tokens;
        *self = kept;
        gone
    }

    /// All blocks; the last one may be short.
    pub(crate) fn blocks(&self) -> Vec<BlockHash> {
        let mut blocks = Vec::with_capacity(self.full.len() + 1);
        blocks.extend_from_slice(&self.full);
        if self.open > 0 {
            blocks.push(BlockHash(mix(self.running, u64::from(self.open))));
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Text};

    fn of(pieces: &[(u64, u32)]) -> Context {
        let mut context = Context::new(16);
        for &(text, tokens) in pieces {
            context.push(Text(text), tokens);
        }
        context
    }

    #[test]
    fn contexts_share_blocks_up_to_where_they_part() {
        let (a, b) = (of(&[(1, 40), (2, 40)]).blocks(), of(&[(1, 40), (3, 40)]).blocks());
        assert_eq!(a.len(), 5);
        assert_eq!(a[..2], b[..2]);
        assert!(a[2..].iter().all(|block| !b.contains(block)));
    }

    #[test]
    fn the_same_text_behind_another_prefix_has_other_blocks() {
        let (a, b) = (of(&[(1, 16), (2, 32)]).blocks(), of(&[(3, 16), (2, 32)]).blocks());
        assert!(a.iter().all(|block| !b.contains(block)));
    }

    #[test]
    fn a_longer_context_keeps_all_blocks_but_the_short_last_one() {
        let (mut context, before) = (of(&[(1, 40)]), of(&[(1, 40)]).blocks());
        context.push(Text(2), 8);
        assert_eq!(before[..2], context.blocks()[..2]);
        assert_ne!(before[2], context.blocks()[2]);
    }

    #[test]
    fn a_context_cut_back_is_what_it_was() {
        let mut context = of(&[(1, 40), (2, 30), (3, 5)]);
        assert_eq!(context.truncate(1), 35);
        assert_eq!(context.blocks(), of(&[(1, 40)]).blocks());
        assert_eq!(context.tokens(), 40);
    }
}
