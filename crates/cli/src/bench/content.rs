//! What blocks contain: bytes that follow from a seed and the block's key, so that any process can verify any block.
//!
//! Each word is one multiplication, so that filling and verifying run near the speed of memory.

use crate::random::mix;
use tidepool_types::{BlockId, Key, TenantSecret};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
const WORD: usize = size_of::<u64>();

/// The bytes of one block.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    start: u64,
}

impl Content {
    /// The content of the block under `key`.
    pub fn new(seed: u64, key: Key<'_>) -> Self {
        let [low, high] = BlockId::derive(&TenantSecret::DEFAULT, key).words();
        Self { start: mix(seed ^ low).wrapping_add(high) }
    }

    /// The content of the benchmark's block number `index`.
    pub fn numbered(seed: u64, index: u64) -> Self {
        let key = block_key(index);
        Self::new(seed, Key::new(&key).expect("a key of 16 bytes is neither empty nor too long"))
    }

    /// Writes the content into `block`.
    pub fn fill(self, block: &mut [u8]) {
        let mut state = self.start;
        let mut words = block.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&step(&mut state));
        }
        let rest = words.into_remainder();
        let len = rest.len();
        rest.copy_from_slice(&step(&mut state)[..len]);
    }

    /// Whether `block` is the content, to the last byte.
    pub fn matches(self, block: &[u8]) -> bool {
        let mut state = self.start;
        let mut differences = 0;
        let words = block.chunks_exact(WORD);
        let rest = words.remainder();
        for word in words {
            let found = u64::from_le_bytes(word.try_into().expect("chunks_exact gives whole words"));
            differences |= found ^ u64::from_le_bytes(step(&mut state));
        }
        differences == 0 && rest == &step(&mut state)[..rest.len()]
    }
}

/// The next eight bytes.
fn step(state: &mut u64) -> [u8; WORD] {
    *state = state.wrapping_add(STEP);
    let value = (*state ^ (*state >> 32)).wrapping_mul(FACTOR);
    (value ^ (value >> 29)).to_le_bytes()
}

/// The key of the benchmark's block number `index`: 16 bytes.
pub fn block_key(index: u64) -> [u8; 16] {
    let mut key = *b"bench-0000000000";
    for (place, digit) in key.iter_mut().rev().zip(std::iter::successors(Some(index), |rest| Some(rest / 10)).take(10))
    {
        *place = b'0' + (digit % 10) as u8;
    }
    key
}

/// Fills `memory` with consecutive numbered blocks of `block_len` bytes.
pub fn fill_numbered(seed: u64, block_len: usize, memory: &mut [u8]) {
    for (index, block) in memory.chunks_mut(block_len).enumerate() {
        Content::numbered(seed, index as u64).fill(block);
    }
}

/// The number of the first consecutive block of `block_len` bytes in `memory` that is not the numbered one.
pub fn first_wrong(seed: u64, block_len: usize, memory: &[u8]) -> Option<u64> {
    let wrong = |(index, block): (usize, &[u8])| {
        (!Content::numbered(seed, index as u64).matches(block)).then_some(index as u64)
    };
    memory.chunks(block_len).enumerate().find_map(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_of_any_length_is_noticed() {
        for len in [1, 7, 8, 9, 63, 4096] {
            let content = Content::numbered(1, 42);
            let mut block = vec![0; len];
            content.fill(&mut block);
            assert!(content.matches(&block), "{len} bytes");
            for at in 0..len {
                block[at] ^= 1;
                assert!(!content.matches(&block), "byte {at} of {len}");
                block[at] ^= 1;
            }
        }
    }

    #[test]
    fn blocks_differ_by_key_and_by_seed() {
        let bytes = |seed, index| {
            let mut block = [0; 32];
            Content::numbered(seed, index).fill(&mut block);
            block
        };
        assert_ne!(bytes(1, 0), bytes(1, 1));
        assert_ne!(bytes(1, 0), bytes(2, 0));
    }

    #[test]
    fn a_block_in_the_wrong_place_is_found() {
        let mut memory = vec![0; 4096 * 4];
        fill_numbered(3, 4096, &mut memory);
        assert_eq!(first_wrong(3, 4096, &memory), None);
        memory.copy_within(0..4096, 8192);
        assert_eq!(first_wrong(3, 4096, &memory), Some(2));
    }

    #[test]
    fn keys_are_numbers_in_sixteen_bytes() {
        assert_eq!(&block_key(0), b"bench-0000000000");
        assert_eq!(&block_key(1_234_567), b"bench-0001234567");
    }
}
