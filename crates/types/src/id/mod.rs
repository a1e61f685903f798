//! Block ids: a keyed pseudo-random function over (tenant, key).
//!
//! The id is the only form a key has outside its owner node, so it must be the same in every process and after every
//! restart. SipHash-2-4 with a 128-bit output is that function; the golden test below freezes it.

mod lanes;

use crate::{InvalidInput, Key};
use lanes::LANES;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::fmt;
use std::hash::Hasher as _;

/// The secret that separates one tenant's ids from another's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TenantSecret([u8; 16]);

impl TenantSecret {
    /// The secret of the tenant `default`: a constant of the protocol.
    pub const DEFAULT: Self = Self(*b"tidepool-default");

    /// Wraps a tenant's own secret.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for TenantSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantSecret(..)")
    }
}

/// A block's name everywhere outside its owner: 128 bits that look random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BlockId([u8; 16]);

impl BlockId {
    /// Bytes of an id on the wire and in memory.
    pub const LEN: usize = 16;

    /// The id of `key` in the tenant that owns `secret`.
    #[must_use]
    pub fn derive(secret: &TenantSecret, key: Key<'_>) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret.0);
        hasher.write(key.as_bytes());
        Self(hasher.finish128().as_bytes())
    }

    /// The ids of `keys`, in order, as [`BlockId::derive`] gives them; faster where neighbouring keys are equally long.
    /// Fails if any key has an invalid length.
    pub fn derive_all<K: AsRef<[u8]>>(secret: &TenantSecret, keys: &[K]) -> Result<Vec<Self>, InvalidInput> {
        let mut ids = Vec::with_capacity(keys.len());
        let (groups, rest) = keys.as_chunks::<LANES>();
        for group in groups {
            let group: [&[u8]; LANES] = std::array::from_fn(|lane| group[lane].as_ref());
            match lanes::derive(&secret.0, &group) {
                Some(together) => ids.extend(together.map(Self)),
                None => derive_each(secret, &group, &mut ids)?,
            }
        }
        derive_each(secret, rest, &mut ids)?;
        Ok(ids)
    }

    /// Rebuilds an id from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The id's bytes, in wire order.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id as two little-endian words: tables take bucket and tag from them.
    #[must_use]
    pub fn words(&self) -> [u64; 2] {
        let value = u128::from_le_bytes(self.0);
        [value as u64, (value >> 64) as u64]
    }

    /// The inverse of [`BlockId::words`].
    #[must_use]
    pub fn from_words(words: [u64; 2]) -> Self {
        Self((u128::from(words[0]) | u128::from(words[1]) << 64).to_le_bytes())
    }
}

fn derive_each<K: AsRef<[u8]>>(secret: &TenantSecret, keys: &[K], ids: &mut Vec<BlockId>) -> Result<(), InvalidInput> {
    for key in keys {
        ids.push(BlockId::derive(secret, Key::new(key.as_ref())?));
    }
    Ok(())
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_frozen() {
        let id = |secret: &TenantSecret, key: &[u8]| BlockId::derive(secret, Key::new(key).unwrap()).to_string();
        assert_eq!(id(&TenantSecret::DEFAULT, b"a"), GOLDEN_A);
        assert_ne!(id(&TenantSecret::new([7; 16]), b"a"), GOLDEN_A);
    }

    const GOLDEN_A: &str = "3723d06eaff5d24c5777a495a474f6a4";

    proptest! {
        /// Keys of equal and of unequal lengths, in any mixture, so that groups are hashed both together and one by one.
        #[test]
        fn ids_derived_together_equal_ids_derived_alone(
            keys in prop::collection::vec((1..4_usize, 0..20_usize, any::<u8>()), 0..60),
            secret in any::<[u8; 16]>(),
        ) {
            let keys: Vec<Vec<u8>> = keys
                .into_iter()
                .map(|(words, rest, seed)| (0..words * 30 + rest).map(|at| seed.wrapping_mul(31).wrapping_add(at as u8)).collect())
                .collect();
            let secret = TenantSecret::new(secret);
            let alone: Vec<_> = keys.iter().map(|key| BlockId::derive(&secret, Key::new(key).unwrap())).collect();
            prop_assert_eq!(BlockId::derive_all(&secret, &keys).unwrap(), alone);
        }
    }

    #[test]
    fn equally_long_keys_of_every_length_have_the_same_ids_together_as_alone() {
        for len in 1..=1024 {
            let keys: Vec<Vec<u8>> =
                (0..LANES as u8).map(|lane| (0..len).map(|at| at as u8 ^ lane).collect()).collect();
            let alone: Vec<_> =
                keys.iter().map(|key| BlockId::derive(&TenantSecret::DEFAULT, Key::new(key).unwrap())).collect();
            assert_eq!(BlockId::derive_all(&TenantSecret::DEFAULT, &keys).unwrap(), alone, "keys of {len} bytes");
        }
    }

    #[test]
    fn one_bad_key_among_many_is_named() {
        for bad in [0, 1025] {
            let mut keys = vec![vec![7; 90]; 20];
            keys[11] = vec![7; bad];
            assert_eq!(BlockId::derive_all(&TenantSecret::DEFAULT, &keys), Err(InvalidInput::KeyLength(bad)));
            let all = vec![vec![7; bad]; 8];
            assert_eq!(BlockId::derive_all(&TenantSecret::DEFAULT, &all), Err(InvalidInput::KeyLength(bad)));
        }
    }

    #[test]
    fn words_round_trip() {
        let id = BlockId::from_bytes(std::array::from_fn(|i| i as u8));
        assert_eq!(BlockId::from_words(id.words()), id);
    }
}
