//! What one tenant has on a node: the secret of its ids, and holdings whose map and slab are files of their own.
//!
//! A connection is given one space when it says hello. Ids are made from keys here and nowhere else on the owner's side, and a
//! client is handed the descriptors of its own space's files only.

use crate::node_memory::{Holdings, NodeMemory, NodeMemoryConfig, OpenError};
use crate::tier::SlowerTier;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tidepool_types::{BlockId, InvalidInput, Key};

/// See the file's head.
pub struct Space {
    holdings: Holdings,
    limits: SpaceLimits,
}

/// What each process of a tenant may take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Bytes in late reservations; past them its puts go through the socket.
    pub quarantine_bytes: u64,
    /// Bytes that views pin; past them views are copies.
    pub view_bytes: u64,
}

impl Space {
    /// Makes a space on top of slower tiers; as [`Holdings::create`].
    pub fn create(
        config: &NodeMemoryConfig,
        limits: SpaceLimits,
        slower: Vec<Arc<dyn SlowerTier>>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Self, OpenError> {
        Ok(Self { holdings: Holdings::create(config, slower, go_on)?, limits })
    }

    /// Everything that the tenant has on the node.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// The first tier of the holdings.
    pub fn memory(&self) -> &Arc<NodeMemory> {
        self.holdings.memory()
    }

    /// What each process of the tenant may take up.
    pub fn limits(&self) -> SpaceLimits {
        self.limits
    }

    /// The id that a key has in this space.
    pub fn id_of(&self, key: Key<'_>) -> BlockId {
        BlockId::derive(self.memory().secret(), key)
    }

    /// The ids of many keys, in order.
    pub fn ids_of<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<BlockId>, InvalidInput> {
        BlockId::derive_all(self.memory().secret(), keys)
    }

    /// What a client of this space is handed: the map and the slab, read-only, and then the slab once more, if it is to write
    /// there.
    pub fn descriptors(&self, writable: bool) -> Vec<BorrowedFd<'_>> {
        let [map, slab] = self.memory().readable();
        let mut descriptors = vec![map, slab];
        descriptors.extend(writable.then(|| self.memory().writable()));
        descriptors
    }
}
