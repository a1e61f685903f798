//! Tables by block hash. Traces name blocks by hashes or by small numbers, so one multiplication spreads them well enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by block hash.
pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Spread>>;

/// Hashes one 64-bit number.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = spread(value);
    }
}

/// Spreads every bit of `value` over all bits of the result.
pub(crate) const fn spread(value: u64) -> u64 {
    let product = (value ^ 0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93_u128;
    (product >> 64) as u64 ^ product as u64
}
