//! A node takes no more connections than its process has descriptors for: out of them it could not even refuse one.

use crate::node::StartError;
use rustix::process::{Resource, getrlimit};

/// Descriptors of one connection: its socket, and the watch on its process.
const PER_CONNECTION: u64 = 2;
/// Descriptors for all else: memory, listeners, catalogs, pages for metrics and health, pulls.
const RESERVE: u64 = 128;

/// With fewer connections a node is of no use: one client alone takes up to four (its watch on the node, a call, two TCP
/// streams).
const FEWEST: usize = 8;

/// How many connections a node may have in this process, up to `wanted`.
pub(crate) fn affordable(wanted: usize) -> Result<usize, StartError> {
    let limit = getrlimit(Resource::Nofile).current;
    let granted = limit.map_or(wanted, |limit| wanted.min(within(limit)));
    match limit {
        Some(limit) if granted < wanted.min(FEWEST) => Err(StartError::Descriptors { limit, needed: needed() }),
        _ => Ok(granted),
    }
}

/// The limit that makes a node worth starting.
fn needed() -> u64 {
    RESERVE + FEWEST as u64 * PER_CONNECTION * 3 / 2
}

/// A third is left for a catalog in the same process, or for the program that the node is embedded in.
fn within(limit: u64) -> usize {
    let connections = limit.saturating_sub(RESERVE) * 2 / 3 / PER_CONNECTION;
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// What an operator should know of a node that may have fewer connections than it was told to.
pub(crate) fn problem(granted: usize, wanted: usize) -> Option<String> {
    (granted < wanted).then(|| {
        format!(
            "{granted} connections are served at most, not {wanted} (node.max-connections): the process may not open more \
             files. Raise its limit (ulimit -n, LimitNOFILE=)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        assert_eq!([0, 128, 256, 1024, 4096].map(within), [0, 0, 42, 298, 1322]);
        assert_eq!(within(needed()), FEWEST);
        assert_eq!(problem(1024, 1024), None);
        assert!(problem(298, 1024).is_some_and(|text| text.contains("298") && text.contains("1024")));
    }
}
