//! A reader believes nothing that it reads from shared memory: whatever the files contain, it gets a miss or an error,
//! never a fault and never bytes outside the slab. (`TIDEPOOL_FUZZ_CASES` sets how many files are tried, and
//! `TIDEPOOL_FUZZ_SEED` where to start; the seed is printed.)

mod common;

use common::{create, id, put};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tidepool_store::{Mapping, ShmTransport};
use tidepool_transfer::copy::CopyPool;
use tidepool_transfer::ops::{Destination, Op, ReadOp};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, Deadline, Epoch};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small generator: the same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn numbered(n: u64) -> BlockId {
    id(&n.to_le_bytes())
}

#[test]
fn garbage_in_headers_and_index_is_never_believed() {
    let seed = setting("TIDEPOOL_FUZZ_SEED", 1);
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let memory = create(dir.path(), "fuzz", Epoch(3), 256 << 10, 4096);
    for n in 0..20u64 {
        let bytes = vec![n as u8; 1000 * (n as usize + 1)];
        assert!(put(&memory, &n.to_le_bytes(), &bytes).is_ok());
    }
    let map = std::fs::OpenOptions::new().write(true).open(dir.path().join("fuzz.map")).unwrap();
    let good = std::fs::read(dir.path().join("fuzz.map")).unwrap();
    let [map_fd, slab_fd] = memory.readable().map(|fd| fd.try_clone_to_owned().unwrap());
    let mapping = Arc::new(Mapping::open(&map_fd, &slab_fd, None).unwrap());
    let mut reader = ShmTransport::new(mapping, Arc::new(CopyPool::new(0)), true);
    for _ in 0..setting("TIDEPOOL_FUZZ_CASES", 3000) {
        for _ in 0..=numbers.below(8) {
            // Whole words of headers and buckets: any value, or a nearly right one.
            let at = 4096 + 8 * numbers.below((good.len() as u64 - 4096) / 8);
            let old = u64::from_le_bytes(good[at as usize..at as usize + 8].try_into().unwrap());
            let new = match numbers.below(4) {
                0 => numbers.next(),
                1 => u64::MAX - numbers.below(1 << 20),
                2 => old ^ 1 << numbers.below(64),
                _ => numbers.below(1 << 20),
            };
            map.write_at(&new.to_le_bytes(), at).unwrap();
        }
        let destination = || Destination::Allocate;
        let read = |n| Op::Read(ReadOp::whole(n, numbered(n), destination()));
        reader.submit((0..24).map(read).collect(), Deadline::after(Duration::from_secs(5)));
        let mut done = Vec::new();
        reader.poll(&mut done, Deadline::after(Duration::from_secs(5)));
        assert_eq!(done.len(), 24);
        for completion in done {
            if let Ok(tidepool_transfer::ops::Done::Read { data: Some(data), .. }) = completion.outcome {
                let n = completion.token;
                assert!(data == vec![n as u8; 1000 * (n as usize + 1)], "wrong bytes were believed");
            }
        }
        map.write_at(&good[4096..], 4096).unwrap();
    }
}

#[test]
fn garbage_in_control_pages_is_refused() {
    let seed = setting("TIDEPOOL_FUZZ_SEED", 1);
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (map_path, slab_path) = (dir.path().join("map"), dir.path().join("slab"));
    for _ in 0..setting("TIDEPOOL_FUZZ_CASES", 500) {
        for path in [&map_path, &slab_path] {
            let len = [0, 8, 40, 4096, 8192, 12_288][numbers.below(6) as usize] as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
            let known = [&b"TDPLMAP\0"[..], b"TDPLSLAB"][usize::from(path == &slab_path)];
            if len >= 40 {
                bytes[..8].copy_from_slice(known);
                bytes[8..16].copy_from_slice(&1u64.to_le_bytes());
                bytes[24..32].copy_from_slice(&[0, 1, 2, 64, u64::MAX / 64][numbers.below(5) as usize].to_le_bytes());
            }
            std::fs::write(path, bytes).unwrap();
        }
        let open = |path| std::fs::File::open(path).unwrap().into();
        let (map, slab) = (open(&map_path), open(&slab_path));
        if let Ok(mapping) = Mapping::open(&map, &slab, None) {
            assert!((0..50).all(|n| mapping.find(&numbered(n)).is_none()), "random bytes hold no block");
        }
    }
}
