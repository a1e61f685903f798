//! Admission: whether a block may push another block out.
//!
//! Most blocks are used once. A block that comes while there is free room costs no other block. Without free room, a
//! cache may want to see a block twice before it evicts another one for it. A block that is not admitted counts as
//! evicted at once.

use crate::eviction::Tag;
use std::{fmt, str::FromStr};
use tidepool_types::mix;

/// A rule about blocks that come while there is no free room.
pub trait Admission: Send {
    /// Whether the block `tag` comes in now.
    fn admits(&mut self, tag: Tag) -> bool;
}

/// Admits every block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everything;

impl Admission for Everything {
    fn admits(&mut self, _tag: Tag) -> bool {
        true
    }
}

/// Admits a block whose name it still remembers from an earlier visit.
///
/// Names lie in small buckets, oldest first; in a full bucket a new name replaces the oldest one. So about as many
/// names are remembered as there are places, and never more.
#[derive(Debug)]
pub struct SecondSight {
    /// Free places, which are zero, then names, oldest first.
    buckets: Vec<[u64; Self::WAYS]>,
}

impl SecondSight {
    /// Places of a bucket: a cache line.
    const WAYS: usize = 8;
    /// The most names that are remembered, whatever the caller asks for: 128 MiB of them.
    const MOST: u64 = 1 << 24;

    /// Remembers about `names` names.
    #[must_use]
    pub fn new(names: u64) -> Self {
        let buckets = (names.min(Self::MOST) as usize).div_ceil(Self::WAYS).max(1);
        Self { buckets: vec![[0; Self::WAYS]; buckets] }
    }
}

impl Admission for SecondSight {
    fn admits(&mut self, Tag(name): Tag) -> bool {
        let name = name.max(1);
        // Names need not be spread evenly.
        let spread = mix(name) >> 32;
        let count = self.buckets.len() as u64;
        let bucket = &mut self.buckets[((spread * count) >> 32) as usize];
        match bucket.iter().position(|other| *other == name) {
            Some(at) => {
                bucket[at] = 0;
                bucket[..=at].rotate_right(1);
                true
            }
            None => {
                bucket[0] = name;
                bucket.rotate_left(1);
                false
            }
        }
    }
}

/// A rule, by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rule {
    /// Every block comes in.
    #[default]
    All,
    /// A block comes in on its second visit.
    SecondSight,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::All, Self::SecondSight];

    /// Builds the rule for a cache of `blocks` blocks. It remembers four names a block: a block that returns later than
    /// that was evicted meanwhile.
    #[must_use]
    pub fn build(self, blocks: u64) -> Box<dyn Admission> {
        match self {
            Self::All => Box::new(Everything),
            Self::SecondSight => Box::new(SecondSight::new(blocks.saturating_mul(4))),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::SecondSight => "second-sight",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing a name that no rule has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRule;

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("allowed are all and second-sight")
    }
}

impl std::error::Error for UnknownRule {}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(text: &str) -> Result<Self, UnknownRule> {
        Self::ALL.into_iter().find(|rule| rule.name() == text).ok_or(UnknownRule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_second_sight_is_admitted_and_the_third_is_a_first_again() {
        let mut rule = SecondSight::new(100);
        for name in [0, 1, 7, u64::MAX] {
            let sights: Vec<bool> = (0..4).map(|_| rule.admits(Tag(name))).collect();
            // Zero and one are the same name: nobody is called zero.
            assert_eq!(sights, [false, true, false, true], "{name}");
        }
    }

    #[test]
    fn about_as_many_names_are_remembered_as_asked_for() {
        let mut rule = SecondSight::new(1000);
        let firsts = (0..500).filter(|name| rule.admits(Tag(name * 977 + 5))).count();
        assert_eq!(firsts, 0);
        let known = (0..500).filter(|name| rule.admits(Tag(name * 977 + 5))).count();
        assert!(known > 400, "{known} of 500");
        let others = (0..100_000).filter(|name| rule.admits(Tag(name * 977 + 6))).count();
        assert_eq!(others, 0);
        assert_eq!(rule.buckets.len(), 125);
        assert!(!rule.admits(Tag(5)), "what came long ago is forgotten");
    }

    #[test]
    fn rules_are_known_by_their_names() {
        assert!(Rule::ALL.iter().all(|rule| rule.to_string().parse() == Ok(*rule)));
        assert_eq!("none".parse::<Rule>(), Err(UnknownRule));
        assert!((0..9).all(|name| Rule::All.build(4).admits(Tag(name))));
    }

    proptest! {
        /// One bucket against a plain list of at most eight names, oldest first.
        #[test]
        fn a_bucket_is_that_of_a_naive_list(names in prop::collection::vec(1..16_u64, 0..300)) {
            let (mut rule, mut naive) = (SecondSight::new(8), Vec::new());
            for name in names {
                let known = naive.iter().position(|other| *other == name);
                prop_assert_eq!(rule.admits(Tag(name)), known.is_some());
                match known {
                    Some(at) => { naive.remove(at); }
                    None => { naive.push(name); naive.drain(..naive.len().saturating_sub(8)); }
                }
            }
        }
    }
}
