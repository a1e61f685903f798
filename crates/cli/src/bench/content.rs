//! Contents of the benchmark's blocks: bytes that follow from a seed and the block's key, so that any process can
//! verify them.

use tidepool_replay::Content;
use tidepool_types::{BlockId, Key, TenantSecret, mix};

/// What digests of keys are made with.
const DIGEST: TenantSecret = TenantSecret::new(*b"benchmark bytes ");

/// The content of the block under `key`.
pub fn of_key(seed: u64, key: Key<'_>) -> Content {
    let [low, high] = BlockId::derive(&DIGEST, key).words();
    Content::of(mix(seed ^ low).wrapping_add(high))
}

/// The content of the benchmark's block number `index`.
pub fn numbered(seed: u64, index: u64) -> Content {
    let key = block_key(index);
    of_key(seed, Key::new(&key).expect("a key of 16 bytes is neither empty nor too long"))
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
        numbered(seed, index as u64).fill(block);
    }
}

/// The number of the first consecutive block of `block_len` bytes in `memory` that differs from the numbered one.
pub fn first_wrong(seed: u64, block_len: usize, memory: &[u8]) -> Option<u64> {
    let wrong = |(index, block): (usize, &[u8])| (!numbered(seed, index as u64).matches(block)).then_some(index as u64);
    memory.chunks(block_len).enumerate().find_map(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_differ_by_key_and_by_seed() {
        let bytes = |seed, index| {
            let mut block = [0; 32];
            numbered(seed, index).fill(&mut block);
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
