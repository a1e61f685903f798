//! The goals: the fields to measure and the values that they must reach. One table for the JSON fields, the printed
//! table and `--only`.

use Floor::{AtLeast, AtMost};

/// The bound that a value must meet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Floor {
    /// Whether `value` is good enough.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(floor) => value >= floor,
            Self::AtMost(ceiling) => value <= ceiling,
        }
    }
}

/// One number of the result.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// The field of the JSON object.
    pub field: &'static str,
    /// The key inside the field, where the field is an object.
    pub part: Option<&'static str>,
    /// The quantity measured.
    pub what: &'static str,
    /// The bound that it must meet.
    pub floor: Floor,
    /// A field whose goal may be met instead of this one.
    pub or: Option<&'static str>,
}

const fn goal(field: &'static str, what: &'static str, floor: Floor) -> Goal {
    Goal { field, part: None, what, floor, or: None }
}

const fn tcp(part: &'static str, what: &'static str, floor: f64) -> Goal {
    Goal { field: "tcp_get_vs_socket", part: Some(part), what, floor: Floor::AtLeast(floor), or: None }
}

const fn either(field: &'static str, what: &'static str, floor: f64, or: &'static str) -> Goal {
    Goal { field, part: None, what, floor: Floor::AtLeast(floor), or: Some(or) }
}

/// All goals, in the order in which they are printed.
pub const GOALS: [Goal; 12] = [
    goal("shm_get_vs_memcpy", "get, 2 MiB blocks, batches of 32, to memcpy", AtLeast(0.90)),
    either("shm_get_4KiB_keys_per_s", "get, 4 KiB blocks, batches of 32", 2e6, "shm_get_4KiB_vs_memcpy"),
    either("shm_get_4KiB_vs_memcpy", "the same to memcpy in the same order", 0.65, "shm_get_4KiB_keys_per_s"),
    goal("shm_get_4KiB_us", "one get of one 4 KiB block, median", AtMost(5.0)),
    tcp("2MiB", "get over TCP, batches of 32, to a raw socket", 0.80),
    tcp("64KiB", "get over TCP, batches of 128, to a raw socket", 0.70),
    tcp("4KiB", "get over TCP, batches of 512, to a raw socket", 0.40),
    goal("put_vs_memcpy", "put, 2 MiB blocks, checksum included, to memcpy", AtLeast(0.55)),
    goal("lookup_keys_per_s", "exists, 5,000 keys of 90 bytes a call, half absent", AtLeast(4e6)),
    goal("match_prefix_us_5000", "match_prefix of 5,000 keys, median", AtMost(1500.0)),
    goal("catalog_bytes_per_block", "catalog memory, worse of 7.5 and 10 million blocks", AtMost(64.0)),
    goal("put_full_vs_half", "put, pool full to half full, worse of 2 MiB and 64 KiB", AtLeast(0.80)),
];

/// Reads the name of a field, for `--only`.
pub fn field_name(text: &str) -> Result<String, String> {
    let mut names: Vec<_> = GOALS.iter().map(|goal| goal.field).collect();
    names.dedup();
    if names.contains(&text) { Ok(text.to_owned()) } else { Err(format!("the fields are {}", names.join(", "))) }
}
