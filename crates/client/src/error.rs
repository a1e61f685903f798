//! What a caller may have to act on. A miss is not among it.

use crate::catalogs::CatalogsError;
use crate::config::InvalidConfig;
use thiserror::Error;
use tidepool_types::{InvalidInput, NodeName, Span};

/// Why a client could not be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A setting is not allowed.
    #[error("client settings: {0}")]
    Config(#[from] InvalidConfig),
    /// A catalog's address cannot be used.
    #[error(transparent)]
    Catalogs(#[from] CatalogsError),
    /// A thread could not be started.
    #[error("the client's threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// Why a block was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PutError {
    /// The key or the block cannot be: nothing was moved.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// No node could make room before the deadline.
    #[error("no node had space for the block before the deadline")]
    NoSpace,
    /// The block is larger than any node that could take it.
    #[error(
        "a block of {len} bytes and its key are larger than every node that could take them{}",
        .largest.map_or_else(String::new, |most| format!(": the largest has {most} bytes"))
    )]
    TooLarge {
        /// The block's bytes.
        len: u64,
        /// Bytes for blocks of the largest node, when a catalog knows it.
        largest: Option<u64>,
    },
    /// No node could be reached that takes blocks.
    #[error("no node could be reached to take the block")]
    NoNode,
    /// The bytes are in a device's memory, and no node of this host takes them from there.
    #[error("no node of this host takes the block from the device's memory")]
    NotFromDevice,
    /// The deadline passed first.
    #[error("the deadline passed before the block was stored")]
    Timeout,
}

/// What was wrong with a read. Whatever goes wrong on the way is a miss instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GetError {
    /// The key cannot be.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// The buffer does not hold what was asked for.
    #[error("the buffer is too small: {needed} bytes are needed")]
    BufferTooSmall {
        /// Bytes that it would have to hold.
        needed: u64,
    },
    /// The range does not lie in the block.
    #[error(
        "range of {len} bytes at {offset} in a block of {block} bytes: a range has at least 1 byte and ends inside its block"
    )]
    BadRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes in the block.
        block: u64,
    },
}

/// Why a call about nodes, or about blocks on them, could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// A key or a name cannot be.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    /// No node of that name is known.
    #[error("no node named {0} is known")]
    UnknownNode(NodeName),
    /// No node of that name is known, and no catalog answers that could know it.
    #[error("no node named {0} is known on this host, and no catalog answered")]
    NoCatalog(NodeName),
    /// The catalogs hold the node for dead.
    #[error(
        "node {node} is dead: it {} {silent} ago, its address was {address}",
        if *.left { "stopped in order" } else { "was last heard of" }
    )]
    Dead {
        /// The node.
        node: NodeName,
        /// Where it was last known to serve.
        address: String,
        /// How long ago a catalog last heard from it.
        silent: Span,
        /// Whether it said goodbye.
        left: bool,
    },
    /// The node did not answer before the deadline.
    #[error("node {0} did not answer")]
    Unreachable(NodeName),
    /// The node's process has ended, or is another incarnation's: what it held is gone.
    #[error("node {0} has ended")]
    Ended(NodeName),
    /// Only dead nodes can be forgotten.
    #[error("node {node} is {state}: only a dead node can be forgotten; stop it first")]
    NotDead {
        /// The node.
        node: NodeName,
        /// What the catalogs think of it.
        state: &'static str,
    },
    /// The node has no address that other nodes could reach: it is known from its socket only.
    #[error("node {0} has no known data address: no catalog names it")]
    NoAddress(NodeName),
    /// What was asked for is not allowed, as the node's sentence says: for one, the pattern is no regular expression.
    #[error("{0}")]
    Invalid(String),
    /// The node will not do it; its own sentence says why.
    #[error("node {node}: {message}")]
    Refused {
        /// The node.
        node: NodeName,
        /// Its sentence.
        message: String,
    },
    /// The block is not there (any more).
    #[error("no node holds the block")]
    NotFound,
    /// The node has no space for the block.
    #[error("node {0} has no space for the block")]
    NoSpace(NodeName),
    /// No node could be reached at all.
    #[error("no node could be reached")]
    NoNode,
}
