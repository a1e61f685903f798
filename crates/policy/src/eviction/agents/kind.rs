//! Kinds of waits of conversations, as far as an engine can tell them apart.

use tidepool_types::Origin;

/// A kind of wait. Conversations of one kind come back alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(u8);

/// Tools with a kind of their own; further tools share these kinds.
const TOOLS: u32 = 64;
const ENDED: u8 = 0;
const NO_TOOL: u8 = 1;
const UNNAMED: u8 = 2;
const FIRST_TOOL: u8 = UNNAMED + TURNS * LENGTHS;

/// Kinds of unnamed conversations by turn: the first, up to the fourth, and all later ones.
const TURNS: u8 = 4;
/// Kinds of unnamed conversations by length: short and long.
const LENGTHS: u8 = 2;
/// Blocks of a long conversation. Long ones come back more seldom, and later.
const LONG: u32 = 64;

impl Kind {
    /// Number of kinds: at most 128, since `Conversations` keeps a bit for each.
    pub(super) const COUNT: usize = FIRST_TOOL as usize + TOOLS as usize;

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The kind of a named conversation, from the tool that its last answer called.
    pub(super) fn named(origin: &Origin) -> Self {
        match origin.calls {
            _ if origin.last => Self(ENDED),
            Some(tool) => Self(FIRST_TOOL + (tool.0 % TOOLS) as u8),
            None => Self(NO_TOOL),
        }
    }

    /// The kind of an unnamed conversation, from the number of its turns and its length.
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
