//! Eight ids at once: SipHash-2-4 with a 128-bit output, side by side in vector registers.
//!
//! Hashing one key is a chain of dependent steps that leaves most of a core idle, and a look-up of thousands of keys spent
//! a third of its time there. Eight keys whose hashes take equally many steps go through that chain together. Compilers do
//! not find this by themselves, so the registers are named here; other processors than x86 with AVX2 hash one by one.

use crate::MAX_KEY_LEN;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256i, _mm256_extract_epi64};

/// Keys hashed together.
pub(super) const LANES: usize = 8;

/// Keys of one hashing.
pub(super) type Keys<'a> = [&'a [u8]; LANES];

/// The ids of `keys`, or `None` when the caller must hash them one by one: this machine has no such registers, the
/// keys' hashes take unequally many steps, or one of `keys` is no key.
pub(super) fn derive(secret: &[u8; 16], keys: &Keys<'_>) -> Option<[[u8; 16]; LANES]> {
    let words = keys[0].len() / 8;
    let fits = |key: &&[u8]| (1..=MAX_KEY_LEN).contains(&key.len()) && key.len() / 8 == words;
    if !keys.iter().all(fits) {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    #[expect(unsafe_code, reason = "calls code for a processor that has just been found")]
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: this processor has AVX-512F, and the callee needs nothing else.
        return Some(unsafe { avx512::derive(secret, keys, words) });
    } else if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has AVX2, and the callee needs nothing else.
        return Some(unsafe { avx2::derive(secret, keys, words) });
    }
    let _ = secret;
    None
}

/// The bytes of a key from `start` on (fewer than eight), with the key's length in the top byte.
#[cfg(target_arch = "x86_64")]
#[inline]
fn last_word(key: &[u8], start: usize) -> u64 {
    let rest = key.len() - start;
    let tail = match key.last_chunk() {
        _ if rest == 0 => 0,
        // One load and a shift: a copy of so few bytes would cost more than a round of hashing.
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest),
        None => key.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
    };
    tail | (key.len() as u64) << 56
}

/// Eight words from two registers.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn both(first: __m256i, second: __m256i) -> [u64; LANES] {
    let four = |v| {
        let (a, b) = (_mm256_extract_epi64::<0>(v), _mm256_extract_epi64::<1>(v));
        let (c, d) = (_mm256_extract_epi64::<2>(v), _mm256_extract_epi64::<3>(v));
        [a as u64, b as u64, c as u64, d as u64]
    };
    let ([a, b, c, d], [e, f, g, h]) = (four(first), four(second));
    [a, b, c, d, e, f, g, h]
}

/// The hash for processors with a feature, made of the `Lanes` beside it: one word of each key.
#[cfg(target_arch = "x86_64")]
macro_rules! siphash {
    ($feature:literal) => {
        /// The ids of `keys`, which all have `words` whole words of eight bytes.
        #[target_feature(enable = $feature)]
        pub(super) fn derive(secret: &[u8; 16], keys: &Keys<'_>, words: usize) -> [[u8; 16]; LANES] {
            let mut state = State::new(secret);
            let whole: [&[[u8; 8]]; LANES] = std::array::from_fn(|lane| &keys[lane].as_chunks().0[..words]);
            for at in 0..words {
                state.absorb(Lanes::new(|lane| u64::from_le_bytes(whole[lane][at])));
            }
            state.absorb(Lanes::new(|lane| last_word(keys[lane], words * 8)));
            let (low, high) = state.finish();
            let (low, high) = (low.values(), high.values());
            std::array::from_fn(|lane| (u128::from(low[lane]) | u128::from(high[lane]) << 64).to_le_bytes())
        }

        /// The four words of SipHash's state.
        struct State {
            v0: Lanes,
            v1: Lanes,
            v2: Lanes,
            v3: Lanes,
        }

        impl State {
            #[inline]
            #[target_feature(enable = $feature)]
            fn new(secret: &[u8; 16]) -> Self {
                let both = u128::from_le_bytes(*secret);
                let (k0, k1) = (both as u64, (both >> 64) as u64);
                Self {
                    v0: Lanes::all(k0 ^ 0x736f_6d65_7073_6575),
                    v1: Lanes::all(k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee),
                    v2: Lanes::all(k0 ^ 0x6c79_6765_6e65_7261),
                    v3: Lanes::all(k1 ^ 0x7465_6462_7974_6573),
                }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn absorb(&mut self, word: Lanes) {
                self.v3 = self.v3.xor(word);
                self.rounds::<2>();
                self.v0 = self.v0.xor(word);
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn finish(mut self) -> (Lanes, Lanes) {
                self.v2 = self.v2.xor(Lanes::all(0xee));
                self.rounds::<4>();
                let low = self.folded();
                self.v1 = self.v1.xor(Lanes::all(0xdd));
                self.rounds::<4>();
                (low, self.folded())
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn folded(&self) -> Lanes {
                self.v0.xor(self.v1).xor(self.v2.xor(self.v3))
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn rounds<const COUNT: usize>(&mut self) {
                for _ in 0..COUNT {
                    self.v0 = self.v0.add(self.v1);
                    self.v2 = self.v2.add(self.v3);
                    self.v1 = self.v1.rotate::<13, 51>().xor(self.v0);
                    self.v3 = self.v3.rotate::<16, 48>().xor(self.v2);
                    self.v0 = self.v0.rotate::<32, 32>().add(self.v3);
                    self.v2 = self.v2.add(self.v1);
                    self.v1 = self.v1.rotate::<17, 47>().xor(self.v2);
                    self.v3 = self.v3.rotate::<21, 43>().xor(self.v0);
                    self.v2 = self.v2.rotate::<32, 32>();
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Keys, LANES, both, last_word};
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_extracti64x4_epi64, _mm512_rol_epi64, _mm512_set_epi64, _mm512_set1_epi64,
        _mm512_xor_si512,
    };

    siphash!("avx512f");

    #[derive(Clone, Copy)]
    struct Lanes(__m512i);

    impl Lanes {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn new(of: impl Fn(usize) -> u64) -> Self {
            let [a, b, c, d, e, f, g, h] = std::array::from_fn(|lane| of(lane) as i64);
            Self(_mm512_set_epi64(h, g, f, e, d, c, b, a))
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn all(value: u64) -> Self {
            Self(_mm512_set1_epi64(value as i64))
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn values(self) -> [u64; LANES] {
            both(_mm512_extracti64x4_epi64::<0>(self.0), _mm512_extracti64x4_epi64::<1>(self.0))
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn add(self, other: Self) -> Self {
            Self(_mm512_add_epi64(self.0, other.0))
        }

        #[inline]
        #[target_feature(enable = "avx512f")]
        fn xor(self, other: Self) -> Self {
            Self(_mm512_xor_si512(self.0, other.0))
        }

        /// Rotates by `LEFT` bits; `RIGHT` is what is left of 64.
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
            const { assert!(LEFT + RIGHT == 64) };
            Self(_mm512_rol_epi64::<LEFT>(self.0))
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Keys, LANES, both, last_word};
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_or_si256, _mm256_set_epi64x, _mm256_set1_epi64x, _mm256_shuffle_epi32,
        _mm256_slli_epi64, _mm256_srli_epi64, _mm256_xor_si256,
    };

    siphash!("avx2");

    #[derive(Clone, Copy)]
    struct Lanes(__m256i, __m256i);

    impl Lanes {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn new(of: impl Fn(usize) -> u64) -> Self {
            let four = |at: usize| {
                let [a, b, c, d] = std::array::from_fn(|lane| of(at + lane) as i64);
                _mm256_set_epi64x(d, c, b, a)
            };
            Self(four(0), four(4))
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn all(value: u64) -> Self {
            let four = _mm256_set1_epi64x(value as i64);
            Self(four, four)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn values(self) -> [u64; LANES] {
            both(self.0, self.1)
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(self, other: Self) -> Self {
            Self(_mm256_add_epi64(self.0, other.0), _mm256_add_epi64(self.1, other.1))
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn xor(self, other: Self) -> Self {
            Self(_mm256_xor_si256(self.0, other.0), _mm256_xor_si256(self.1, other.1))
        }

        /// Rotates by `LEFT` bits; `RIGHT` is what is left of 64.
        #[inline]
        #[target_feature(enable = "avx2")]
        fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self {
            const { assert!(LEFT + RIGHT == 64) };
            const HALVES_SWAPPED: i32 = 0b10_11_00_01;
            let four = |v| match LEFT {
                32 => _mm256_shuffle_epi32::<HALVES_SWAPPED>(v),
                _ => _mm256_or_si256(_mm256_slli_epi64::<LEFT>(v), _mm256_srli_epi64::<RIGHT>(v)),
            };
            Self(four(self.0), four(self.1))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// [`derive`] always picks the same way for this processor; the processor's other ways must agree with it.
    #[test]
    fn every_way_of_hashing_that_this_processor_has_gives_the_same_ids() {
        type Derive = unsafe fn(&[u8; 16], &Keys<'_>, usize) -> [[u8; 16]; LANES];
        let ways: [(bool, Derive); 2] = [
            (std::arch::is_x86_feature_detected!("avx2"), avx2::derive),
            (std::arch::is_x86_feature_detected!("avx512f"), avx512::derive),
        ];
        let text: Vec<u8> = (0..MAX_KEY_LEN + LANES).map(|at| (at * 7) as u8).collect();
        for len in 1..=200 {
            // Equally many words, but not equally many bytes.
            let words = len / 8;
            let keys: Keys<'_> =
                std::array::from_fn(|lane| &text[lane..][..(len + lane).min(words * 8 + 7).max(words * 8)]);
            let expected = derive(b"sixteen byte key", &keys);
            for derive in ways.iter().filter(|(is_there, _)| *is_there).map(|(_, derive)| derive) {
                #[expect(unsafe_code, reason = "calls code for a processor that has just been found")]
                // SAFETY: this processor has the feature, and the callee needs nothing else.
                let ids = unsafe { derive(b"sixteen byte key", &keys, words) };
                assert_eq!(Some(ids), expected, "keys of {len} bytes");
            }
        }
    }
}
