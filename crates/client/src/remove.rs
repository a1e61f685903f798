//! Removing blocks, everywhere they are.

use crate::catalogs::{Located, Lookup};
use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::{at_once, fan_out};
use crate::peers::Peer;
use std::sync::Arc;
use tidepool_types::{BlockId, Deadline, InvalidInput, NodeName, Version};
use tidepool_wire::message::{Judge, Judgement, Pattern, Reply, Request, SupersedeOutcome};

/// How often nodes are asked to remove by pattern: more than once where something was removed, since another node may just
/// have been copying it.
const PASSES: usize = 3;

/// What became of removing one block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal {
    /// Whether any copy was there and has been removed.
    pub removed: bool,
    /// Whether it stays because somebody has lately read it, or been told of it.
    pub leased: bool,
    /// Holders that did not answer, and nodes that cannot be asked (held for dead, or without an address that resolves):
    /// their copies may still be there.
    pub unanswered: Vec<NodeName>,
}

/// What became of removing blocks by pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removals {
    /// Copies removed, summed over nodes: a block with two replicas counts twice.
    pub copies: u64,
    /// Nodes that did not answer or refused to, are held for dead or have no address that resolves: what they hold may still
    /// be there.
    pub unanswered: Vec<NodeName>,
}

impl Removal {
    fn add_unanswered(&mut self, node: &NodeName) {
        if !self.unanswered.contains(node) {
            self.unanswered.push(node.clone());
        }
    }
}

/// Who is to remove blocks, each by its place in the batch.
pub(crate) struct Removers {
    pub(crate) asked: Vec<(Arc<Peer>, Vec<usize>)>,
    /// Nodes that should be asked, and to which there is no way.
    out_of_reach: Vec<(NodeName, Vec<usize>)>,
}

impl Removers {
    /// Asks everyone about their blocks, all at once. One list of answers each, cut short where no answer came.
    pub(crate) fn ask<T: Send>(
        &self,
        ids: &[BlockId],
        request: impl Fn(Vec<BlockId>) -> Request + Sync,
        read: impl Fn(Reply) -> Option<Vec<T>> + Sync,
        deadline: Deadline,
    ) -> Vec<Vec<T>> {
        let ask = |(peer, indexes): &(Arc<Peer>, Vec<usize>)| {
            let ids: Vec<BlockId> = indexes.iter().map(|&index| ids[index]).collect();
            peer.call_about(&ids, &request, || deadline, &read)
        };
        at_once(&self.asked, ask).into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Takes note of the answers, and of those that did not come.
    fn note<T: Copy>(&self, answers: &[Vec<T>], removals: &mut [Removal], note: impl Fn(&mut Removal, T)) {
        for ((peer, indexes), answers) in self.asked.iter().zip(answers) {
            let (answered, unanswered) = indexes.split_at(answers.len());
            answered.iter().zip(answers).for_each(|(&index, answer)| note(&mut removals[index], *answer));
            unanswered.iter().for_each(|&index| removals[index].add_unanswered(&peer.key.name));
        }
    }
}

/// For each node of an answer, which of `ids` it holds.
fn by_holder(located: &Located, ids: &[usize]) -> Vec<Vec<usize>> {
    let mut held = vec![Vec::new(); located.nodes().len()];
    for &id in ids {
        located.holders(id).iter().for_each(|holder| held[usize::from(holder.node)].push(id));
    }
    held
}

impl Client {
    /// Removes a block from every node that holds it.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Removal, InvalidInput> {
        Ok(self.remove_batch(&[key])?.pop().unwrap_or_default())
    }

    /// Removes many blocks, with one result each, in the order of `keys`.
    pub fn remove_batch<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Removal>, InvalidInput> {
        let deadline = self.deadline();
        let ids = self.core().ids_of(keys)?;
        let removers = self.removers(&ids, deadline);
        let mut removals = self.unanswered(&removers, ids.len());
        self.remove_from(removers, &ids, &mut removals, deadline);
        Ok(removals)
    }

    /// Has `removers` remove whatever they hold, and after them whoever has lately copied it from one of those: no catalog
    /// need know of those copies yet.
    fn remove_from(&self, removers: Removers, ids: &[BlockId], removals: &mut [Removal], deadline: Deadline) {
        self.supersede(ids, Version::NEVER, removers, deadline, |removers, outcomes| {
            removers.note(outcomes, removals, |removal, outcome| {
                removal.removed |= outcome == SupersedeOutcome::Removed;
            });
        });
    }

    /// Removes blocks that nobody has lately read or been told of, as far as clients with [leases] have. A lease anywhere, at
    /// an owner or at a catalog that answers, keeps the block everywhere.
    ///
    /// [leases]: crate::ClientConfig::leases
    pub fn remove_unleased<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Removal>, InvalidInput> {
        let deadline = self.deadline();
        let ids = self.core().ids_of(keys)?;
        let mut removers = self.removers(&ids, deadline);
        let mut removals = self.unanswered(&removers, ids.len());
        let leased = self.core().catalogs.leased(&ids, deadline);
        removals.iter_mut().zip(leased).for_each(|(removal, leased)| removal.leased = leased);
        let read = |reply| if let Reply::Judged(judgements) = reply { Some(judgements) } else { None };
        // First a look at all of them: a lease at one holder must keep the others from removing theirs.
        for remove in [false, true] {
            let judge = |ids| Request::Judge(Judge { remove, writer: None, ids });
            removers.asked.iter_mut().for_each(|(_, indexes)| indexes.retain(|&index| !removals[index].leased));
            removers.asked.retain(|(_, indexes)| !indexes.is_empty());
            let judgements = removers.ask(&ids, judge, read, deadline);
            removers.note(&judgements, &mut removals, |removal, judgement| {
                removal.leased |= judgement == Judgement::Leased;
                removal.removed |= remove && judgement == Judgement::Free;
            });
        }
        // Copies that were made meanwhile, of blocks that are gone now.
        removers.asked.iter_mut().for_each(|(_, indexes)| indexes.retain(|&index| !removals[index].leased));
        removers.asked.retain(|(_, indexes)| !indexes.is_empty());
        self.remove_from(removers, &ids, &mut removals, deadline);
        Ok(removals)
    }

    /// Removes the copies of blocks that this client has put, on one node or everywhere; none that is leased anywhere, and none
    /// of blocks that others have put. Says of each block whether a copy is gone.
    pub fn clear_replicas<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        node: Option<&NodeName>,
    ) -> Result<Vec<bool>, InvalidInput> {
        let deadline = self.deadline();
        let ids = self.core().ids_of(keys)?;
        let mut removers = self.removers(&ids, deadline);
        let mut leased = self.core().catalogs.leased(&ids, deadline);
        let mut own = vec![false; ids.len()];
        let read = |reply| if let Reply::Judged(judgements) = reply { Some(judgements) } else { None };
        let judge = |writer| move |ids| Request::Judge(Judge { remove: false, writer, ids });
        for writer in [Some(self.id()), None] {
            let judgements = removers.ask(&ids, judge(writer), read, deadline);
            for ((_, indexes), judgements) in removers.asked.iter().zip(judgements) {
                for (&index, judgement) in indexes.iter().zip(judgements) {
                    leased[index] |= judgement == Judgement::Leased;
                    own[index] |= writer.is_some() && judgement == Judgement::Free;
                }
            }
        }
        removers.asked.retain(|(peer, _)| node.is_none_or(|node| peer.key.name == *node));
        removers.asked.iter_mut().for_each(|(_, indexes)| indexes.retain(|&index| own[index] && !leased[index]));
        removers.asked.retain(|(_, indexes)| !indexes.is_empty());
        let read = |reply| if let Reply::Removed(flags) = reply { Some(flags) } else { None };
        let flags = removers.ask(&ids, Request::Remove, read, deadline);
        let mut cleared = vec![false; ids.len()];
        for ((_, indexes), flags) in removers.asked.iter().zip(flags) {
            indexes.iter().zip(flags).for_each(|(&index, was_there)| cleared[index] |= was_there);
        }
        Ok(cleared)
    }

    /// Removals of which only is known who cannot be asked.
    fn unanswered(&self, removers: &Removers, count: usize) -> Vec<Removal> {
        let unanswered = self.core().peers.table().lost();
        let mut removals = vec![Removal { unanswered, ..Removal::default() }; count];
        for (name, indexes) in &removers.out_of_reach {
            indexes.iter().for_each(|&index| removals[index].add_unanswered(name));
        }
        removals
    }

    /// Who is asked to remove what: this host's nodes everything, others what a catalog says they hold. All nodes are asked
    /// about a block of which no catalog is sure that it has named all holders.
    pub(crate) fn removers(&self, ids: &[BlockId], deadline: Deadline) -> Removers {
        let core = self.core();
        let Lookup { located, complete, .. } = core.catalogs.lookup(ids, deadline);
        let table = core.peers.table();
        let is_open = |index: &usize| !complete || located.may_have_more(*index);
        let (open, named): (Vec<usize>, Vec<usize>) = (0..ids.len()).partition(is_open);
        let is_here = |peer: &Arc<Peer>| table.locals.iter().any(|local| Arc::ptr_eq(local, peer));
        let what = |peer: &Arc<Peer>| if is_here(peer) { (0..ids.len()).collect() } else { open.clone() };
        let mut asked: Vec<(Arc<Peer>, Vec<usize>)> =
            table.reachable().map(|peer| (Arc::clone(peer), what(peer))).collect();
        let mut out_of_reach: Vec<_> = table.unreached().map(|name| (name.clone(), open.clone())).collect();
        for (node, held) in located.nodes().iter().zip(by_holder(&located, &named)) {
            match core.peers.reach(node, deadline) {
                Some(peer) if is_here(&peer) => {}
                Some(peer) => match asked.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &peer)) {
                    Some((_, indexes)) => indexes.extend(held),
                    None => asked.push((peer, held)),
                },
                None => out_of_reach.push((node.name.clone(), held)),
            }
        }
        asked.retain(|(_, indexes)| !indexes.is_empty());
        Removers { asked, out_of_reach }
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
        for _ in 0..PASSES {
            let before = removals.copies;
            for ((peer, _), answer) in questions.iter().zip(fan_out(&questions, deadline)) {
                match answer {
                    Ok(Reply::Count(copies)) => removals.copies += copies,
                    // A bad pattern is one for every node, and none has removed anything.
                    Err(error @ NodeError::Invalid(_)) => return Err(error),
                    _ if removals.unanswered.contains(&peer.key.name) => {}
                    _ => removals.unanswered.push(peer.key.name.clone()),
                }
            }
            if removals.copies == before || !removals.unanswered.is_empty() || questions.len() < 2 {
                break;
            }
        }
        Ok(removals)
    }
}
