//! Random bytes, and frames with random damage, never make the decoder panic or take memory out of proportion. What decodes has
//! one spelling.
//!
//! `TIDEPOOL_FUZZ_CASES` says how many cases to try, `TIDEPOOL_FUZZ_SEED` which; a failure prints both.

#[path = "common/bodies.rs"]
mod bodies;
#[path = "common/raw.rs"]
mod raw;
#[path = "common/samples.rs"]
mod samples;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use tidepool_wire::frame::{HEADER_LEN, Header, ReplyKind, RequestKind, decode_reply, decode_request};

/// Bytes of memory that decoding may take for each byte of the body, in all.
const MOST_PER_BYTE: usize = 8;

/// The system's allocator, counting what each thread asks for.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes unchanged to the system's allocator; counting allocates nothing, since the thread-local is
// initialised at compile time and needs no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get().saturating_add(layout.size()));
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from `alloc` above with this layout, so from the system's allocator.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// SplitMix64: enough to wander about, and the same everywhere for a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Bytes of a random length; small values are as likely as all others together, since they make plausible counts.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let byte = |word: u64| if word & 0x300 == 0 { word as u8 } else { (word & 3) as u8 };
        (0..self.below(most)).map(|_| byte(self.next())).collect()
    }
}

/// Decodes, and returns the bytes of memory that it took.
fn cost_of(header: &Header, body: &[u8]) -> usize {
    let before = TAKEN.get();
    match header.kind.is_reply() {
        true => drop(decode_reply(header, body)),
        false => drop(decode_request(header, body)),
    }
    TAKEN.get() - before
}

/// Decodes `body` as `kind` under a header that fits it.
fn check_body(kind: u8, payload_len: u64, body: &[u8]) {
    let header = Header::parse(&raw::header(kind, payload_len, body)).expect("a good header");
    let cost = cost_of(&header, body);
    assert!(cost <= MOST_PER_BYTE * body.len(), "{:?}: {cost} bytes of memory for {}", header.kind, body.len());
    if let Ok(spelled) = bodies::respelled(&header, body) {
        // What is shorter has lost fields that were skipped.
        assert!(spelled == body || spelled.len() < body.len(), "{:?}: {body:02x?} is {spelled:02x?}", header.kind);
    }
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.splice(at..at, random.bytes(20)).for_each(drop),
            2 => bytes.iter_mut().skip(at).take(4).for_each(|byte| *byte = 0xff),
            3 => bytes.extend_from_within(at..),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
        }
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number")))
}

fn start() -> (Random, u64) {
    let seed = number_from("TIDEPOOL_FUZZ_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let cases = number_from("TIDEPOOL_FUZZ_CASES").unwrap_or(20_000);
    println!("TIDEPOOL_FUZZ_SEED={seed} TIDEPOOL_FUZZ_CASES={cases}");
    (Random(seed), cases)
}

#[test]
fn random_headers_do_no_harm() {
    let (mut random, cases) = start();
    for _ in 0..cases {
        let mut header: [u8; HEADER_LEN] = raw::header(RequestKind::Stat as u8, 0, &[]);
        header.iter_mut().for_each(|byte| {
            if random.below(4) == 0 {
                *byte = random.next() as u8;
            }
        });
        if let Ok(header) = Header::parse(&header) {
            assert_eq!(cost_of(&header, &[]), 0);
        }
    }
}

#[test]
fn random_bodies_do_no_harm() {
    let (mut random, cases) = start();
    let requests = RequestKind::ALL.iter().map(|kind| *kind as u8);
    let kinds: Vec<u8> = requests.chain(ReplyKind::ALL.iter().map(|kind| *kind as u8)).collect();
    for _ in 0..cases {
        let kind = kinds[random.below(kinds.len())];
        let with_payload = [RequestKind::Write, RequestKind::Fill, RequestKind::WriteRange].map(|kind| kind as u8);
        let payload_len = u64::from(with_payload.contains(&kind));
        check_body(kind, payload_len, &random.bytes(200));
    }
}

#[test]
fn damaged_frames_do_no_harm() {
    let (mut random, cases) = start();
    let samples = bodies::all();
    for _ in 0..cases {
        let (kind, payload_len, body) = &samples[random.below(samples.len())];
        let mut body = body.clone();
        damage(&mut random, &mut body);
        check_body(*kind, *payload_len, &body);
    }
}

#[test]
fn random_tails_do_no_harm() {
    let (mut random, cases) = start();
    let samples = bodies::all();
    for _ in 0..cases {
        let (kind, payload_len, body) = &samples[random.below(samples.len())];
        let mut body = body.clone();
        let (fields, mut tag) = (random.below(70), 0u16);
        for _ in 0..fields {
            let value = random.bytes(60);
            // Mostly in order, and mostly of the lengths that they say.
            tag =
                if random.below(50) == 0 { random.next() as u16 } else { tag.wrapping_add(1 + random.below(3) as u16) };
            let len = if random.below(50) == 0 { random.next() as u32 >> 20 } else { value.len() as u32 };
            body.extend_from_slice(&tag.to_le_bytes());
            body.extend_from_slice(&len.to_le_bytes());
            body.extend_from_slice(&value);
        }
        check_body(*kind, *payload_len, &body);
    }
}

#[test]
fn fields_that_are_skipped_cost_no_memory() {
    for (kind, payload_len, body) in bodies::all() {
        let field = [&0x7fff_u16.to_le_bytes()[..], &(1u32 << 20).to_le_bytes(), &vec![1; 1 << 20]].concat();
        let longer = [&body[..], &field].concat();
        let cost = |body: &[u8]| {
            let header = Header::parse(&raw::header(kind, payload_len, body)).expect("a good header");
            cost_of(&header, body)
        };
        assert_eq!(cost(&longer), cost(&body), "{kind:#x}");
    }
}
