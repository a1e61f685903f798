//! Names of nodes, clients, copies and tiers.

use crate::InvalidInput;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A node's name: stable over restarts, unique in a pool, safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// Checks the characters and the length of `name`.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidInput> {
        let name = name.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if starts_well && name.len() <= 64 && name.chars().all(allowed) {
            Ok(Self(name))
        } else {
            Err(InvalidInput::NodeName(name))
        }
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidInput;

    fn try_from(name: String) -> Result<Self, InvalidInput> {
        Self::new(name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node's incarnation: every start of a node draws a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A slot's incarnation: from one counter per node, never repeated in an epoch. Zero names no copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Generation(pub u64);

/// A client's incarnation: drawn at random when a client connects for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// A block's version. The upper 52 bits are the time of writing, in nanoseconds since 1970, the others are part of the
/// writer's id. Of two versions of a block the higher one stays. Zero is no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// The bits of a version that belong to its writer.
const WRITER_BITS: u64 = 0xfff;

impl Version {
    /// Higher than every version that a block is given.
    pub const NEVER: Self = Self(u64::MAX);

    /// The version that `writer` gives a block at `nanos`.
    #[must_use]
    pub const fn new(nanos: u64, writer: ClientId) -> Self {
        // Never zero, even at the start of 1970.
        Self((nanos | (WRITER_BITS + 1)) & !WRITER_BITS | writer.0 & WRITER_BITS)
    }

    /// The lowest version of `writer` that is higher than this one.
    #[must_use]
    pub const fn next(self, writer: ClientId) -> Self {
        Self::new((self.0 & !WRITER_BITS).saturating_add(2 * (WRITER_BITS + 1)), writer)
    }
}

/// One copy of a block. Every further slice of a read names the copy that its first answer named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyName {
    /// The owner's incarnation.
    pub epoch: Epoch,
    /// The slot's incarnation.
    pub generation: Generation,
}

/// Where a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Tier {
    /// In a slab, in memory.
    Dram = 0,
    /// On the owner's disk only.
    Disk = 1,
    /// In an object store.
    Object = 2,
}

impl TryFrom<u8> for Tier {
    type Error = u8;

    fn try_from(value: u8) -> Result<Self, u8> {
        match value {
            0 => Ok(Self::Dram),
            1 => Ok(Self::Disk),
            2 => Ok(Self::Object),
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_by_time_and_then_by_writer() {
        let (one, two) = (ClientId(0x1001), ClientId(0x1002));
        assert!(Version::new(0, one) > Version(0));
        assert!(Version::new(1 << 20, one) < Version::new(1 << 20, two));
        assert!(Version::new(1 << 20, two) < Version::new(3 << 20, one));
        for version in [Version::new(1 << 40, two), Version::new(0x1fff, two), Version(77)] {
            assert!(version.next(one) > version);
        }
    }

    #[test]
    fn a_node_name_is_safe_as_a_file_name() {
        assert!(NodeName::new("host-1.rack_2").is_ok());
        for bad in ["", "../x", ".hidden", "a/b", "a b", &"n".repeat(65)] {
            assert!(NodeName::new(bad).is_err(), "{bad:?}");
        }
    }
}
