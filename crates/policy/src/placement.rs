//! Placement: the nodes that may take a new block, best first.
//!
//! 1. Nodes that the caller prefers, in its order.
//! 2. The node on the writer's own host.
//! 3. Nodes with more free space. The block's id decides between nodes that are about as free, so that writers which
//!    see the same members do not all choose one.
//!
//! A node that could not make room a moment ago comes after all others that are not preferred: asking it may take as
//! long as the deadline.

/// A node that may take a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The caller's name for the node.
    pub index: usize,
    /// Number of nodes that the caller prefers to this one; `None` when the caller did not name it.
    pub preferred: Option<usize>,
    /// Whether the node had no room a moment ago, and could make none.
    pub full: bool,
    /// Whether the node is on the writer's host.
    pub local: bool,
    /// Bytes that the node has free.
    pub free: u64,
}

impl Candidate {
    /// The sort key of a candidate; the smallest is the best.
    fn key(&self, spread: u64) -> (usize, bool, bool, u32, u64) {
        let tie = (spread ^ self.index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Powers of two: nodes within a factor of two of each other count as equally free.
        (self.preferred.unwrap_or(usize::MAX), self.full, !self.local, self.free.leading_zeros(), tie)
    }
}

/// Orders `candidates` from best to worst for a block whose id hashes to `spread`.
#[must_use]
pub fn rank(mut candidates: Vec<Candidate>, spread: u64) -> Vec<usize> {
    candidates.sort_by_key(|candidate| candidate.key(spread));
    candidates.into_iter().map(|candidate| candidate.index).collect()
}

/// The first node that [`rank`] names where the caller prefers none: the node on the writer's host, or the best of
/// `others`, which this reads only if there is no local node.
pub fn first(local: Option<usize>, others: impl IntoIterator<Item = Candidate>, spread: u64) -> Option<usize> {
    let best = || others.into_iter().min_by_key(|candidate| candidate.key(spread));
    local.or_else(|| best().map(|candidate| candidate.index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(index: usize, preferred: Option<usize>, local: bool, free: u64) -> Candidate {
        Candidate { index, preferred, full: false, local, free }
    }

    #[test]
    fn preferred_then_local_then_free() {
        let nodes = vec![
            candidate(0, None, false, 1 << 20),
            candidate(1, None, true, 0),
            candidate(2, Some(1), true, 1 << 20),
            candidate(3, None, false, 1 << 30),
            candidate(4, Some(0), false, 0),
        ];
        assert_eq!(rank(nodes, 7), [4, 2, 1, 3, 0]);
    }

    #[test]
    fn a_full_node_comes_last_unless_it_is_preferred() {
        let full = |candidate| Candidate { full: true, ..candidate };
        let nodes = vec![
            full(candidate(0, None, true, 1 << 30)),
            candidate(1, None, false, 0),
            full(candidate(2, Some(0), false, 0)),
            full(candidate(3, None, false, 1 << 20)),
        ];
        assert_eq!(rank(nodes, 7), [2, 1, 0, 3]);
    }

    #[test]
    fn the_first_is_that_of_the_ranking() {
        for (spread, local) in (0..100).flat_map(|spread: u64| [(spread, None), (spread, Some(3))]) {
            let spread = spread.wrapping_mul(0x2545_f491_4f6c_dd1d);
            let free = |index: usize| 1 << (10 + (spread >> (8 * index)) % 3);
            let nodes: Vec<_> = (0..5).map(|i| candidate(i, None, Some(i) == local, free(i))).collect();
            assert_eq!(first(local, nodes.clone(), spread), rank(nodes, spread).first().copied());
        }
        assert_eq!(first(None, [], 7), None);
    }

    #[test]
    fn equally_free_nodes_share_the_load() {
        let firsts = (0..1000).map(|spread: u64| {
            let nodes = (0..4).map(|i| candidate(i, None, false, 1000 + i as u64)).collect();
            rank(nodes, spread.wrapping_mul(0x2545_f491_4f6c_dd1d))[0]
        });
        let mut counts = [0; 4];
        firsts.for_each(|first| counts[first] += 1);
        assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
    }
}
