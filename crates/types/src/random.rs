//! Random numbers: a seeded sequence that is the same on every machine, and draws from the system. Not for secrets.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

/// SplitMix64: a sequence of random numbers that follows from its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; zero when `bound` is.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// The numbers below `count` in random order.
    pub fn order(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }
}

/// A number drawn from the system: never zero, which some messages take for "none".
#[must_use]
pub fn drawn() -> u64 {
    // RandomState draws its keys once per thread and then counts. The process and the time keep two calls apart even so.
    RandomState::new().hash_one((std::process::id(), Instant::now())).max(1)
}

/// Spreads every bit of `value` over all bits of the result, one to one: the finaliser of SplitMix64.
#[must_use]
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_names_every_number_once_and_depends_only_on_the_seed() {
        let order = Random::new(7).order(1000);
        assert_eq!(order, Random::new(7).order(1000));
        assert_ne!(order, Random::new(8).order(1000));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }
}
