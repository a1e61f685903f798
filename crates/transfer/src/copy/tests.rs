use super::*;
use crate::ops::{Region, Regions};
use proptest::prelude::*;
use tidepool_types::{BlockId, CHUNK_LEN, chunk_count};
use tidepool_wire::checksum::BlockChecksum;

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn block(len: u64) -> BlockChecksum {
    BlockChecksum::new(BlockId::from_bytes([3; 16]), len)
}

/// Cuts `bytes` into regions at `cuts` (taken modulo what is left), in order.
fn scatter(bytes: &mut [u8], cuts: &[usize]) -> Regions {
    let (mut rest, mut regions) = (bytes, Vec::new());
    for cut in cuts {
        let (head, tail) = rest.split_at_mut(cut % (rest.len() + 1));
        regions.push(Region::of_mut(head));
        rest = tail;
    }
    regions.push(Region::of_mut(rest));
    Regions::Many(regions)
}

#[test]
fn copies_equal_memcpy_for_all_small_sizes_and_alignments() {
    let source = pattern(4096 + 64);
    for len in (0..1100).chain([2047, 2048, 2049, 4095, 4096]) {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (7, 63), (33, 31), (63, 64)] {
            let mut target = vec![0xee; len + 256];
            // SAFETY: both buffers have room for `len` bytes at these offsets and are distinct.
            unsafe { copy_streaming(target.as_mut_ptr().add(to), source.as_ptr().add(from), len) };
            assert_eq!(target[to..to + len], source[from..from + len], "len {len} from {from} to {to}");
            assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0xee), "len {len} to {to}");
        }
    }
}

#[test]
fn copies_equal_memcpy_for_large_sizes() {
    let source = pattern((1 << 20) + 100);
    for len in [STREAMING_MIN - 1, STREAMING_MIN, STREAMING_MIN + 1, 1 << 20, (1 << 20) + 17] {
        let mut target = vec![0; len + 3];
        // SAFETY: both buffers have room and are distinct.
        unsafe { copy(target.as_mut_ptr().add(3), source.as_ptr().add(5), len) };
        assert_eq!(target[3..], source[5..5 + len]);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn copies_by_every_kind_of_register_equal_memcpy() {
    type Kernel = unsafe fn(*mut u8, *const u8, usize, bool);
    let kernels: [(bool, Kernel); 2] =
        [(is_x86_feature_detected!("avx512f"), stream::avx512), (is_x86_feature_detected!("avx2"), stream::avx2)];
    let source = pattern((1 << 20) + 64);
    for (_, kernel) in kernels.into_iter().filter(|(is_there, _)| *is_there) {
        let lens = [0, 256, 4096, (64 << 10) - 256, 64 << 10, (64 << 10) + 256, (1 << 20) - 256, 1 << 20];
        for (len, in_quarters) in lens.into_iter().flat_map(|len| [(len, false), (len, true)]) {
            let mut target = vec![0xee; len + 128];
            let start = target.as_ptr().align_offset(64);
            // SAFETY: the registers are there, both buffers have room, the target is aligned, and the length is of whole steps.
            unsafe { kernel(target.as_mut_ptr().add(start), source.as_ptr().add(3), len, in_quarters) };
            fence();
            let what = format!("{len} bytes, in quarters: {in_quarters}");
            assert_eq!(target[start..start + len], source[3..3 + len], "{what}");
            assert!(target[..start].iter().chain(&target[start + len..]).all(|byte| *byte == 0xee), "{what}");
        }
    }
}

#[test]
fn a_pool_serves_several_callers_at_once_and_ends() {
    let pool = CopyPool::new(2);
    let source = pattern(3 << 20);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (pool, source) = (&pool, &source);
            scope.spawn(move || {
                for _ in 0..20 {
                    let _awake = if caller % 2 == 0 { pool.stay_awake(3 << 20) } else { None };
                    let mut target = vec![0; source.len()];
                    let (to, from) = (Region::of_mut(&mut target), Region::of(source));
                    let job = CopyJob { to: Regions::One(to), from: Regions::One(from), len: 3 << 20, checksums: None };
                    // SAFETY: the buffers are this thread's own and the source is only read.
                    unsafe { pool.run(&mut [job]) };
                    assert!(target == *source);
                }
            });
        }
    });
}

/// The states of the threads that help to copy, of all tests of this process.
fn states_of_helpers() -> Vec<char> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.join("stat")).ok());
    let states = stats.filter_map(|stat| {
        let (name, fields) = stat.rsplit_once(") ")?;
        fields.chars().next().filter(|_| name.contains("(copy-"))
    });
    states.collect()
}

#[test]
fn helpers_are_kept_awake_for_what_is_shared_and_not_for_ever() {
    assert!(CopyPool::new(0).stay_awake(1 << 30).is_none(), "there is nobody to keep awake");
    let pool = CopyPool::new(2);
    assert!(pool.stay_awake(4096).is_none(), "the caller copies this alone");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let wait_for = |what: &str, is_so: &dyn Fn(&[char]) -> bool| {
        while !is_so(&states_of_helpers()) {
            assert!(std::time::Instant::now() < until, "{what}");
            std::thread::yield_now();
        }
    };
    let all_sleep = |states: &[char]| states.len() >= 2 && states.iter().all(|state| *state == 'S');
    wait_for("helpers without work sleep", &all_sleep);
    wait_for("helpers that are to be awake run", &|_| {
        // The look may come too late, when they sleep again.
        let awake = pool.stay_awake(1 << 30);
        awake.is_some() && states_of_helpers().contains(&'R')
    });
    let _awake = pool.stay_awake(1 << 30).expect("nobody copies");
    wait_for("helpers that are kept awake sleep in the end, if nothing comes", &all_sleep);
}

#[test]
fn checksums_made_in_place_are_those_made_on_the_way() {
    let pool = CopyPool::new(1);
    for len in [1, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 40 * CHUNK_LEN + 17] {
        let source = pattern(len as usize);
        let mut out = vec![0; chunk_count(len) as usize];
        let checksums = ChecksumsInto { checksum: block(len), first_chunk: 0, out: &mut out };
        // SAFETY: the bytes are this test's own.
        unsafe { pool.sum(&mut [SumJob { of: Region::of(&source), checksums }]) };
        assert_eq!(out[..], block(len).range(0, &source)[..], "{len} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scattered_jobs_of_a_pool_equal_memcpy_and_their_checksums_verify(
        lens in prop::collection::vec(prop_oneof![1..5000usize, 100_000..900_000usize], 1..12),
        cuts in prop::collection::vec(any::<usize>(), 0..6),
        helpers in 0..3usize,
    ) {
        let pool = CopyPool::new(helpers);
        let mut sources: Vec<_> = lens.iter().map(|len| pattern(*len)).collect();
        let mut targets: Vec<_> = lens.iter().map(|len| vec![0u8; *len]).collect();
        let mut sums: Vec<_> = lens.iter().map(|len| vec![0u32; chunk_count(*len as u64) as usize]).collect();
        let mut jobs = Vec::new();
        for (((source, target), sums), len) in sources.iter_mut().zip(&mut targets).zip(&mut sums).zip(&lens) {
            let checksums = (len % 2 == 0).then(|| ChecksumsInto { checksum: block(*len as u64), first_chunk: 0, out: sums });
            let reversed: Vec<_> = cuts.iter().rev().copied().collect();
            let (to, from) = (scatter(target, &cuts), scatter(source, &reversed));
            jobs.push(CopyJob { to, from, len: *len as u64, checksums });
        }
        // SAFETY: every buffer is this test's own and used by one job only.
        unsafe { pool.run(&mut jobs) };
        drop(jobs);
        for ((source, target), (sums, len)) in sources.iter().zip(&targets).zip(sums.iter().zip(&lens)) {
            prop_assert!(source == target);
            if len % 2 == 0 {
                prop_assert!(block(*len as u64).verify(0, source, sums).is_ok());
            }
        }
    }

    #[test]
    fn checksums_made_while_copying_are_those_of_the_block(len in 1..(3 * CHUNK_LEN as usize), cut in any::<usize>()) {
        let (mut source, mut target) = (pattern(len), vec![0; len]);
        let mut sums = vec![0; chunk_count(len as u64) as usize];
        let (from, to) = (scatter(&mut source, &[cut]), scatter(&mut target, &[cut / 2, cut / 3]));
        // SAFETY: both buffers are this test's own.
        unsafe { copy_and_checksum(&mut to.cursor(), &mut from.cursor(), len as u64, &block(len as u64), 0, &mut sums) };
        prop_assert!(source == target);
        prop_assert_eq!(&sums[..], &block(len as u64).range(0, &source)[..]);
    }
}

/// Lengths and places around what one loop can do, so that its beginning, its end and the ways around it all count.
#[test]
fn a_copy_that_sums_in_one_loop_makes_the_checksum_of_its_bytes() {
    const CHUNK: usize = CHUNK_LEN as usize;
    let source = pattern(CHUNK + 5000);
    let mut target = vec![0u8; source.len() + 128];
    let line = target.as_ptr().align_offset(64);
    for skew in [0, 1, 64] {
        for len in
            [1, 255, 1023, 1024, 1025, 1280, 4096, 4097, 65_535, 65_536, 65_792, 98_305, CHUNK - 1, CHUNK, CHUNK + 4999]
        {
            let bytes = &source[..len];
            let (from, to) = ([Region::of(bytes)], [Region::of_mut(&mut target[line + skew..][..len])]);
            let mut sums = vec![0; chunk_count(len as u64) as usize];
            let checksum = block(len as u64);
            let (mut to, mut from) = (Cursor::new(&to), Cursor::new(&from));
            // SAFETY: both regions have `len` bytes, and the target is nobody else's.
            unsafe { copy_and_checksum(&mut to, &mut from, len as u64, &checksum, 0, &mut sums) };
            assert_eq!(sums, checksum.range(0, bytes).to_vec(), "{len} bytes, {skew} past a line");
            assert_eq!(target[line + skew..][..len], *bytes, "{len} bytes, {skew} past a line");
        }
    }
}

/// Which way is faster depends on the processor; what comes of it must not.
#[cfg(target_arch = "x86_64")]
#[test]
fn copies_that_sum_in_stretches_or_in_one_are_the_same() {
    if !is_x86_feature_detected!("avx512f") || !is_x86_feature_detected!("vpclmulqdq") {
        return eprintln!("skipped: this processor has no AVX-512 with VPCLMULQDQ");
    }
    let source = pattern(CHUNK_LEN as usize);
    let mut target = vec![0u8; source.len() + 64];
    let line = target.as_ptr().align_offset(64);
    for len in [1024, 4096, 65_535, 65_536, 65_792, 98_305, CHUNK_LEN as usize] {
        for stretches in [false, true] {
            target.fill(0);
            let mut running = block(len as u64).start_chunk(0);
            let to = target[line..].as_mut_ptr();
            // SAFETY: the instructions are there, the target is aligned, and both have `len` bytes of this test's own.
            let done = unsafe { fused::copy_in(stretches, to, source.as_ptr(), len, &mut running) };
            fence();
            assert_eq!(done, len / 256 * 256, "whole steps are copied");
            assert_eq!(target[line..][..done], source[..done], "{len} bytes, {stretches}");
            assert!(target[line + done..].iter().all(|byte| *byte == 0), "{len} bytes, {stretches}");
            running.update(&source[done..len]);
            let sum = block(len as u64).range(0, &source[..len]).to_vec();
            assert_eq!(vec![running.finish()], sum, "{len} bytes, {stretches}");
        }
    }
}

/// A put seals what it is told of: bytes or checksums that are not there yet would be another block's.
#[test]
fn jobs_that_the_caller_is_told_of_are_in_place_and_he_is_told_of_all_in_the_end() {
    let lens =
        |seed: u64| (0..40).map(move |n: u64| (n + 1).wrapping_mul(seed).wrapping_mul(0x9e37_79b9) % (300 << 10));
    let (source, mut in_parts) = (pattern(300 << 10), 0);
    for (helpers, seed) in (0..3).flat_map(|helpers| (1..=8).map(move |seed| (helpers, seed))) {
        let pool = CopyPool::new(helpers);
        let mut targets: Vec<Vec<u8>> = lens(seed).map(|len| vec![0; len as usize]).collect();
        let mut sums: Vec<Vec<u32>> = lens(seed).map(|len| vec![0; chunk_count(len) as usize]).collect();
        let job = |(target, out): (&mut Vec<u8>, _)| {
            let len = target.len() as u64;
            let checksums = Some(ChecksumsInto { checksum: block(len), first_chunk: 0, out });
            let from = Regions::One(Region::of(&source[..target.len()]));
            CopyJob { to: Regions::One(Region::of_mut(target)), from, len, checksums }
        };
        let mut jobs: Vec<_> = targets.iter_mut().zip(sums.iter_mut().map(Vec::as_mut_slice)).map(job).collect();
        let (count, mut told) = (jobs.len(), Vec::new());
        // SAFETY: the buffers are this test's own and apart.
        unsafe {
            pool.run_in_turn(&mut jobs, |in_place| {
                for job in &in_place[told.last().copied().unwrap_or(0)..] {
                    let Regions::One(to) = &job.to else { unreachable!("it is one") };
                    // Nobody writes to it any more.
                    let copied = std::slice::from_raw_parts(to.start, to.len);
                    assert_eq!(copied, &source[..to.len], "{helpers} helpers, seed {seed}");
                    let (sums, right) = (&job.checksums.as_ref().unwrap().out, block(job.len).range(0, copied));
                    assert_eq!(sums[..], right[..], "{helpers} helpers, seed {seed}");
                }
                told.push(in_place.len());
            });
        }
        assert!(told.is_sorted() && told.last() == Some(&count), "{told:?}");
        in_parts += u32::from(told.len() > 2);
    }
    // Not every time: a caller who has no core meanwhile finds that his helpers have done it all.
    assert!(in_parts > 0);
}

/// A put has bookkeeping to do, which used to wait for the copy, and the copy for it.
#[test]
fn helpers_copy_while_the_caller_does_something_else_and_a_panic_of_his_leaves_nothing_behind() {
    let pool = CopyPool::new(1);
    let source = pattern(4 << 20);
    let mut target = vec![0; source.len()];
    let half = source.len() / 2;
    let mut copy = |meanwhile: &mut dyn FnMut(*const u8)| {
        target.fill(0);
        let job = |at: usize, target: &mut [u8]| {
            let (to, from) = (Regions::One(Region::of_mut(target)), Regions::One(Region::of(&source[at..][..half])));
            CopyJob { to, from, len: half as u64, checksums: None }
        };
        let (front, back) = target.split_at_mut(half);
        let mut jobs = [job(0, front), job(half, back)];
        let Regions::One(last) = &jobs[1].to else { unreachable!("it is one") };
        let end = last.start.wrapping_add(half - 1).cast_const();
        let mut told = 0;
        // SAFETY: the buffers are this test's own and apart.
        unsafe {
            pool.run_in_turn(&mut jobs, |in_place| {
                told = in_place.len();
                meanwhile(end);
            });
        }
        assert!(told == 2 && target == source);
    };
    copy(&mut |end| {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        // SAFETY: the byte is there for as long as the copy goes on; it is written by one helper, and only looked at here.
        while unsafe { end.read_volatile() } != *source.last().unwrap() {
            assert!(std::time::Instant::now() < until, "nobody copies meanwhile");
            std::thread::yield_now();
        }
    });
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copy(&mut |_| panic!("on purpose"))));
    assert!(panicked.is_err());
    copy(&mut |_| {});
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_processors_family_is_read_from_its_signature() {
    use super::stream::family;
    // As processors answer: an EPYC 7003 and 9004 (Zen 3 and 4), a 9005 (Zen 5), a Xeon of Intel's sixth family.
    let signatures = [0x00a0_0f11, 0x00a1_0f11, 0x00b0_0f21, 0x000c_06f2];
    assert_eq!(signatures.map(family), [0x19, 0x19, 0x1a, 6]);
}
