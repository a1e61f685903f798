//! Look-ups: what the pool holds, without keeping any of it alive.
//!
//! This host's indexes are looked at first; a catalog is asked only about what they do not answer. With many ids it is the
//! other way round.

use crate::catalogs::Located;
use crate::client::Client;
use crate::core::Core;
use crate::peers::Table;
use std::collections::HashMap;
use std::time::Duration;
use tidepool_schema::{EXISTENCE_CHECK, PREFIX_MATCH};
use tidepool_types::{BlockId, Deadline, InvalidInput, NodeName, Tier};

/// Ids whose cache misses overlap: enough to hide them, few enough for the cache.
const LOOKED_UP_TOGETHER: usize = 64;

/// A catalog is asked about so many ids before this host's indexes are looked at: some are likely to be its to answer
/// anyway, and it answers all of them in less time than they take one after the other here.
const CATALOG_FIRST: usize = 1024;

/// How much of some chains the pool can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches {
    /// One per chain, in order.
    pub chains: Vec<ChainMatch>,
    /// The shortest run: what all chains (tensor-parallel ranks) can start from. Zero without chains.
    pub shortest: usize,
    /// The nodes that [`Place::node`] counts.
    pub nodes: Vec<NodeName>,
    /// Whether longer runs are ruled out; false when a catalog was needed and none that is complete answered.
    pub complete: bool,
    /// Whether a catalog answered, or none was needed.
    pub answered: bool,
}

/// How much of one chain the pool can serve.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainMatch {
    /// Where each block of the run is best read from. As long as the run.
    pub places: Vec<Place>,
}

impl ChainMatch {
    /// How many of the chain's first blocks can be had, without a gap.
    #[must_use]
    pub fn run(&self) -> usize {
        self.places.len()
    }
}

/// Where a block is best read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The node, as an index into [`Matches::nodes`].
    pub node: u16,
    /// Where the node has it.
    pub tier: Tier,
}

impl Client {
    /// Which of `keys` the pool holds, in order. What cannot be found out before the deadline counts as not held.
    pub fn exists<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>, InvalidInput> {
        let (core, deadline) = (self.core(), self.deadline());
        let ids = core.ids_of(keys)?;
        if core.recorded.wants(EXISTENCE_CHECK) {
            core.recorded.note(EXISTENCE_CHECK, &ids);
        }
        Ok(held(core, &ids, deadline))
    }

    /// Waits until the pool holds one of `keys`, and says which it holds then, in order. All false: the deadline has passed, or
    /// there are no keys. Nobody needs to have put, or reserved, any of the blocks.
    pub fn wait<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>, InvalidInput> {
        let (core, deadline) = (self.core(), self.deadline());
        let ids = core.ids_of(keys)?;
        loop {
            // Also what only this host knows of yet, or what only another catalog does.
            let now = held(core, &ids, deadline);
            if now.contains(&true) || ids.is_empty() || deadline.has_passed() {
                return Ok(now);
            }
            // A wait leases nothing: a client that wants leases looks once more.
            if let Some(then) = core.catalogs.wait(&ids, deadline).filter(|_| core.lease().is_none()) {
                return Ok(then);
            }
        }
    }

    /// For each chain of keys, the longest run from its start that the pool can serve, and where it is.
    pub fn match_prefix<C: AsRef<[K]>, K: AsRef<[u8]>>(&self, chains: &[C]) -> Result<Matches, InvalidInput> {
        let (core, deadline) = (self.core(), self.deadline());
        let ids = chains.iter().map(|chain| core.ids_of(chain.as_ref())).collect::<Result<Vec<_>, _>>()?;
        if core.recorded.wants(PREFIX_MATCH) {
            // The chains of one call are one request's, for several ranks or groups of layers: one of them says it all.
            let longest = ids.iter().rev().max_by_key(|chain| chain.len()).map_or(&[][..], Vec::as_slice);
            core.recorded.note(PREFIX_MATCH, longest);
        }
        let table = core.peers.table();
        let mut found: Vec<ChainMatch> = ids.iter().map(|chain| local_run(&table, chain)).collect();
        let mut nodes: Vec<NodeName> = table.locals.iter().map(|peer| peer.key.name.clone()).collect();
        let open: Vec<usize> = (0..ids.len()).filter(|&chain| found[chain].run() < ids[chain].len()).collect();
        let (mut complete, mut answered) = (true, true);
        if !open.is_empty() {
            let rests: Vec<&[BlockId]> = open.iter().map(|&chain| &ids[chain][found[chain].run()..]).collect();
            let answer = core.catalogs.match_prefix(&rests, deadline);
            (complete, answered) = (answer.complete, answer.answered);
            for (chain, run) in open.into_iter().zip(&answer.runs) {
                extend(&mut found[chain], run, &mut nodes);
            }
        }
        let shortest = found.iter().map(ChainMatch::run).min().unwrap_or(0);
        Ok(Matches { chains: found, shortest, nodes, complete, answered })
    }
}

/// Which of `ids` the pool holds.
fn held(core: &Core, ids: &[BlockId], deadline: Deadline) -> Vec<bool> {
    let table = core.peers.table();
    if table.locals.is_empty() {
        return core.catalogs.exists(ids, core.lease().is_some(), deadline).found;
    }
    if ids.len() >= CATALOG_FIRST {
        let answer = core.catalogs.exists(ids, core.lease().is_some(), deadline);
        if answer.complete {
            return answer.found;
        }
    }
    let mut places: Vec<Option<u16>> = Vec::with_capacity(ids.len());
    for step in ids.chunks(LOOKED_UP_TOGETHER) {
        prefetch(&table, step);
        places.extend(step.iter().map(|id| local_place(&table, id)));
    }
    if let Some(lease) = core.lease() {
        lease_found(&table, ids, &places, lease);
    }
    let mut found: Vec<bool> = places.iter().map(Option::is_some).collect();
    let open: Vec<usize> = (0..ids.len()).filter(|&index| !found[index]).collect();
    if !open.is_empty() {
        let asked: Vec<BlockId> = open.iter().map(|&index| ids[index]).collect();
        let answer = core.catalogs.exists(&asked, core.lease().is_some(), deadline).found;
        open.into_iter().zip(answer).for_each(|(index, held)| found[index] = held);
    }
    found
}

/// Asks for the cache lines that looking for `ids` will need, so that the waits for them overlap.
fn prefetch(table: &Table, ids: &[BlockId]) {
    let mappings = || table.locals.iter().filter_map(|peer| peer.memory()).map(|memory| &memory.mapping);
    mappings().for_each(|mapping| ids.iter().for_each(|id| mapping.prefetch_index(id)));
    mappings().for_each(|mapping| ids.iter().for_each(|id| mapping.prefetch_header(id)));
}

/// The first node of this host that holds the block.
fn local_place(table: &Table, id: &BlockId) -> Option<u16> {
    let holds = |peer: &crate::peers::Peer| peer.memory().is_some_and(|memory| memory.mapping.find(id).is_some());
    table.locals.iter().position(|peer| holds(peer)).map(|position| position as u16)
}

/// Leases what was found on this host, each block where it was found.
fn lease_found(table: &Table, ids: &[BlockId], places: &[Option<u16>], lease: Duration) {
    for (place, peer) in table.locals.iter().enumerate() {
        let here = ids.iter().zip(places).filter(|(_, found)| **found == Some(place as u16)).map(|(id, _)| *id);
        peer.lease(&here.collect::<Vec<_>>(), lease);
    }
}

fn local_run(table: &Table, chain: &[BlockId]) -> ChainMatch {
    let place = |id| Some(Place { node: local_place(table, id)?, tier: Tier::Dram });
    let mut places = Vec::new();
    for step in chain.chunks(LOOKED_UP_TOGETHER) {
        prefetch(table, step);
        let before = places.len();
        places.extend(step.iter().map_while(place));
        if places.len() < before + step.len() {
            break;
        }
    }
    ChainMatch { places }
}

/// Adds a catalog's run to the end of a local one.
fn extend(found: &mut ChainMatch, run: &Located, nodes: &mut Vec<NodeName>) {
    let mut numbers: HashMap<u16, u16> = HashMap::new();
    for index in 0..run.len() {
        let Some(best) = run.holders(index).first() else { return };
        let node =
            *numbers.entry(best.node).or_insert_with(|| number_of(&run.nodes()[usize::from(best.node)].name, nodes));
        found.places.push(Place { node, tier: best.tier });
    }
}

fn number_of(name: &NodeName, nodes: &mut Vec<NodeName>) -> u16 {
    let known = nodes.iter().position(|node| node == name);
    known.unwrap_or_else(|| {
        nodes.push(name.clone());
        nodes.len() - 1
    }) as u16
}
