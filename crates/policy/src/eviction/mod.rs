//! Which block goes when room is needed.
//!
//! A policy knows blocks by the slots that they lie in and hears of every use; the caller asks it for a victim, and says what
//! became of it. Nodes and the simulator drive the same policies. What a policy is told is what is known when it happens: never
//! the future. A node keeps blocks that are being read in the order and passes them over, so that they do not lose their places.

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
use tidepool_types::Origin;

/// Names a block whatever slot it is in, also after it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(pub u64);

/// What is known of a use of a block when it happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Use {
    /// When, from any fixed start.
    pub at: Duration,
    /// Blocks before this one in its prefix: without them it is useless.
    pub depth: u32,
    /// The conversation that it is for, where that is known.
    pub origin: Option<Origin>,
}

/// An order in which blocks are evicted.
pub trait Eviction: Send {
    /// A block came into `slot`, which has none in the order.
    fn insert(&mut self, slot: u32, tag: Tag, usage: &Use);

    /// The block in `slot` is used; nothing happens when it is not in the order.
    fn touch(&mut self, slot: u32, usage: &Use);

    /// Takes a block out of the order that was not evicted; nothing happens when it is not in.
    fn remove(&mut self, slot: u32);

    /// Takes a block out of the order because it is evicted, which a policy may remember.
    fn evict(&mut self, slot: u32) {
        self.remove(slot);
    }

    /// Makes a block one of the next victims; nothing happens when it is not in the order.
    fn chill(&mut self, slot: u32);

    /// Whether the order has a block in `slot`.
    fn contains(&self, slot: u32) -> bool;

    /// The block to evict next. Asked again, it is the same one unless something else has happened or time has passed.
    fn victim(&mut self, at: Duration) -> Option<u32>;

    /// The block that would be next if the one in `slot` cannot be evicted. From the victim on, this names every block once.
    fn after(&self, slot: u32) -> Option<u32>;
}

/// A policy by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used first.
    #[default]
    Lru,
    /// Three queues: what is not used again while it is new goes soon.
    S3Fifo,
    /// First in, first out, but what was used since the hand last passed stays.
    Sieve,
    /// What is the least likely to come back soon, learnt from sessions, tools and turns.
    Agents,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lru, Self::S3Fifo, Self::Sieve, Self::Agents];

    /// An empty order.
    #[must_use]
    pub fn build(self) -> Box<dyn Eviction> {
        self.build_for(0)
    }

    /// An empty order with memory for slots `0..slots`: none of them ever makes it grow.
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

/// No policy has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(UnknownPolicy)
    }
}

/// The entry of `slot` in a table over slots, which grows to have it.
fn entry<T: Default + Clone>(table: &mut Vec<T>, slot: u32) -> &mut T {
    let index = slot as usize;
    if table.len() <= index {
        table.resize(index + 1, T::default());
    }
    &mut table[index]
}
