//! How fast the copies are, against `memcpy` in the same run.
//!
//! `cargo run --release -p tidepool-transfer --example copy_speed [GiB]`
//!
//! Each variant copies a source of 1 GiB to a destination of 1 GiB in calls of 2 MiB (and of smaller sizes where that is
//! said), all memory touched before. The variants take turns; medians of seven rounds. "hot" variants copy to one small
//! destination over and over, which shows from which size on it pays to bypass the cache. "writing alone" copies one piece
//! that stays in the cache to everywhere: no copy can be faster than that. The last two lines are batches of 8 MiB that follow
//! each other, and the same after a rest each, in which cores fall asleep.

use std::time::{Duration, Instant};
use tidepool_transfer::copy::{ChecksumsInto, CopyJob, CopyPool, copy, copy_and_checksum, copy_streaming};
use tidepool_transfer::ops::{Region, Regions};
use tidepool_types::{BlockId, chunk_count};
use tidepool_wire::checksum::BlockChecksum;

const ROUNDS: usize = 7;
const CALL: usize = 2 << 20;

type Run<'a> = Box<dyn FnMut(&[u8], &mut [u8]) + 'a>;
type Variant<'a> = (String, Run<'a>);

fn main() {
    let gib: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let source: Vec<u8> = (0..gib << 30).map(|at| (at >> 7) as u8).collect();
    let mut target = vec![1u8; (gib << 30) + 64];
    // As blocks lie in a slab.
    let line = target.as_ptr().align_offset(64);
    let target = &mut target[line..][..gib << 30];
    let alone = CopyPool::new(0);
    let two = CopyPool::new(1);
    let mut variants: Vec<Variant<'_>> = vec![("memcpy 2 MiB".into(), by_call(CALL, memcpy))];
    for (threads, pool) in [(1, &alone), (2, &two)] {
        variants
            .push((format!("writing alone, {threads} threads"), Box::new(move |from, to| write_alone(pool, from, to))));
    }
    variants.push(("copy 2 MiB".into(), by_call(CALL, plain)));
    variants.push(("copy_and_checksum 2 MiB".into(), by_call(CALL, checksummed)));
    for (threads, pool) in [(1, &alone), (2, &two)] {
        let mut add = |name: &str, checksums| {
            let name = format!("pool {name}, 32 x 2 MiB, {threads} threads");
            variants.push((name, Box::new(move |from, to| in_batches(pool, from, to, checksums))));
        };
        add("copy", false);
        add("checksum", true);
    }
    for size in [4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        variants.push((format!("memcpy {} KiB", size >> 10), by_call(size, memcpy)));
        variants.push((format!("streaming {} KiB", size >> 10), by_call(size, streaming)));
        variants.push((format!("memcpy {} KiB, hot", size >> 10), to_hot(size, memcpy)));
        variants.push((format!("streaming {} KiB, hot", size >> 10), to_hot(size, streaming)));
    }
    measure(&mut variants, &source, target);
    drop(variants);
    let batch = 4 * CALL;
    for (name, rest) in [("one after the other", Duration::ZERO), ("each after a rest", Duration::from_millis(20))] {
        target.fill(1);
        let mut rates: Vec<f64> = source
            .chunks_exact(batch)
            .zip(target.chunks_exact_mut(batch))
            .map(|(from, to)| {
                std::thread::sleep(rest);
                let start = Instant::now();
                in_batches(&two, from, to, false);
                batch as f64 / start.elapsed().as_secs_f64() / 1e9
            })
            .collect();
        let copied = source.len() / batch * batch;
        assert!(source[..copied] == target[..copied], "{name}: something else was copied");
        println!("pool copy, 4 x 2 MiB, 2 threads, {name:19} {:7.2} GB/s", median(&mut rates));
    }
}

fn measure(variants: &mut [Variant<'_>], source: &[u8], target: &mut [u8]) {
    let mut rates = vec![Vec::new(); variants.len()];
    for _ in 0..ROUNDS {
        for ((_, run), rates) in variants.iter_mut().zip(&mut rates) {
            let start = Instant::now();
            run(source, target);
            rates.push(source.len() as f64 / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    assert!(source == target, "the last variant that fills the target copied something else");
    let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
    for ((name, _), rate) in variants.iter().zip(&medians) {
        println!("{name:42} {rate:7.2} GB/s  {:5.2} of memcpy 2 MiB", rate / medians[0]);
    }
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn by_call<'a>(size: usize, run: fn(&[u8], &mut [u8])) -> Run<'a> {
    Box::new(move |from, to| from.chunks(size).zip(to.chunks_mut(size)).for_each(|(from, to)| run(from, to)))
}

fn to_hot<'a>(size: usize, run: fn(&[u8], &mut [u8])) -> Run<'a> {
    let mut hot = vec![0; size];
    Box::new(move |from, _| {
        for from in from.chunks(size) {
            run(from, &mut hot);
            // Whoever asked for the bytes reads them.
            std::hint::black_box(hot.iter().step_by(64).fold(0u8, |sum, byte| sum ^ byte));
        }
    })
}

fn memcpy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

fn plain(from: &[u8], to: &mut [u8]) {
    // SAFETY: two slices of one length that cannot overlap.
    unsafe { copy(to.as_mut_ptr(), from.as_ptr(), from.len()) };
}

fn streaming(from: &[u8], to: &mut [u8]) {
    // SAFETY: two slices of one length that cannot overlap.
    unsafe { copy_streaming(to.as_mut_ptr(), from.as_ptr(), from.len()) };
}

fn block(len: usize) -> BlockChecksum {
    BlockChecksum::new(BlockId::from_bytes([1; 16]), len as u64)
}

fn checksummed(from: &[u8], to: &mut [u8]) {
    let mut sums = [0; CALL.div_ceil(128 << 10)];
    let (from, to) = (Regions::One(Region::of(from)), Regions::One(Region::of_mut(to)));
    let sums = &mut sums[..chunk_count(from.total()) as usize];
    // SAFETY: two slices of one length that cannot overlap and that nobody else uses.
    unsafe { copy_and_checksum(&mut to.cursor(), &mut from.cursor(), from.total(), &block(CALL), 0, sums) };
    std::hint::black_box(sums);
}

fn write_alone(pool: &CopyPool, from: &[u8], to: &mut [u8]) {
    const HOT: usize = 128 << 10;
    let from = Region::of(&from[..HOT]);
    let job = |to: &mut [u8]| {
        let (to, from, len) = (Regions::One(Region::of_mut(to)), Regions::One(from), HOT as u64);
        CopyJob { to, from, len, checksums: None }
    };
    for to in to.chunks_mut(32 * CALL) {
        let mut jobs: Vec<CopyJob<'_>> = to.chunks_exact_mut(HOT).map(job).collect();
        // SAFETY: slices of two buffers that nobody else uses.
        unsafe { pool.run(&mut jobs) };
    }
}

fn in_batches(pool: &CopyPool, from: &[u8], to: &mut [u8], checksums: bool) {
    let mut sums = vec![[0u32; CALL.div_ceil(128 << 10)]; 32];
    for (from, to) in from.chunks(32 * CALL).zip(to.chunks_mut(32 * CALL)) {
        let pairs = from.chunks(CALL).zip(to.chunks_mut(CALL)).zip(&mut sums);
        let job = |((from, to), sums): ((&[u8], &mut [u8]), _)| CopyJob {
            len: from.len() as u64,
            from: Regions::One(Region::of(from)),
            to: Regions::One(Region::of_mut(to)),
            checksums: checksums.then_some(ChecksumsInto { checksum: block(CALL), first_chunk: 0, out: sums }),
        };
        let mut jobs: Vec<CopyJob<'_>> = pairs.map(|((from, to), sums)| job(((from, to), &mut sums[..]))).collect();
        // SAFETY: slices of two buffers that nobody else uses.
        unsafe { pool.run(&mut jobs) };
    }
}
