//! The pool's numbers.

/// Counts and sizes of a pool, as of one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMemoryStats {
    /// Sealed blocks.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Bytes that no run uses.
    pub free_bytes: u64,
    /// Bytes of blocks that are pinned for good, those included that are being written.
    pub pinned_bytes: u64,
    /// Reservations under way, late ones included.
    pub reserved: u64,
    /// Writers that wait for space.
    pub waiting: u64,
    /// Holds under way: views and sends.
    pub holds: u64,
    /// Blocks sealed since the start.
    pub sealed_total: u64,
    /// Blocks evicted since the start.
    pub evictions_total: u64,
    /// Their bytes.
    pub evicted_bytes_total: u64,
    /// Blocks removed on request since the start.
    pub removed_total: u64,
    /// Blocks found damaged, whose space is out of use for good.
    pub damaged_total: u64,
    /// Their bytes.
    pub damaged_bytes: u64,
    /// Blocks that were not let in because others would have had to go for them.
    pub declined_total: u64,
    /// Reservations refused for want of space.
    pub no_space_total: u64,
}
