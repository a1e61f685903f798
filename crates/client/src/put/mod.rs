//! Putting blocks: is it held already, where to, bytes in, seal, replicas.
//!
//! One loop does it all. Candidates are tried from best to worst; each takes the blocks that still lack copies. A block
//! that has no copy yet, or whose bytes this call has written, is written again from the caller's memory; one that was held
//! before is copied by its new holder from an old one, since the caller's bytes need not be the ones that are held.

mod candidates;
mod carriers;
mod exchange;
mod held;
mod reserved;
mod store;

pub(crate) use store::node_wait;

use crate::buffers::Parts;
use crate::client::Client;
use crate::copies::pull;
use crate::core::Core;
use crate::counters::add;
use crate::error::PutError;
use crate::peers::{NodeKey, Peer};
use std::collections::HashMap;
use std::sync::Arc;
use tidepool_types::{BlockId, Deadline, InvalidInput, NodeName, UsedFor, Version, check_block_len};
use tidepool_wire::message::{BATCH_KEYS, Pin, PullOutcome};

/// A block to be stored.
#[derive(Debug, Clone)]
pub struct PutItem<'a> {
    /// The block's key.
    pub key: &'a [u8],
    /// Its bytes.
    pub data: Parts<'a>,
    /// Blocks before this one in its prefix, for [`Client::used_for`].
    pub depth: u32,
}

impl<'a> PutItem<'a> {
    /// A block of `data` under `key`.
    pub fn new(key: &'a (impl AsRef<[u8]> + ?Sized), data: impl Into<Parts<'a>>) -> Self {
        Self { key: key.as_ref(), data: data.into(), depth: 0 }
    }

    /// The same block, behind so many others of its prefix.
    #[must_use]
    pub fn at_depth(self, depth: u32) -> Self {
        Self { depth, ..self }
    }
}

/// What a put may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// Copies wanted, on distinct nodes. As many as can be had before the deadline; one is a success.
    pub replicas: u32,
    /// The nodes to try first, in this order.
    pub prefer: Vec<NodeName>,
    /// What keeps the blocks from being evicted, where they are put by this call.
    pub pin: Pin,
    /// The group of each block, or nothing at all: blocks of a group are leased together and, on one node, evicted together.
    pub groups: Vec<String>,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { replicas: 1, prefer: Vec::new(), pin: Pin::None, groups: Vec::new() }
    }
}

/// A block that the pool holds, or has held for no time at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Nodes known to hold it. None when a full node declined it, which is as if it had been evicted at once.
    pub replicas: u32,
    /// Whether this call moved its bytes; false when it was held already.
    pub moved: bool,
}

impl Client {
    /// Stores a block. If a live node holds its key already that is a success, and nothing moves.
    pub fn put<'a>(
        &self,
        key: impl AsRef<[u8]>,
        data: impl Into<Parts<'a>>,
        options: &PutOptions,
    ) -> Result<Stored, PutError> {
        let item = PutItem { key: key.as_ref(), data: data.into(), depth: 0 };
        let mut results = self.put_batch(std::slice::from_ref(&item), options);
        results.pop().unwrap_or(Err(PutError::NoNode))
    }

    /// Stores many blocks, each with its own result, in the order of `items`. Of several under one key only the first is put;
    /// the others are held if that one is.
    pub fn put_batch(&self, items: &[PutItem<'_>], options: &PutOptions) -> Vec<Result<Stored, PutError>> {
        let (core, deadline) = (self.core(), self.deadline());
        let mut jobs = jobs_of(core, items, options);
        for (job, item) in jobs.iter_mut().zip(items) {
            job.used = self.use_at(item.depth);
        }
        let again = take_out_repeated(&mut jobs);
        held::find_here(core, &mut jobs, deadline);
        store_all(core, &mut jobs, &options.prefer, deadline);
        for (at, first) in again {
            let Job { holders, declined, failure, .. } = &jobs[first];
            let (holders, declined, failure) = (holders.clone(), *declined, failure.clone());
            jobs[at] = Job { holders, declined, failure, ..jobs[at] };
        }
        jobs.into_iter().map(|job| job.result(core, deadline)).collect()
    }
}

/// One block on its way in.
pub(crate) struct Job<'a> {
    item: &'a PutItem<'a>,
    pub(crate) id: BlockId,
    len: u64,
    /// Copies wanted.
    pub(crate) wanted: usize,
    /// Its version, if it is to take the place of older ones.
    pub(crate) version: Option<Version>,
    pin: Pin,
    group: Option<BlockId>,
    /// What is known of the use that the put is.
    used: Option<UsedFor>,
    /// Nodes that hold it.
    holders: Vec<NodeKey>,
    /// Whether this call has moved its bytes.
    moved: bool,
    /// Whether a full node would rather keep what it has: nobody else is asked.
    declined: bool,
    /// Why it is not stored.
    pub(crate) failure: Option<PutError>,
}

/// A batch on its way in.
pub(crate) fn jobs_of<'a>(core: &Core, items: &'a [PutItem<'a>], options: &PutOptions) -> Vec<Job<'a>> {
    let keys: Vec<&[u8]> = items.iter().map(|item| item.key).collect();
    let ids = core.id_of_each(&keys);
    let mut jobs: Vec<Job<'_>> = items.iter().zip(ids).map(|(item, id)| Job::new(item, id, options)).collect();
    for (job, group) in jobs.iter_mut().zip(&options.groups) {
        // What cannot be a name is no group.
        job.group = core.id_of(group.as_bytes()).ok();
    }
    jobs
}

/// Has nothing done for jobs whose block is that of an earlier one; their places, each with that of the first.
fn take_out_repeated(jobs: &mut [Job<'_>]) -> Vec<(usize, usize)> {
    let mut sorted: Vec<BlockId> = jobs.iter().map(|job| job.id).collect();
    sorted.sort_unstable();
    if sorted.windows(2).all(|pair| pair[0] != pair[1]) {
        return Vec::new();
    }
    let mut firsts = HashMap::new();
    let mut again = Vec::new();
    for (at, job) in jobs.iter_mut().enumerate().filter(|(_, job)| job.failure.is_none()) {
        let first = *firsts.entry(job.id).or_insert(at);
        if first != at {
            job.wanted = 0;
            again.push((at, first));
        }
    }
    again
}

impl<'a> Job<'a> {
    fn new(item: &'a PutItem<'a>, id: Result<BlockId, InvalidInput>, options: &PutOptions) -> Self {
        let len = item.data.total();
        let checked = check_block_len(len).and(id);
        let (id, wanted, failure) = match checked {
            Ok(id) => (id, options.replicas.max(1) as usize, None),
            Err(error) => (BlockId::from_bytes([0; BlockId::LEN]), 0, Some(error.into())),
        };
        let (pin, holders, moved, declined) = (options.pin, Vec::new(), false, false);
        Self { item, id, len, wanted, version: None, pin, group: None, used: None, holders, moved, declined, failure }
    }

    fn lacks_copies(&self) -> bool {
        !self.declined && self.holders.len() < self.wanted
    }

    fn note_holder(&mut self, node: &NodeKey) {
        if !self.holders.contains(node) {
            self.holders.push(node.clone());
        }
    }

    /// Whether the caller's bytes are to be written: not once somebody else's are held, and from a device once only.
    fn is_ours(&self) -> bool {
        self.holders.is_empty() || (self.moved && self.item.data.on_device().is_none())
    }

    /// Whether this process can address the bytes; if not, the job knows that it cannot be stored this way, whatever other
    /// nodes have said: this one would take it from the host's memory.
    fn is_addressable(job: &mut &mut Self) -> bool {
        let is_addressable = job.item.data.on_device().is_none();
        if !is_addressable {
            job.failure = Some(PutError::NotFromDevice);
        }
        is_addressable
    }

    pub(crate) fn result(self, core: &Core, deadline: Deadline) -> Result<Stored, PutError> {
        if self.declined && self.holders.is_empty() {
            add(&core.counters.puts_declined, 1);
            return Ok(Stored { replicas: 0, moved: false });
        }
        if self.holders.is_empty() {
            // Whoever reads a device puts it again, from the host's memory, and only that put says whether it is stored.
            if self.failure != Some(PutError::NotFromDevice) {
                add(&core.counters.puts_failed, 1);
            }
            let out_of_time = || if deadline.has_passed() { PutError::Timeout } else { PutError::NoNode };
            return Err(self.failure.unwrap_or_else(out_of_time));
        }
        if !self.moved {
            add(&core.counters.puts_held, 1);
        }
        Ok(Stored { replicas: self.holders.len() as u32, moved: self.moved })
    }
}

/// Finds a place for every block that lacks copies.
pub(crate) fn store_all(core: &Core, jobs: &mut [Job<'_>], prefer: &[NodeName], deadline: Deadline) {
    let mut open: Vec<&mut Job<'_>> = jobs.iter_mut().filter(|job| job.lacks_copies()).collect();
    let Some(first) = open.first() else { return };
    // The whole batch goes by one order: blocks of one prefix are read together and are best kept together.
    let (wanted, id) = (first.wanted, first.id);
    let mut candidates = candidates::find(core, prefer, wanted, id, deadline);
    // What others hold is old by now.
    let is_new_version = open.iter().any(|job| job.version.is_some());
    // The indexes have been looked into, and the node that takes the blocks says what it has itself.
    let is_known = candidates.first().is_some_and(|first| core.peers.table().is_covered_by(&first.key));
    let mut elsewhere = Elsewhere { core, deadline, looked: is_new_version || is_known };
    // A node can be asked for room before it is known who else holds the blocks, if it is asked but once.
    let mut ahead = open.iter().all(|job| job.holders.is_empty()) && store::is_one_run(&open);
    let mut asked: Vec<NodeKey> = Vec::new();
    while !candidates.is_empty() {
        for (tried, peer) in candidates.iter().enumerate() {
            if !std::mem::take(&mut ahead) {
                elsewhere.look(&mut open);
            }
            if deadline.has_passed() || !open.iter().any(|job| job.lacks_copies()) {
                return;
            }
            // Each candidate may take its share of the time that is left, the last one all of it.
            let share = deadline.capped(deadline.remaining() / (candidates.len() - tried) as u32);
            give(core, peer, &mut open, &mut elsewhere, share);
            asked.push(peer.key.clone());
        }
        // Whoever has joined since the last look around may have room.
        let is_homeless = open.iter().any(|job| job.holders.is_empty());
        candidates = match is_homeless && !deadline.has_passed() && core.look_again(deadline) {
            true => candidates::find(core, prefer, wanted, id, deadline),
            false => Vec::new(),
        };
        candidates.retain(|peer| !asked.contains(&peer.key));
    }
    // Nobody could be asked for room; they may be held all the same.
    elsewhere.look(&mut open);
}

/// Has a node take the blocks that lack copies: from the caller's memory, or from those who hold them.
fn give(core: &Core, peer: &Arc<Peer>, open: &mut [&mut Job<'_>], elsewhere: &mut Elsewhere<'_>, deadline: Deadline) {
    let needy = |job: &Job<'_>| job.lacks_copies() && !job.holders.contains(&peer.key);
    let of = |ours: bool| move |job: &&mut &mut Job<'_>| needy(job) && job.is_ours() == ours;
    let ours: Vec<_> = open.iter_mut().filter(of(true)).map(|job| &mut **job).collect();
    if !ours.is_empty() {
        store::on_node(core, peer, ours, elsewhere, deadline);
    }
    let theirs: Vec<_> = open.iter_mut().filter(of(false)).map(|job| &mut **job).collect();
    if !theirs.is_empty() {
        pull_to(core, peer, theirs, deadline);
    }
}

/// The question who else holds the blocks. It is asked once, and best while a node is already making room for them: most
/// puts are of new blocks.
struct Elsewhere<'a> {
    core: &'a Core,
    deadline: Deadline,
    looked: bool,
}

impl Elsewhere<'_> {
    fn look(&mut self, jobs: &mut [&mut Job<'_>]) {
        if !std::mem::replace(&mut self.looked, true) {
            held::find_elsewhere(self.core, jobs, self.deadline);
        }
    }
}

/// Has a node copy blocks from nodes that hold them.
fn pull_to(core: &Core, peer: &Arc<Peer>, mut jobs: Vec<&mut Job<'_>>, deadline: Deadline) {
    let table = core.peers.table();
    while let Some(source) = jobs.first().map(|job| job.holders[0].clone()) {
        let (mut group, rest): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.holders[0] == source);
        jobs = rest;
        // A holder that no catalog names has no address that another node could reach.
        let Some(member) = table.member(&source) else { continue };
        for piece in group.chunks_mut(BATCH_KEYS) {
            let from = (member.node.data_address.clone(), source.epoch);
            let keys = piece.iter().map(|job| job.item.key.to_vec()).collect();
            let Ok(outcomes) = pull(peer, from, false, keys, deadline) else { break };
            for (job, outcome) in piece.iter_mut().zip(outcomes) {
                if matches!(outcome, PullOutcome::Copied | PullOutcome::Held | PullOutcome::Joined) {
                    job.note_holder(&peer.key);
                }
            }
        }
    }
}
