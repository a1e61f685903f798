//! Copying blocks from node to node: what a node is told to pull, and what it asks the source.

use tidepool_types::{BlockId, Epoch};

/// Blocks to copy from another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// How long it may take.
    pub wait_millis: u32,
    /// The source's data address, `host:port`.
    pub source: String,
    /// The source's incarnation; another one there means the copies are gone.
    pub epoch: Epoch,
    /// Whether the source's copy goes once this node has its own.
    pub remove_source: bool,
    /// The blocks' keys.
    pub keys: Vec<Vec<u8>>,
}

/// Blocks to copy from another node, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullIds {
    /// How long it may take.
    pub wait_millis: u32,
    /// The source's data address, `host:port`.
    pub source: String,
    /// The source's incarnation; another one there means the copies are gone.
    pub epoch: Epoch,
    /// Whether the source's copy goes once this node has its own.
    pub remove_source: bool,
    /// The blocks.
    pub ids: Vec<BlockId>,
}

/// What became of one block of a [`Pull`] or [`PullIds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PullOutcome {
    /// The block is here now.
    Copied = 0,
    /// It was here already.
    Held = 1,
    /// The source does not hold it.
    Missing = 2,
    /// There is no space for it here.
    NoSpace = 3,
    /// The source did not answer in time.
    Unavailable = 4,
    /// Another pull was bringing it already, and the block is here now.
    Joined = 5,
}

/// Blocks that another node is about to copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    /// The node's name.
    pub node: String,
    /// The blocks; at most [`super::BATCH_KEYS`] if their keys are wanted.
    pub ids: Vec<BlockId>,
    /// Whether the answer is to have the blocks' keys.
    pub keys_wanted: bool,
}
