//! Plans: the longest prefix worth loading, given the blocks of each chain that the pool holds. Pure, no I/O.
//!
//! Lengths count *hashed blocks*, the unit of the engine's block hashes. A block of a KV group may span several of
//! them. Full attention needs every block of a prefix; a sliding window needs only the last few blocks before its end.

/// The blocks of a prefix that one KV group needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Every block.
    All,
    /// This many blocks before the end of the prefix.
    Last(usize),
}

/// The blocks of a group with a window that the pool holds.
#[derive(Debug, Clone)]
pub struct Window<'a> {
    /// Hashed blocks in one of the group's blocks.
    pub step: usize,
    /// Blocks needed before the end of a prefix.
    pub blocks: usize,
    /// Whether each of its blocks is held, from the first one that the engine lacks.
    pub held: &'a [bool],
}

/// The longest prefix of at most `most` hashed blocks, a multiple of `unit`, whose windows are all held.
///
/// Lengths count from the end of the engine's own blocks: a window that reaches further back finds its blocks there.
#[must_use]
pub fn longest(most: usize, unit: usize, windows: &[Window<'_>]) -> usize {
    let runs: Vec<Vec<usize>> = windows.iter().map(|window| runs(window.held)).collect();
    let fits = |end: usize| {
        windows.iter().zip(&runs).all(|(window, runs)| {
            let blocks = end / window.step;
            blocks == 0 || runs.get(blocks - 1).is_some_and(|run| *run >= window.blocks.min(blocks))
        })
    };
    (1..=most / unit.max(1)).rev().map(|units| units * unit).find(|end| fits(*end)).unwrap_or(0)
}

/// For each block, the length of the run of held blocks that ends with it.
fn runs(held: &[bool]) -> Vec<usize> {
    let mut run = 0;
    held.iter()
        .map(|held| {
            run = if *held { run + 1 } else { 0 };
            run
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_windows_the_longest_multiple_of_the_unit_is_taken() {
        assert_eq!(longest(7, 1, &[]), 7);
        assert_eq!(longest(7, 4, &[]), 4);
        assert_eq!(longest(3, 4, &[]), 0);
    }

    #[test]
    fn a_window_needs_its_last_blocks_only() {
        let held = [false, false, true, true, false, true];
        let window = |blocks| [Window { step: 1, blocks, held: &held }];
        assert_eq!(longest(6, 1, &window(1)), 6);
        assert_eq!(longest(6, 1, &window(2)), 4);
        assert_eq!(longest(6, 1, &window(3)), 0);
    }

    #[test]
    fn what_lies_before_the_asked_part_is_the_engines_own() {
        let held = [true, true];
        assert_eq!(longest(2, 1, &[Window { step: 1, blocks: 9, held: &held }]), 2);
    }

    proptest! {
        #[test]
        fn the_answer_is_the_longest_that_a_plain_search_finds(
            held in proptest::collection::vec(any::<bool>(), 0..40), step in 1usize..4, blocks in 1usize..6, extra in 0usize..4,
        ) {
            let most = held.len() * step + extra.min(step - 1);
            let plain = (0..=most).rev().find(|end| {
                let count = end / step;
                end % step == 0 && (count.saturating_sub(blocks)..count).all(|index| held[index])
            });
            prop_assert_eq!(Some(longest(most, step, &[Window { step, blocks, held: &held }])), plain);
        }
    }
}
