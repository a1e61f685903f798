//! Removing blocks, everywhere they are.
//!
//! What an answer claims: whoever may hold a block and has not removed it is in `unanswered`. Asked are the holders that a
//! complete catalog names, this host's nodes, and every node that this catalog does not vouch for ([`crate::known`]).

use crate::catalogs::{Located, Node, NodeKey};
use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::{at_once, fan_out};
use crate::known::Known;
use crate::peers::Peer;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;
use tidepool_transfer::conn::ConnError;
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
    /// Nodes that may hold a copy and gave no answer: the copy may still be there, and comes back with its node. Not among
    /// them are nodes that said goodbye, nodes of which a newer life is known, and nodes whose host refuses connections.
    pub unanswered: Vec<NodeName>,
    /// Since when the catalogs know every node that may come back: what has been away for longer may be missing from
    /// `unanswered`. `None` when no catalog answered.
    pub known_since: Option<SystemTime>,
}

/// What became of removing blocks by pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removals {
    /// Copies removed, summed over nodes: a block with two replicas counts twice.
    pub copies: u64,
    /// As [`Removal::unanswered`]; also nodes that refused to.
    pub unanswered: Vec<NodeName>,
    /// As [`Removal::known_since`].
    pub known_since: Option<SystemTime>,
}

/// A node, and the places in the batch of the blocks that it is asked about.
pub(crate) type Asked = (Arc<Peer>, Vec<usize>);

/// Who is to remove blocks, each by its place in the batch.
pub(crate) struct Removers {
    pub(crate) asked: Vec<Asked>,
    known: Known,
    /// Whether those that are asked now have been named as copiers.
    are_copiers: bool,
    /// Who gave no answer, about which blocks.
    missing: Vec<(NodeName, Vec<usize>)>,
}

impl Removers {
    /// Asks everyone about their blocks, all at once. One list of answers each, cut short where no answer came: such nodes
    /// are noted.
    pub(crate) fn ask<T: Send>(
        &mut self,
        ids: &[BlockId],
        request: impl Fn(Vec<BlockId>) -> Request + Sync,
        read: impl Fn(Reply) -> Option<Vec<T>> + Sync,
        deadline: Deadline,
    ) -> Vec<Vec<T>> {
        let ask = |(peer, indexes): &Asked| {
            let ids: Vec<BlockId> = indexes.iter().map(|&index| ids[index]).collect();
            let (answers, error) = peer.try_call_about(&ids, |ids| request(ids.to_vec()), || deadline, &read);
            (answers, error.is_none_or(|error| self.has_ended(peer, &error, deadline)))
        };
        let answers = at_once(&self.asked, ask).into_iter().map(|answer| answer.unwrap_or((Vec::new(), false)));
        let mut all = Vec::with_capacity(self.asked.len());
        for ((peer, indexes), (answers, is_over)) in self.asked.iter().zip(answers) {
            if !is_over {
                self.missing.push((peer.key.name.clone(), indexes[answers.len()..].to_vec()));
            }
            all.push(answers);
        }
        all
    }

    /// Whether a node that failed so has ended, and what it held is gone.
    fn has_ended(&self, peer: &Peer, error: &ConnError, deadline: Deadline) -> bool {
        match error {
            // A newer life may have made the copy that it was named for.
            ConnError::WrongEpoch(_) => !self.are_copiers && !self.known.is_alive(&peer.key),
            _ => !self.known.is_alive(&peer.key) && peer.has_ended(deadline),
        }
    }

    /// Asks about the blocks of which `wanted` says yes, and no others any more.
    fn retain(&mut self, wanted: impl Fn(usize) -> bool) {
        self.asked.iter_mut().for_each(|(_, indexes)| indexes.retain(|&index| wanted(index)));
        self.asked.retain(|(_, indexes)| !indexes.is_empty());
    }

    /// Asks nodes that others have `named` about the same blocks from now on, and nobody else. A node to which there is no way
    /// is noted.
    pub(crate) fn turn_to(&mut self, client: &Client, named: &[NodeName], deadline: Deadline) {
        let asked: BTreeSet<usize> = self.asked.drain(..).flat_map(|(_, indexes)| indexes).collect();
        let asked: Vec<usize> = asked.into_iter().collect();
        self.are_copiers = true;
        let peers = &client.core().peers;
        for name in named {
            let lives: Vec<Node> = self.known.named(name).cloned().collect();
            let mut ways: Vec<Option<Arc<Peer>>> = peers.reach_all(&lives, deadline);
            if lives.is_empty() {
                ways.extend(peers.table().named(name).cloned().map(Some));
            }
            if ways.is_empty() && !self.known.left.contains(name) || ways.iter().any(Option::is_none) {
                self.missing.push((name.clone(), asked.clone()));
            }
            self.asked.extend(ways.into_iter().flatten().map(|peer| (peer, asked.clone())));
        }
    }

    /// Notes those that were to be asked next: nobody asks them.
    pub(crate) fn give_up(&mut self) {
        let left = self.asked.drain(..).map(|(peer, indexes)| (peer.key.name.clone(), indexes));
        self.missing.extend(left);
    }

    /// For each of `count` blocks, who gave no answer about it.
    pub(crate) fn unanswered(self, count: usize) -> Vec<Vec<NodeName>> {
        let mut unanswered = vec![Vec::new(); count];
        for (name, indexes) in self.missing {
            for index in indexes {
                if !unanswered[index].contains(&name) {
                    unanswered[index].push(name.clone());
                }
            }
        }
        unanswered
    }

    /// Writes down who gave no answer.
    fn finish(self, removals: &mut [Removal]) {
        let known_since = self.known.since;
        let unanswered = self.unanswered(removals.len());
        for (removal, unanswered) in removals.iter_mut().zip(unanswered) {
            (removal.unanswered, removal.known_since) = (unanswered, known_since);
        }
    }
}

/// Which of `ids` each node holds, by an answer's word.
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
        let mut removers = self.removers(&ids, deadline);
        let mut removals = vec![Removal::default(); ids.len()];
        self.remove_from(&mut removers, &ids, &mut removals, deadline);
        removers.finish(&mut removals);
        Ok(removals)
    }

    /// Has `removers` remove whatever they hold, and after them whoever has lately copied it from one of those: no catalog
    /// need know of those copies yet.
    fn remove_from(&self, removers: &mut Removers, ids: &[BlockId], removals: &mut [Removal], deadline: Deadline) {
        self.supersede(ids, Version::NEVER, removers, deadline, |index, outcome| {
            removals[index].removed |= outcome == SupersedeOutcome::Removed;
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
        let mut removals = vec![Removal::default(); ids.len()];
        let leased = self.core().catalogs.leased(&ids, deadline);
        removals.iter_mut().zip(leased).for_each(|(removal, leased)| removal.leased = leased);
        let read = |reply| if let Reply::Judged(judgements) = reply { Some(judgements) } else { None };
        // First a look at all of them: a lease at one holder must keep the others from removing theirs.
        for remove in [false, true] {
            let judge = |ids| Request::Judge(Judge { remove, writer: None, ids });
            removers.retain(|index| !removals[index].leased);
            let judgements = removers.ask(&ids, judge, read, deadline);
            for ((_, indexes), judgements) in removers.asked.iter().zip(judgements) {
                for (&index, judgement) in indexes.iter().zip(judgements) {
                    removals[index].leased |= judgement == Judgement::Leased;
                    removals[index].removed |= remove && judgement == Judgement::Free;
                }
            }
        }
        // Copies that were made meanwhile, of blocks that are gone now.
        removers.retain(|index| !removals[index].leased);
        self.remove_from(&mut removers, &ids, &mut removals, deadline);
        removers.finish(&mut removals);
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
        removers.retain(|index| own[index] && !leased[index]);
        let read = |reply| if let Reply::Removed(flags) = reply { Some(flags) } else { None };
        let flags = removers.ask(&ids, Request::Remove, read, deadline);
        let mut cleared = vec![false; ids.len()];
        for ((_, indexes), flags) in removers.asked.iter().zip(flags) {
            indexes.iter().zip(flags).for_each(|(&index, was_there)| cleared[index] |= was_there);
        }
        Ok(cleared)
    }

    /// Who is asked to remove what: this host's nodes and those that no catalog vouches for everything, others what a
    /// complete catalog says they hold. An answer lists only so many holders of a block; then everybody is asked about it.
    pub(crate) fn removers(&self, ids: &[BlockId], deadline: Deadline) -> Removers {
        let core = self.core();
        let lookup = core.catalogs.lookup_vouched(ids, deadline);
        // Only now: whoever is not vouched for has to be among them.
        let known = core.known(deadline);
        let located = &lookup.located;
        let everything: Vec<usize> = (0..ids.len()).collect();
        let (open, named): (Vec<usize>, Vec<usize>) =
            everything.iter().partition(|&&index| located.may_have_more(index));
        let table = core.peers.table();
        let mut elsewhere = known.elsewhere(&table);
        let mut wanted: HashMap<NodeKey, Vec<usize>> = HashMap::new();
        for node in &elsewhere {
            let key = NodeKey::of(node);
            let what = if lookup.vouched.contains(&key) { open.clone() } else { everything.clone() };
            wanted.insert(key, what);
        }
        for (node, held) in located.nodes().iter().zip(by_holder(located, &named)) {
            let key = NodeKey::of(node);
            if table.locals.iter().any(|local| local.key == key) {
                continue;
            }
            match wanted.get_mut(&key) {
                Some(what) if lookup.vouched.contains(&key) => what.extend(held),
                Some(_) => {}
                None => {
                    let is_vouched = lookup.vouched.contains(&key);
                    elsewhere.push(node.clone());
                    wanted.insert(key, if is_vouched { [&open[..], &held].concat() } else { everything.clone() });
                }
            }
        }
        elsewhere.retain(|node| wanted.get(&NodeKey::of(node)).is_some_and(|what| !what.is_empty()));
        let mut missing: Vec<_> = known.out_of_reach.iter().map(|name| (name.clone(), everything.clone())).collect();
        let mut asked: Vec<Asked> = table.locals.iter().map(|local| (Arc::clone(local), everything.clone())).collect();
        for (node, peer) in elsewhere.iter().zip(core.peers.reach_all(&elsewhere, deadline)) {
            let what = wanted.remove(&NodeKey::of(node)).unwrap_or_default();
            match peer {
                Some(peer) => asked.push((peer, what)),
                None => missing.push((node.name.clone(), what)),
            }
        }
        asked.retain(|(_, indexes)| !indexes.is_empty());
        Removers { asked, known, are_copiers: false, missing }
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
        let known = self.core().known(deadline);
        let (everyone, unanswered) = self.everyone(&known, deadline);
        let questions: Vec<_> = everyone.into_iter().map(request).collect();
        let mut removals = Removals { copies: 0, unanswered, known_since: known.since };
        for _ in 0..PASSES {
            let before = removals.copies;
            for ((peer, _), answer) in questions.iter().zip(fan_out(&questions, deadline)) {
                match answer {
                    Ok(Reply::Count(copies)) => removals.copies += copies,
                    // A bad pattern is one for every node, and none has removed anything.
                    Err(error @ NodeError::Invalid(_)) => return Err(error),
                    Err(NodeError::Ended(_)) if !known.is_alive(&peer.key) => {}
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
