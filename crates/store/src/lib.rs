//! A node's memory: slabs, slots, the shared index, the allocator and the read protocol.
//!
//! A node has two shared files: the *map* (a control page, a header per slot, the index; clients see it read-only) and the
//! *slab* (the blocks' bytes). [`NodeMemory`] is the owner's side: it reserves, seals, evicts, holds and lists. [`Mapping`] is a
//! client's side: it finds and copies blocks without asking anybody, and [`ShmTransport`] offers that as a transport.
//! `docs/protocol.md` has both files byte by byte. Memory is the first tier of a node's [`Holdings`]; slower tiers
//! ([`SlowerTier`]) may lie below it, and all share one journal. Nothing here opens a socket or knows of catalogs.

// Tests inside the crate share their fixtures with those outside it, which know it by its name.
#[cfg(test)]
extern crate self as tidepool_store;

pub mod inventory;

mod device;
mod heap;
mod journal;
mod layout;
mod mapping;
mod memory_file;
mod node_memory;
mod placed;
mod protocol;
mod ring;
mod shm;
mod space;
mod sync;
mod tier;

pub use device::DeviceWrite;
pub use layout::{FORMAT_VERSION, FormatError, MAX_SLOTS};
pub use mapping::{Found, MapError, Mapping};
pub use node_memory::{
    BlockTerms, Cold, ColdCursor, Commit, Hold, Holdings, NoRoom, NodeMemory, NodeMemoryConfig, NodeMemoryStats,
    OpenError, Reading, Reservation, Sealed, Unnamed, clear_socket,
};
pub use ring::{LeaseRing, LeaseWriter, host_time};
pub use shm::ShmTransport;
pub use space::{Space, SpaceLimits};
pub use tier::{Evicting, Place, SlowerTier};
