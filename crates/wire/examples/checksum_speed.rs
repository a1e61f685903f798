//! How fast block checksums are made, in and out of the cache.
//!
//! `cargo run --release -p tidepool-wire --example checksum_speed`
//!
//! Prints the median of several rounds in GB/s: a block's chunks summed in one go, the same in pieces of 16 KiB, and
//! for comparison plain CRC-32C and CRC-64/NVME of whole chunks.

use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc64Nvme};
use std::{hint::black_box, time::Instant};
use tidepool_types::{BlockId, CHUNK_LEN};
use tidepool_wire::checksum::BlockChecksum;

const ROUNDS: usize = 7;
const PIECE: usize = 16 << 10;
/// Bytes summed in a round, whatever the size of the buffer.
const PER_ROUND: usize = 1 << 30;

/// One way to sum a buffer.
type Way<'a> = &'a dyn Fn(&[u8]) -> u64;

fn main() {
    let block = BlockChecksum::new(BlockId::from_bytes([9; 16]), PER_ROUND as u64);
    let memory: Vec<u8> = (0..PER_ROUND).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
    let pieces = |bytes: &[u8]| in_pieces(&block, bytes);
    let ways: [(&str, Way<'_>); 4] = [
        ("seeded chunk, one call", &|bytes| u64::from(block.chunk(3, bytes))),
        ("seeded chunk, 16 KiB pieces", &pieces),
        ("plain CRC-32C", &|bytes| crc_fast::checksum(Crc32Iscsi, bytes)),
        ("plain CRC-64/NVME", &|bytes| crc_fast::checksum(Crc64Nvme, bytes)),
    ];
    println!("{}", crc_fast::get_calculator_target(Crc32Iscsi));
    println!("{:30} {:>12} {:>12} {:>12}", "GB/s", "4 KiB", "128 KiB", "1 GiB");
    for (name, way) in ways {
        let sum = |bytes: &[u8]| _ = black_box(way(black_box(bytes)));
        let cached = |len: usize| median(|| (0..PER_ROUND / len).for_each(|_| sum(&memory[..len])));
        let cold = || memory.chunks(CHUNK_LEN as usize).for_each(sum);
        println!("{name:30} {:12.1} {:12.1} {:12.1}", cached(4 << 10), cached(128 << 10), median(cold));
    }
    let chunk = &memory[..CHUNK_LEN as usize];
    assert_eq!(in_pieces(&block, chunk), u64::from(block.chunk(3, chunk)), "both ways agree");
}

fn in_pieces(block: &BlockChecksum, bytes: &[u8]) -> u64 {
    let mut running = block.start_chunk(3);
    bytes.chunks(PIECE).for_each(|piece| running.update(piece));
    u64::from(running.finish())
}

/// Median rate of `work`, which sums [`PER_ROUND`] bytes, in GB/s.
fn median(work: impl Fn()) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            PER_ROUND as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}
