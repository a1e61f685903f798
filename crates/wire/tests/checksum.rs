//! What block checksums promise: the formula is frozen, pieces change nothing, and bytes in the wrong place never pass.

use proptest::prelude::*;
use tidepool_types::{BlockId, CHUNK_LEN};
use tidepool_wire::checksum::{BlockChecksum, Mismatch, Piece};
use tidepool_wire::message::RangeName;

const CHUNK: usize = CHUNK_LEN as usize;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn id(n: u8) -> BlockId {
    BlockId::from_bytes([n; 16])
}

/// CRC-32C bit by bit, from a starting value.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(seed, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// The finaliser of SplitMix64, as the protocol document gives it.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d049bb133111eb);
    word ^ (word >> 31)
}

#[test]
fn the_checksum_is_crc_32c_from_the_documented_seed() {
    let (data, len, index) = (bytes(5000), 3 * CHUNK_LEN, 2);
    let block = BlockChecksum::new(id(3), len);
    let word = 0x0303_0303_0303_0303;
    let seed = mix(mix(mix(len) ^ word) ^ word);
    let whole = (seed as u32).wrapping_add(0x9e37_79b1u32.wrapping_mul(2));
    assert_eq!(block.chunk(index, &data), crc32c(whole, &data));
    let part = (mix(seed ^ mix(2 << 40 | 100 << 20 | 5000)) >> 32) as u32;
    assert_eq!(block.part(index, 100, &data), crc32c(part, &data));
}

#[test]
fn a_piece_of_a_registered_range_is_summed_from_its_own_seed() {
    let data = bytes(CHUNK + 10);
    let (name, offset, len) = (RangeName { range: 5, key: 6 }, 1 << 40, data.len() as u64);
    let seed = mix(mix(mix(mix(len) ^ 5) ^ 6) ^ offset) as u32;
    let sums = BlockChecksum::of_range(name, offset, len).range(0, &data);
    let second = crc32c(seed.wrapping_add(0x9e37_79b1), &data[CHUNK..]);
    assert_eq!(sums.as_slice(), [crc32c(seed, &data[..CHUNK]), second]);
}

#[test]
fn right_bytes_of_the_wrong_range_place_or_length_do_not_pass() {
    let (data, name) = (bytes(1000), RangeName { range: 5, key: 6 });
    let sum = |name, offset, len| BlockChecksum::of_range(name, offset, len).chunk(0, &data);
    let right = sum(name, 4096, 1000);
    assert_ne!(right, sum(RangeName { range: 7, ..name }, 4096, 1000), "range");
    assert_ne!(right, sum(RangeName { key: 7, ..name }, 4096, 1000), "key");
    assert_ne!(right, sum(name, 8192, 1000), "offset");
    assert_ne!(right, sum(name, 4096, 1001), "length");
}

#[test]
fn the_values_are_frozen() {
    assert_eq!(crc32c(!0, b"123456789"), 0xe306_9283, "the check value of CRC-32C");
    let block = BlockChecksum::new(id(1), 9);
    assert_eq!(block.chunk(0, b"123456789"), GOLDEN_CHUNK);
    assert_eq!(block.part(0, 1, b"2345"), GOLDEN_PART);
    let range = RangeName { range: 1, key: 2 };
    assert_eq!(BlockChecksum::of_range(range, 3, 9).chunk(0, b"123456789"), GOLDEN_RANGE);
}

const GOLDEN_CHUNK: u32 = 0x95f9_647a;
const GOLDEN_PART: u32 = 0x8081_7258;
const GOLDEN_RANGE: u32 = 0xdede_8051;

#[test]
fn right_bytes_of_the_wrong_block_chunk_or_length_do_not_pass() {
    let data = bytes(CHUNK);
    let right = BlockChecksum::new(id(1), 4 * CHUNK_LEN).chunk(1, &data);
    assert_ne!(right, BlockChecksum::new(id(2), 4 * CHUNK_LEN).chunk(1, &data), "block");
    assert_ne!(right, BlockChecksum::new(id(1), 5 * CHUNK_LEN).chunk(1, &data), "length");
    for other in [0, 2, 3] {
        assert_ne!(right, BlockChecksum::new(id(1), 4 * CHUNK_LEN).chunk(other, &data), "chunk");
    }
}

#[test]
fn a_part_never_stands_in_for_the_whole_or_for_another_part() {
    let (data, block) = (bytes(CHUNK), BlockChecksum::new(id(1), CHUNK_LEN));
    let sums = [
        block.chunk(0, &data[..1000]),
        block.part(0, 0, &data[..1000]),
        block.part(0, 1, &data[..1000]),
        block.part(1, 0, &data[..1000]),
        block.part(0, 0, &data[..999]),
    ];
    for (i, sum) in sums.iter().enumerate() {
        assert!(!sums[..i].contains(sum), "{i}");
    }
    assert_ne!(block.part(0, 0, &data), block.chunk(0, &data));
}

#[test]
fn every_changed_bit_is_found() {
    let block = BlockChecksum::new(id(1), 300);
    let mut data = bytes(300);
    let sums = block.range(0, &data);
    for bit in 0..data.len() * 8 {
        data[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(block.verify(0, &data, &sums), Err(Mismatch::Chunk(0)));
        data[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(block.verify(0, &data, &sums), Ok(()));
}

#[test]
fn a_range_has_one_checksum_per_chunk_that_it_touches() {
    let len = 2 * CHUNK_LEN + 10;
    let block = BlockChecksum::new(id(1), len);
    let piece = |chunk, offset, len, whole| Piece { chunk, offset, len, whole };
    let all: Vec<Piece> = block.pieces(0, len).collect();
    assert_eq!(all, [piece(0, 0, CHUNK_LEN, true), piece(1, 0, CHUNK_LEN, true), piece(2, 0, 10, true)]);
    let ragged: Vec<Piece> = block.pieces(CHUNK_LEN - 1, CHUNK_LEN + 10).collect();
    assert_eq!(ragged, [piece(0, CHUNK_LEN - 1, 1, false), piece(1, 0, CHUNK_LEN, true), piece(2, 0, 9, false)]);
    assert_eq!(block.pieces(len, 1).len(), 0);
    let wrong = block.verify(0, &bytes(10), &[1, 2]);
    assert_eq!(wrong, Err(Mismatch::Count { found: 2, expected: 1 }));
}

#[test]
fn a_range_is_finished_by_exactly_its_bytes() {
    let (data, block) = (bytes(10), BlockChecksum::new(id(1), 10));
    let after = |count: usize| {
        let mut range = block.start_range(0, 9);
        range.update(&data[..count]);
        range.finish()
    };
    assert_eq!((after(8), after(10)), (None, None));
    assert_eq!(after(9), Some(block.range(0, &data[..9])));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_of_any_length_give_the_same_checksums(
        block_len in 1..3 * CHUNK, from in 0..3 * CHUNK, len in 1..3 * CHUNK, step in 1..40_000usize,
    ) {
        let from = from % block_len;
        let len = 1 + (len - 1) % (block_len - from);
        let data = bytes(len);
        let block = BlockChecksum::new(id(1), block_len as u64);
        let sums = block.range(from as u64, &data);
        let mut range = block.start_range(from as u64, len as u64);
        data.chunks(step).for_each(|piece| range.update(piece));
        prop_assert_eq!(block.pieces(from as u64, len as u64).len(), sums.len());
        prop_assert_eq!(block.verify(from as u64, &data, &sums), Ok(()));
        prop_assert_eq!(range.finish(), Some(sums));
    }
}
