//! Removing blocks, everywhere they are.

use crate::catalogs::Lookup;
use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::fan_out;
use crate::lookup::ids_of;
use crate::peers::Peer;
use std::sync::Arc;
use tidepool_types::{BlockId, Deadline, InvalidInput, NodeName};
use tidepool_wire::message::{Pattern, Reply, Request};

/// What became of removing one block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal {
    /// Whether any copy was there and has been removed.
    pub removed: bool,
    /// Holders that did not answer, and nodes held for dead, which cannot be asked: their copies may still be there.
    pub unanswered: Vec<NodeName>,
}

/// What became of removing blocks by pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removals {
    /// Copies removed, summed over nodes: a block with two replicas counts twice.
    pub copies: u64,
    /// Nodes that did not answer or are held for dead: what they hold may still be there.
    pub unanswered: Vec<NodeName>,
}

impl Client {
    /// Removes a block from every node that holds it.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Removal, InvalidInput> {
        Ok(self.remove_batch(&[key])?.pop().unwrap_or_default())
    }

    /// Removes many blocks, with one result each, in the order of `keys`.
    pub fn remove_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Removal>, InvalidInput> {
        let deadline = self.deadline();
        let ids = ids_of(self.core(), keys)?;
        let asked = self.removers(&ids, deadline);
        let request = |(peer, indexes): &(Arc<Peer>, Vec<usize>)| {
            (Arc::clone(peer), Request::Remove(indexes.iter().map(|&index| ids[index]).collect()))
        };
        let questions: Vec<_> = asked.iter().map(request).collect();
        let unanswered = self.core().peers.table().lost();
        let mut removals = vec![Removal { removed: false, unanswered }; ids.len()];
        for ((peer, indexes), answer) in asked.iter().zip(fan_out(&questions, deadline)) {
            match answer {
                Ok(Reply::Removed(flags)) => {
                    indexes.iter().zip(flags).for_each(|(&index, was_there)| removals[index].removed |= was_there);
                }
                _ => indexes.iter().for_each(|&index| removals[index].unanswered.push(peer.key.name.clone())),
            }
        }
        Ok(removals)
    }

    /// Who is asked to remove what: this host's nodes everything, others what a catalog says they hold; or all nodes
    /// everything, when no catalog is sure that it knows all that they hold.
    fn removers(&self, ids: &[BlockId], deadline: Deadline) -> Vec<(Arc<Peer>, Vec<usize>)> {
        let core = self.core();
        let Lookup { located, complete } = core.catalogs.lookup(ids, deadline);
        let table = core.peers.table();
        let everything = |peer: &Arc<Peer>| (Arc::clone(peer), (0..ids.len()).collect());
        if !complete {
            return table.reachable().map(everything).collect();
        }
        let mut asked: Vec<(Arc<Peer>, Vec<usize>)> = table.locals.iter().map(everything).collect();
        for (number, node) in located.nodes().iter().enumerate() {
            let holds = |index: &usize| located.holders(*index).iter().any(|holder| usize::from(holder.node) == number);
            let held: Vec<usize> = (0..ids.len()).filter(holds).collect();
            match core.peers.reach(node, deadline) {
                Some(peer) if !held.is_empty() && asked.iter().all(|(known, _)| !Arc::ptr_eq(known, &peer)) => {
                    asked.push((peer, held));
                }
                _ => {}
            }
        }
        asked
    }

    /// Removes every block in whose key the regular expression is found.
    pub fn remove_matching(&self, regex: &str) -> Result<Removals, NodeError> {
        self.remove_pattern(Pattern::Regex(regex.to_owned()))
    }

    /// Removes every block of the pool.
    pub fn remove_all(&self) -> Result<Removals, NodeError> {
        self.remove_pattern(Pattern::All)
    }

    fn remove_pattern(&self, pattern: Pattern) -> Result<Removals, NodeError> {
        let deadline = self.deadline();
        let request = |peer| (peer, Request::RemoveMatching(pattern.clone()));
        let (everyone, unanswered) = self.everyone(deadline);
        let questions: Vec<_> = everyone.into_iter().map(request).collect();
        let mut removals = Removals { copies: 0, unanswered };
        for ((peer, _), answer) in questions.iter().zip(fan_out(&questions, deadline)) {
            match answer {
                Ok(Reply::Count(copies)) => removals.copies += copies,
                Err(error @ NodeError::Refused { .. }) => return Err(error),
                _ => removals.unanswered.push(peer.key.name.clone()),
            }
        }
        Ok(removals)
    }
}
