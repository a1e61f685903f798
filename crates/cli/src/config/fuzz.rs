//! The parser never panics, whatever bytes it gets: random ones, and a valid file with random changes.

use super::{Layer, load, parse};
use tidepool_types::Random;

const CASES: usize = 4_000;

/// A seed that is new in every run, printed so that a failure can be repeated.
fn printed_seed() -> u64 {
    let seed = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0);
    println!("seed: {seed}");
    seed
}

#[test]
fn random_bytes_never_panic_the_parser() {
    let mut random = Random::new(printed_seed());
    for _ in 0..CASES {
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        let _ = parse("random", &bytes);
    }
}

#[test]
fn a_valid_file_with_random_changes_never_panics_the_parser() {
    let mut random = Random::new(printed_seed());
    let valid = toml::to_string(&load(None, Layer::default()).unwrap()).unwrap().into_bytes();
    let mut errors = 0;
    for _ in 0..CASES {
        let mut bytes = valid.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        if let Err(error) = parse("mutated", &bytes) {
            errors += 1;
            assert!(error.to_string().starts_with("mutated:"), "{error}");
        }
    }
    assert!(errors > CASES / 10, "only {errors} of {CASES} changes broke the file: they change too little");
}

/// One random change: a byte set, a stretch cut out, a stretch repeated, or a special character put in.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    let end = (at + random.below(20) as usize).min(bytes.len());
    match random.below(4) {
        0 if at < bytes.len() => bytes[at] = random.next() as u8,
        1 => drop(bytes.drain(at..end)),
        2 => {
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        _ => {
            const SPECIAL: &[u8] = b"[]{}\"'=.,#\n\\-0x\xc3\xff";
            bytes.insert(at, SPECIAL[random.below(SPECIAL.len() as u64) as usize]);
        }
    }
}
