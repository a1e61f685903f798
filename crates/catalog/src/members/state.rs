//! When a node counts as alive, suspect or dead, and when a catalog is complete: pure functions of evidence and time.
//!
//! All times are spans since the catalog's start.

use std::time::Duration;
use tidepool_schema as wire;

/// What a catalog thinks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeState {
    /// Heard of lately.
    Alive,
    /// Silent for a moment, or its stream broke: named as a holder after all others, not to be written to.
    Suspect,
    /// Silent for long, or gone on purpose: no longer named. Final for the stream; a new stream starts a new life.
    Dead,
}

impl NodeState {
    /// The state as messages name it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
        }
    }
}

impl From<NodeState> for wire::NodeState {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::Alive => Self::Alive,
            NodeState::Suspect => Self::Suspect,
            NodeState::Dead => Self::Dead,
        }
    }
}

/// What became of a node's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Connected.
    Open,
    /// The stream ended without a goodbye.
    Broken,
    /// The node said goodbye.
    Left,
}

/// The bounds that states depend on.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Silence after which a node is suspect.
    pub suspect_after: Duration,
    /// Silence after which a node is dead.
    pub dead_after: Duration,
}

/// The state that follows `state` for a node last heard at `heard`.
#[must_use]
pub fn next_state(state: NodeState, link: Link, heard: Duration, now: Duration, limits: Limits) -> NodeState {
    let silent = now.saturating_sub(heard);
    match (state, link) {
        (NodeState::Dead, _) | (_, Link::Left) => NodeState::Dead,
        _ if silent > limits.dead_after => NodeState::Dead,
        (_, Link::Broken) => NodeState::Suspect,
        _ if silent > limits.suspect_after => NodeState::Suspect,
        _ => NodeState::Alive,
    }
}

/// What completeness asks of one node.
#[derive(Debug, Clone, Copy)]
pub struct Standing {
    /// The node's state.
    pub state: NodeState,
    /// Its snapshot is finished and every change it spoke of is applied.
    pub caught_up: bool,
    /// The latest moment at which the node is known to have had its stream open: when the catalog wrote the probe that
    /// the node's latest heartbeat echoed. (When a heartbeat *arrives* proves nothing: a catalog that was stopped reads
    /// old ones, while the node has long given up on it.)
    pub proven: Option<Duration>,
    /// How long a proof counts: no longer than the node waits for acknowledgements.
    pub bound: Duration,
}

/// Whether a "no" is a no. `settle`: nodes need that long to find a catalog that has just started.
#[must_use]
pub fn is_complete(nodes: impl IntoIterator<Item = Standing>, now: Duration, settle: Duration) -> bool {
    let is_proven = |node: &Standing| node.proven.is_some_and(|proven| now.saturating_sub(proven) <= node.bound);
    let stands = |node: Standing| node.state == NodeState::Dead || (node.caught_up && is_proven(&node));
    now >= settle && nodes.into_iter().all(stands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeState::{Alive, Dead, Suspect};

    const LIMITS: Limits = Limits { suspect_after: Duration::from_millis(500), dead_after: Duration::from_secs(5) };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn states_follow_from_silence_and_from_the_stream() {
        let table = [
            (Alive, Link::Open, 500, Alive),
            (Alive, Link::Open, 501, Suspect),
            (Suspect, Link::Open, 10, Alive),
            (Suspect, Link::Open, 5000, Suspect),
            (Suspect, Link::Open, 5001, Dead),
            (Alive, Link::Broken, 0, Suspect),
            (Suspect, Link::Broken, 5001, Dead),
            (Alive, Link::Left, 0, Dead),
            (Dead, Link::Open, 0, Dead),
            (Dead, Link::Broken, 0, Dead),
        ];
        for (before, link, silent, after) in table {
            let state = next_state(before, link, ms(1000), ms(1000 + silent), LIMITS);
            assert_eq!(state, after, "{before:?} {link:?} silent for {silent} ms");
        }
    }

    #[test]
    fn a_clock_that_reads_earlier_than_the_last_message_is_no_silence() {
        assert_eq!(next_state(Alive, Link::Open, ms(1000), ms(900), LIMITS), Alive);
    }

    #[test]
    fn complete_means_settled_caught_up_and_proven_lately() {
        let node = |state, caught_up, proven| Standing { state, caught_up, proven: Some(ms(proven)), bound: ms(100) };
        let complete = |nodes: &[Standing], now| is_complete(nodes.iter().copied(), ms(now), ms(1000));
        assert!(!complete(&[], 999));
        assert!(complete(&[], 1000));
        assert!(complete(&[node(Alive, true, 1900)], 2000));
        assert!(!complete(&[node(Alive, true, 1899)], 2000));
        assert!(!complete(&[node(Alive, false, 2000)], 2000));
        assert!(!complete(&[node(Alive, true, 2000), node(Suspect, false, 2000)], 2000));
        assert!(!complete(&[Standing { proven: None, ..node(Alive, true, 0) }], 1000));
        let patient = Standing { bound: ms(250), ..node(Alive, true, 1750) };
        assert!(complete(&[patient], 2000), "each node by its own bound");
        assert!(!complete(&[patient, node(Alive, true, 1899)], 2000));
        assert!(complete(&[node(Alive, true, 2000), node(Dead, false, 0)], 2000));
    }
}
