//! For which requests of an engine the blocks of a message are used.

use tidepool_types::{BlockId, Origin};

/// Items of a message that follow each other in one prefix and are used for one request.
///
/// The runs of a message cover its items in order, each item once; a message without runs says nothing of the uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many items of the message the run covers; at least 1.
    pub items: u32,
    /// How many blocks of the prefix come before the first of them.
    pub depth: u32,
    /// Where in a conversation the request belongs, as far as its engine knows.
    pub origin: Option<Origin>,
}

/// Blocks by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ids {
    /// The blocks.
    pub ids: Vec<BlockId>,
    /// Whose uses they are.
    pub runs: Vec<Run>,
}

impl From<Vec<BlockId>> for Ids {
    fn from(ids: Vec<BlockId>) -> Self {
        Self { ids, ..Self::default() }
    }
}
