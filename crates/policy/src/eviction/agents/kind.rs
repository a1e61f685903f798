//! What a conversation waits for, as far as an engine can tell.

use tidepool_types::Origin;

/// Conversations of one kind come back alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(u8);

/// Tools that are told apart; further ones share their places.
const TOOLS: u32 = 64;
const ENDED: u8 = 0;
const NO_TOOL: u8 = 1;
const UNNAMED: u8 = 2;
const FIRST_TOOL: u8 = UNNAMED + TURNS * LENGTHS;

/// Of conversations that nobody named: the first turn, the second, up to the fourth, later ones.
const TURNS: u8 = 4;
/// Of the same: short ones and long ones.
const LENGTHS: u8 = 2;
/// Blocks of a long one. Those come back more seldom, and later.
const LONG: u32 = 64;

impl Kind {
    /// No more than a word has bits.
    pub(super) const COUNT: usize = FIRST_TOOL as usize + TOOLS as usize;

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Of a named conversation, by what its last answer led to.
    pub(super) fn named(origin: &Origin) -> Self {
        match origin.calls {
            _ if origin.last => Self(ENDED),
            Some(tool) => Self(FIRST_TOOL + (tool.0 % TOOLS) as u8),
            None => Self(NO_TOOL),
        }
    }

    /// Of one that nobody named, by how often it went on and how long it is.
    pub(super) fn unnamed(turn: u32, blocks: u32) -> Self {
        let turns = match turn {
            0 | 1 => turn as u8,
            2 | 3 => 2,
            _ => 3,
        };
        let length = u8::from(blocks >= LONG);
        Self(UNNAMED + turns * LENGTHS + length)
    }
}
