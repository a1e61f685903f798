//! Eviction: which block goes when room is needed.
//!
//! A policy knows blocks by their slots and hears of every use. The caller asks it for a victim and tells it whether
//! that was evicted. Nodes and the simulator drive the same policies. A policy is told only what is known at that
//! moment, never the future. A node passes over blocks that are being read but keeps them in the order, so that they do
//! not lose their places.

mod agents;
mod lru;
mod s3fifo;
mod sieve;
#[cfg(test)]
mod tests;

pub use agents::Agents;
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

use std::{fmt, str::FromStr, time::Duration};
use tidepool_types::{Origin, UsedFor};

/// A block's name, whichever slot the block is in; also after it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// A use of a block, as far as it is known when it happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Use {
    /// The time of the use, from any fixed start.
    pub at: Duration,
    /// Blocks before this one in its prefix; the block is useless without them.
    pub depth: u32,
    /// The request's place in its conversation, where it is known.
    pub origin: Option<Origin>,
}

impl Use {
    /// At the same time, a use that is known better.
    #[must_use]
    pub fn known_as(self, used: &UsedFor) -> Self {
        Self { depth: used.depth, origin: Some(used.origin), ..self }
    }
}

/// An order in which blocks are evicted.
pub trait Eviction: Send {
    /// Adds the block that came into `slot`; the order has none in that slot.
    fn insert(&mut self, slot: u32, tag: Tag, usage: &Use);

    /// Notes a use of the block in `slot`; does nothing when the block is not in the order.
    fn touch(&mut self, slot: u32, usage: &Use);

    /// Takes a block out of the order that was not evicted; does nothing when it is not in the order.
    fn remove(&mut self, slot: u32);

    /// Takes an evicted block out of the order. A policy may remember it.
    fn evict(&mut self, slot: u32) {
        self.remove(slot);
    }

    /// Makes a block one of the next victims; does nothing when it is not in the order.
    fn chill(&mut self, slot: u32);

    /// Whether the order has a block in `slot`.
    fn contains(&self, slot: u32) -> bool;

    /// The block to evict next. Asked again, the same block, unless the order has changed or time has passed.
    fn victim(&mut self, at: Duration) -> Option<u32>;

    /// The block to evict if the one in `slot` cannot be. From the victim on, this names every block once.
    fn after(&self, slot: u32) -> Option<u32>;
}

/// An eviction policy, by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used first.
    #[default]
    Lru,
    /// Three queues: a block that is not used again while it is new goes soon.
    S3Fifo,
    /// First in, first out, but blocks that were used since the hand last passed stay.
    Sieve,
    /// The block that is the least likely to come back soon, learnt from sessions, tools and turns.
    Agents,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Lru, Self::S3Fifo, Self::Sieve, Self::Agents];

    /// An empty order.
    #[must_use]
    pub fn build(self) -> Box<dyn Eviction> {
        self.build_for(0)
    }

    /// An empty order with memory for slots `0..slots`: it never grows for these.
    #[must_use]
    pub fn build_for(self, slots: u32) -> Box<dyn Eviction> {
        match self {
            Self::Lru => Box::new(Lru::new(slots)),
            Self::S3Fifo => Box::new(S3Fifo::new(slots)),
            Self::Sieve => Box::new(Sieve::new(slots)),
            Self::Agents => Box::new(Agents::new(slots)),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::S3Fifo => "s3fifo",
            Self::Sieve => "sieve",
            Self::Agents => "agents",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing a name that no policy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(UnknownPolicy)
    }
}

/// The entry of `slot` in a table over slots, which grows if needed.
fn entry<T: Default + Clone>(table: &mut Vec<T>, slot: u32) -> &mut T {
    let index = slot as usize;
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}
