//! The numbers of tail fields, a table for each message, and those of messages that are reserved.
//!
//! They are frozen: a number is never used again or given another meaning. What is reserved has no bytes yet: a receiver
//! skips it as it skips every field that it does not know. `docs/protocol.md` has the same tables.

/// The bit of a tag that says: refuse the message rather than skip this field. It is no part of the field's number.
pub const CRITICAL: u16 = 1 << 15;

/// Messages whose numbers are reserved.
pub mod kinds {
    /// Reserved for the transfer engine: tells the owner of a registered range that a writer is done.
    pub const NOTIFY: u8 = 0x1f;
    /// Reserved for disks: brings blocks of a slower tier into the slab.
    pub const PREPARE: u8 = 0x20;
    /// Reserved for disks: the reply to [`PREPARE`].
    pub const PREPARED: u8 = 0x93;
}

/// [`crate::message::Hello`].
pub mod hello {
    /// Reserved for tenants: what proves whose client connects.
    pub const CREDENTIAL: u16 = 1;
    /// Reserved for tenants, events and agents: what the client understands beyond the first release of its version.
    pub const CAPABILITIES: u16 = 2;
    /// Reserved for RDMA: the addresses of the client's ports.
    pub const GIDS: u16 = 3;
    /// Reserved for RDMA: the client's queue pairs.
    pub const QUEUE_PAIRS: u16 = 4;
    /// Reserved for RDMA: the keys of the client's memory.
    pub const REGION_KEYS: u16 = 5;
}

/// [`crate::message::Welcome`].
pub mod welcome {
    /// [`crate::message::Welcome::build`].
    pub const BUILD: u16 = 1;
    /// Reserved for operations: a digest of the node's configuration.
    pub const CONFIGURATION: u16 = 2;
    /// Reserved for operations: whether the node is paused.
    pub const PAUSED: u16 = 3;
    /// Reserved for the transfer engine: the kernel's life on the node's host.
    pub const BOOT_ID: u16 = 4;
    /// Reserved for the transfer engine: the namespace that the node's process ids are of.
    pub const PID_NAMESPACE: u16 = 5;
    /// Reserved for the transfer engine: what a process of the same host proves that it is one with.
    pub const NONCE: u16 = 6;
    /// Reserved for warm restarts: the epoch whose blocks the node has kept.
    pub const PREVIOUS_EPOCH: u16 = 7;
    /// Reserved for RDMA and rails: further addresses of the node.
    pub const ADDRESSES: u16 = 8;
    /// Reserved for RDMA: the addresses of the node's ports.
    pub const GIDS: u16 = 9;
    /// Reserved for RDMA: the node's queue pairs.
    pub const QUEUE_PAIRS: u16 = 10;
    /// Reserved for RDMA: the keys of the node's memory.
    pub const REGION_KEYS: u16 = 11;
    /// Reserved for tenants, events and agents: what the node understands beyond the first release of its version.
    pub const CAPABILITIES: u16 = 12;
}

/// [`crate::message::Reserve`] and [`crate::message::ReserveAs`].
pub mod reserve {
    /// [`crate::message::Reserve::runs`].
    pub const RUNS: u16 = 1;
    /// Reserved for disks and rails: foreground or background.
    pub const CLASS: u16 = 2;
    /// Reserved for agents: what is known of the blocks' future use.
    pub const HINTS: u16 = 3;
}

/// [`crate::message::Get`].
pub mod get {
    /// [`crate::message::Get::runs`].
    pub const RUNS: u16 = 1;
    /// Reserved for disks and rails: foreground or background.
    pub const CLASS: u16 = 2;
    /// Reserved for disks: the slowest tier that the reader waits for.
    pub const NOT_SLOWER_THAN: u16 = 3;
    /// Reserved for agents: what is known of the blocks' future use.
    pub const HINTS: u16 = 4;
}

/// [`crate::message::Request::Confirm`] and [`crate::message::Request::View`].
pub mod ids {
    /// [`crate::message::Ids::runs`].
    pub const RUNS: u16 = 1;
}

/// [`crate::message::Touch`].
pub mod touch {
    /// [`crate::message::Touch::runs`].
    pub const RUNS: u16 = 1;
    /// [`crate::message::Touch::ids`].
    pub const IDS: u16 = 2;
    /// Reserved for agents: what is known of the blocks' future use.
    pub const HINTS: u16 = 3;
}

/// [`crate::message::Request::Remove`].
pub mod remove {
    /// Reserved for warm restarts: the version that what is removed is older than.
    pub const VERSION: u16 = 1;
}

/// [`crate::message::Pull`] and [`crate::message::PullIds`].
pub mod pull {
    /// Reserved for disks and rails: foreground or background.
    pub const CLASS: u16 = 1;
}

/// [`crate::message::Offer`].
pub mod offer {
    /// [`crate::message::Offer::keys_wanted`].
    pub const KEYS_WANTED: u16 = 1;
}

/// [`crate::message::Keys`].
pub mod keys {
    /// [`crate::message::Keys::tiers`].
    pub const TIERS: u16 = 1;
}

/// [`crate::message::Found`].
pub mod found {
    /// [`crate::message::Found::keys`].
    pub const KEYS: u16 = 1;
    /// Reserved for RDMA: slot, offset and stamp of each copy.
    pub const PLACES: u16 = 2;
}
