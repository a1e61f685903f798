//! What a block has in it: bytes that follow from its name, so that anybody can check them.

use tidepool_trace::BlockHash;

/// The `n`th word of a block.
fn word(block: BlockHash, n: u64) -> u64 {
    let mut word = block.0 ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Makes a block.
pub(crate) fn fill(block: BlockHash, bytes: &mut [u8]) {
    for (n, piece) in bytes.chunks_mut(8).enumerate() {
        piece.copy_from_slice(&word(block, n as u64).to_le_bytes()[..piece.len()]);
    }
}

/// Whether these are the bytes of a block, every one of them.
pub(crate) fn is_right(block: BlockHash, bytes: &[u8]) -> bool {
    let right = |(n, piece): (usize, &[u8])| piece == &word(block, n as u64).to_le_bytes()[..piece.len()];
    bytes.chunks(8).enumerate().all(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_and_no_two_blocks_are_alike() {
        for len in [1, 7, 8, 9, 4096, 4099] {
            let mut bytes = vec![0; len];
            fill(BlockHash(7), &mut bytes);
            assert!(is_right(BlockHash(7), &bytes));
            for at in 0..len {
                bytes[at] ^= 1;
                assert!(!is_right(BlockHash(7), &bytes), "byte {at} of {len}");
                bytes[at] ^= 1;
            }
        }
        let mut bytes = vec![0; 64];
        fill(BlockHash(7), &mut bytes);
        assert!(!is_right(BlockHash(8), &bytes));
    }
}
