//! Nodes that a catalog has named in the last ten minutes. A removal asks or names them, even when every catalog was
//! restarted meanwhile and knows them no more.

use crate::catalogs::{Member, Node, NodeKey, NodeState};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a node is remembered after a catalog has named it for the last time.
const REMEMBERED: Duration = Duration::from_secs(600);

/// See the file's head.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen(HashMap<NodeKey, Sighting>);

#[derive(Debug, Clone)]
struct Sighting {
    node: Node,
    /// When a catalog named the node for the last time.
    named: Instant,
    /// When a catalog last heard from the node; `None` for longer ago than this host's clock counts.
    heard: Option<Instant>,
}

impl Seen {
    /// Takes over what catalogs say. Nodes that said goodbye are dropped, and so is every life of a node that no catalog
    /// holds for living when a later life is known.
    pub(crate) fn note(&mut self, members: &[Member], now: Instant) {
        for member in members {
            let key = NodeKey::of(&member.node);
            if member.left {
                self.0.remove(&key);
                continue;
            }
            let heard = now.checked_sub(member.silent);
            let sighting =
                self.0.entry(key).or_insert_with(|| Sighting { node: member.node.clone(), named: now, heard });
            sighting.node.clone_from(&member.node);
            (sighting.named, sighting.heard) = (now, sighting.heard.max(heard));
        }
        self.0.retain(|_, sighting| now.duration_since(sighting.named) < REMEMBERED);
        let mut last: HashMap<&str, Option<Instant>> = HashMap::new();
        let lives = self.0.values().map(|sighting| (sighting.node.name.as_str(), sighting.heard));
        // A life that a catalog saw end is over, and what came after it counts.
        let ended = members.iter().filter(|member| member.left);
        let ended = ended.map(|member| (member.node.name.as_str(), now.checked_sub(member.silent)));
        for (name, heard) in lives.chain(ended) {
            let latest = last.entry(name).or_insert(heard);
            *latest = (*latest).max(heard);
        }
        let living = members.iter().filter(|member| !member.left && member.node.state != NodeState::Dead);
        let living: HashSet<NodeKey> = living.map(|member| NodeKey::of(&member.node)).collect();
        let has_successor = |seen: &Sighting| last.get(seen.node.name.as_str()).is_some_and(|last| *last > seen.heard);
        let is_old = |(key, seen): &(&NodeKey, &Sighting)| has_successor(seen) && !living.contains(*key);
        let old: Vec<NodeKey> = self.0.iter().filter(is_old).map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| drop(self.0.remove(key)));
    }

    /// Drops lives that operators had forgotten, unless a catalog that has not heard of that holds them for living.
    pub(crate) fn forget(&mut self, keys: &[NodeKey], members: &[Member]) {
        let living = members.iter().filter(|member| member.node.state != NodeState::Dead);
        let living: HashSet<NodeKey> = living.map(|member| NodeKey::of(&member.node)).collect();
        keys.iter().filter(|key| !living.contains(key)).for_each(|key| drop(self.0.remove(key)));
    }

    pub(crate) fn contains(&self, key: &NodeKey) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.0.values().map(|sighting| &sighting.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_types::{Epoch, NodeName};

    /// Dead when it has been silent.
    fn member(name: &str, epoch: u64, silent: u64, left: bool) -> Member {
        let node = Node {
            name: NodeName::new(name).unwrap(),
            epoch: Epoch(epoch),
            data_address: String::new(),
            socket: None,
            state: if silent == 0 { NodeState::Alive } else { NodeState::Dead },
            host_hint: String::new(),
        };
        let (build, capacity_bytes, used_bytes, stream, rival) = (String::new(), 0, 0, 1, None);
        let silent = Duration::from_secs(silent);
        Member { node, build, capacity_bytes, used_bytes, stream, caught_up: true, silent, left, rival }
    }

    fn epochs(seen: &Seen) -> Vec<u64> {
        let mut epochs: Vec<u64> = seen.nodes().map(|node| node.epoch.0).collect();
        epochs.sort_unstable();
        epochs
    }

    #[test]
    fn a_node_is_remembered_for_ten_minutes_after_it_was_last_named() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        seen.note(&[member("a", 1, 0, false)], start);
        seen.note(&[], start + REMEMBERED - Duration::from_secs(1));
        assert_eq!(epochs(&seen), [1]);
        seen.note(&[], start + REMEMBERED);
        assert_eq!(epochs(&seen), []);
    }

    #[test]
    fn only_the_last_life_of_a_node_counts_and_none_after_a_goodbye() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.note(&[member("a", 1, 3, false), member("b", 2, 0, false)], now);
        seen.note(&[member("a", 9, 0, false)], now);
        assert_eq!(epochs(&seen), [2, 9]);
        seen.note(&[member("a", 1, 30, false)], now);
        assert_eq!(epochs(&seen), [2, 9], "a catalog that was away for longer knows nothing newer");
        seen.note(&[member("b", 2, 0, true)], now);
        assert_eq!(epochs(&seen), [9]);
        seen.note(&[member("a", 10, 1, false), member("a", 11, 0, true)], now + Duration::from_secs(5));
        assert_eq!(epochs(&seen), [], "the last life ended with a goodbye");
    }

    #[test]
    fn two_nodes_with_one_name_that_both_live_both_count() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.note(&[member("a", 1, 0, false)], now);
        seen.note(&[member("a", 1, 0, false), member("a", 2, 0, false)], now + Duration::from_millis(1));
        assert_eq!(epochs(&seen), [1, 2]);
    }

    #[test]
    fn a_node_that_an_operator_had_forgotten_is_dropped() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        seen.note(&[member("a", 1, 0, false), member("b", 2, 0, false)], now);
        let key = NodeKey { name: NodeName::new("a").unwrap(), epoch: Epoch(1) };
        seen.forget(std::slice::from_ref(&key), &[member("a", 1, 0, false)]);
        assert_eq!(epochs(&seen), [1, 2], "a catalog that lost the bar has admitted it");
        seen.forget(&[key], &[member("a", 1, 9, false)]);
        assert_eq!(epochs(&seen), [2]);
    }
}
