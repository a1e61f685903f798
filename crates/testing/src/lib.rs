//! Tools for tests of several crates; a dependency of tests only.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! static DONE: AtomicBool = AtomicBool::new(false);
//! let worker = std::thread::spawn(|| DONE.store(true, Ordering::Release));
//! tidepool_testing::eventually("the worker is done", || DONE.load(Ordering::Acquire));
//! # worker.join().unwrap();
//! ```
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidepool_types::{Metric, Random, Value};

/// How long [`eventually`] waits: far longer than anything takes on a busy host.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits for an event: until `holds`.
///
/// # Panics
/// After [`PATIENCE`], naming `what` did not happen.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// An empty directory in shared memory, where nodes put their files.
///
/// # Panics
/// When there is no `/dev/shm`.
#[must_use]
pub fn memory_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory")
}

/// The bytes of a fixture: hexadecimal digits in pairs, apart or not, and comments from `#` to the end of a line.
///
/// # Panics
/// When there is anything else in it.
#[must_use]
pub fn annotated_hex(text: &str) -> Vec<u8> {
    let uncommented = text.lines().filter_map(|line| line.split('#').next());
    let digits: String = uncommented.flat_map(str::split_whitespace).collect();
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("two hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// `len` bytes that differ from seed to seed and along the block.
#[must_use]
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Flips a bit of the file's byte `at`, unnoticed by processes that have the file mapped.
///
/// # Panics
/// When the file has no such byte, or cannot be written.
pub fn flip_bit(file: &File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("the file has this byte");
    file.write_all_at(&[byte[0] ^ 1], at).expect("the file can be written");
}

/// The number under `name` among `metrics`; of a histogram, the number of its observations.
///
/// # Panics
/// When `metrics` has none of this name.
#[must_use]
pub fn number(metrics: &[Metric], name: &str) -> u64 {
    match metrics.iter().find(|metric| metric.name == name).map(|metric| &metric.value) {
        Some(Value::Counter(number) | Value::Gauge(number)) => *number,
        Some(Value::Histogram { count, .. }) => *count,
        None => panic!("no metric {name}"),
    }
}
