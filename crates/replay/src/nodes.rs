//! Absences of the pool's nodes during a run, as the catalogs see them.

use crate::clock::{Clock, STEP};
use crate::progress::Progress;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tidepool_client::{Client, PoolNode, catalogs::NodeState};
use tidepool_types::{Epoch, NodeName};

/// How often the catalogs are asked.
const LOOK: Duration = Duration::from_secs(1);
/// Time by which the catalogs have decided whether a silent node is dead.
const DECIDED: Duration = Duration::from_secs(8);
/// The most absences that are kept.
const MOST: usize = 1000;

/// A time in which a node was away. All times are the trace's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// The node.
    pub node: NodeName,
    /// The time of the node's last sign of life.
    pub began: Duration,
    /// The time of its return; none if it did not return.
    pub ended: Option<Duration>,
    /// Whether the node left on purpose.
    pub left: bool,
    /// Whether the catalogs declared the node dead, or it returned as another incarnation: its blocks could not be
    /// found. Otherwise it was only silent for a moment.
    pub was_dead: bool,
    /// Blocks of the whole pool that look-ups promised and reads did not get, between the node's last sign of life and
    /// its return.
    pub lost_blocks: u64,
}

/// The pool's nodes, and their absences so far.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    known: BTreeMap<NodeName, Known>,
    absences: Vec<Absence>,
}

/// A node that has been seen alive.
#[derive(Debug)]
struct Known {
    epoch: Epoch,
    /// Lost blocks at the node's last sign of life.
    lost_before: u64,
    away: Option<Absence>,
}

impl Nodes {
    /// Does `work`. Returns also the absences of the client's nodes meanwhile.
    pub(crate) fn watch<T>(
        client: Option<&Client>,
        clock: &Clock,
        progress: &Progress,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<Absence>) {
        let Some(client) = client else { return (work(), Vec::new()) };
        let mut nodes = Self::default();
        let mut look = || nodes.look(client, clock, progress);
        look();
        let worked = std::thread::scope(|scope| {
            let (working, over) = sync_channel::<()>(0);
            scope.spawn(move || {
                while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    look();
                }
                let until = Instant::now() + DECIDED;
                while look() && Instant::now() < until && progress.ending().is_none() {
                    std::thread::sleep(STEP);
                }
            });
            let worked = work();
            drop(working);
            worked
        });
        (worked, nodes.finish())
    }

    /// Asks the catalogs. Returns whether a node is silent and not yet declared dead.
    fn look(&mut self, client: &Client, clock: &Clock, progress: &Progress) -> bool {
        let (members, lost) = (client.members(), progress.lost_blocks.load(Ordering::Relaxed));
        for node in &members {
            let heard = clock.before(node.silent.unwrap_or_default());
            self.saw(node, heard, clock.now(), lost);
        }
        let is_known = |node: &&PoolNode| self.known.contains_key(&node.name);
        members.iter().filter(is_known).any(|node| node.state == Some(NodeState::Suspect))
    }

    /// Notes a catalog's word about a node: the time `heard` of it, with `lost` blocks in all so far. A node without a
    /// state keeps its old one, since a catalog may have been restarted.
    fn saw(&mut self, node: &PoolNode, heard: Duration, now: Duration, lost: u64) {
        let Some(state) = node.state else { return };
        if !self.known.contains_key(&node.name) {
            // A node that was away from the start is not missed.
            if state == NodeState::Alive {
                let known = Known { epoch: node.epoch, lost_before: lost, away: None };
                self.known.insert(node.name.clone(), known);
            }
            return;
        }
        let Some(known) = self.known.get_mut(&node.name) else { return };
        let is_other = known.epoch != node.epoch;
        if state != NodeState::Alive || is_other {
            let (name, began) = (node.name.clone(), if is_other { now } else { heard });
            let first = || Absence { node: name, began, ended: None, left: false, was_dead: false, lost_blocks: 0 };
            let away = known.away.get_or_insert_with(first);
            away.left |= node.left;
            away.was_dead |= is_other || state == NodeState::Dead;
            away.lost_blocks = lost - known.lost_before;
        }
        if state == NodeState::Alive {
            let back = known.away.take().map(|away| Absence { ended: Some(now), ..away });
            (known.epoch, known.lost_before) = (node.epoch, lost);
            self.absences.extend(back.filter(|_| self.absences.len() < MOST));
        }
    }

    /// All absences, in the order of their beginnings.
    fn finish(self) -> Vec<Absence> {
        let mut all = self.absences;
        all.extend(self.known.into_values().filter_map(|known| known.away));
        all.sort_by_key(|absence| absence.began);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeState::{Alive, Dead, Suspect};

    /// The absences of a node of epoch 1 that is looked at every second; each look has its epoch, its state and the
    /// lost blocks.
    fn absences(looks: &[(u64, Option<NodeState>, u64)]) -> Vec<Absence> {
        let mut nodes = Nodes::default();
        for (second, (epoch, state, lost)) in looks.iter().enumerate() {
            let node = PoolNode {
                name: NodeName::new("n").unwrap(),
                epoch: Epoch(*epoch),
                data_address: None,
                socket: None,
                state: *state,
                build: None,
                capacity_bytes: 0,
                used_bytes: 0,
                mapped: false,
                silent: None,
                left: false,
                rival: None,
            };
            let now = Duration::from_secs(second as u64);
            nodes.saw(&node, now.saturating_sub(Duration::from_millis(500)), now, *lost);
        }
        nodes.finish()
    }

    fn absence(began: u64, ended: Option<u64>, was_dead: bool, lost_blocks: u64) -> Absence {
        let (began, ended) = (Duration::from_millis(began), ended.map(Duration::from_secs));
        Absence { node: NodeName::new("n").unwrap(), began, ended, left: false, was_dead, lost_blocks }
    }

    #[test]
    fn a_node_is_away_from_when_it_was_last_heard_of_until_it_is_there_again() {
        let (alive, silent, dead) = ((1, Some(Alive), 7), (1, Some(Suspect), 9), (1, Some(Dead), 10));
        assert_eq!(absences(&[alive, alive]), []);
        assert_eq!(absences(&[dead, silent, dead]), [], "it never was there");
        assert_eq!(absences(&[alive, silent, (1, Some(Alive), 9)]), [absence(500, Some(2), false, 2)]);
        assert_eq!(absences(&[alive, silent, dead]), [absence(500, None, true, 3)]);
        assert_eq!(absences(&[alive, (1, None, 8), alive]), [], "no catalog answered: nothing is known");
        let (again, later) = ((2, Some(Alive), 10), (2, Some(Dead), 11));
        assert_eq!(absences(&[alive, again]), [absence(1000, Some(1), true, 3)], "it came back between two looks");
        assert_eq!(
            absences(&[alive, silent, again, later]),
            [absence(500, Some(2), true, 3), absence(2500, None, true, 1)]
        );
    }
}
