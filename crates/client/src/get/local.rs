//! Reads through the memory of this host's nodes: look up, copy, check. No round trip, no lock while bytes are copied.

use super::read::{Read, Verdict, read_of};
use crate::core::Core;
use crate::counters::add;
use crate::peers::{MappedNode, Peer, Table};
use tidepool_transfer::ops::Op;
use tidepool_transfer::transport::Transport as _;
use tidepool_types::Deadline;
use tidepool_wire::message::Run;

/// Reads what this host's nodes hold. What is still wanted afterwards, none of them does.
pub(super) fn read(core: &Core, table: &Table, reads: &mut [Read], deadline: Deadline) {
    for (peer, memory) in table.locals.iter().filter_map(|peer| Some((peer, peer.memory()?))) {
        if !read_from(core, (peer, memory), reads, deadline, |_, read| read.is_wanted()) {
            return;
        }
    }
}

/// Reads those of `reads` that `which` picks from one node. False when nothing was wanted in the first place.
pub(super) fn read_from(
    core: &Core,
    node: (&Peer, &MappedNode),
    reads: &mut [Read],
    deadline: Deadline,
    which: impl Fn(usize, &Read) -> bool,
) -> bool {
    let picked = reads.iter().enumerate().filter(|(index, read)| which(*index, read));
    let mut ops: Vec<Op> = picked.map(|(index, read)| Op::Read(read.op(index))).collect();
    if ops.is_empty() {
        return false;
    }
    let lost = attempt(core, node, reads, &mut ops, deadline);
    if !lost.is_empty() {
        // The slot was reused under the copy. The block may have moved, or be gone: one more look tells.
        ops.extend(lost.into_iter().map(|index| Op::Read(reads[index].op(index))));
        attempt(core, node, reads, &mut ops, deadline);
    }
    true
}

/// One attempt at `ops`. Returns the reads that lost a race against reuse of their slots.
fn attempt(
    core: &Core,
    (peer, memory): (&Peer, &MappedNode),
    reads: &mut [Read],
    ops: &mut Vec<Op>,
    deadline: Deadline,
) -> Vec<usize> {
    let mut transport = core.shm(&memory.mapping);
    let mut done = Vec::with_capacity(ops.len());
    transport.submit(std::mem::take(ops), deadline);
    transport.poll(&mut done, deadline);
    let (mut lost, mut corrupt) = (Vec::new(), Vec::new());
    let (mut hits, mut foreign, mut bytes) = (0, 0, 0);
    let (lease, mut leased) = (core.lease(), Vec::new());
    memory.touch(&core.counters, |touch| {
        for completion in done {
            let Some(read) = read_of(reads, &completion) else { continue };
            let (id, used, index) = (read.id, read.used.as_deref().copied(), completion.token as usize);
            match read.settle(completion.outcome) {
                Verdict::Hit(hit) => {
                    hits += 1;
                    bytes += hit.bytes;
                    foreign += u64::from(hit.writer != core.id);
                    if let Some(slot) = hit.slot {
                        Run::note(&mut touch.runs, touch.slots.len(), used);
                        touch.slots.push(slot);
                    }
                    leased.extend(lease.map(|_| id));
                }
                Verdict::LostRace => lost.push(index),
                Verdict::Corrupt(copy) => corrupt.push((id, copy)),
                Verdict::Other => {}
            }
        }
        touch.hits += hits;
        touch.foreign_hits += foreign;
        touch.bytes += bytes;
        touch.lost_races += lost.len() as u64;
    });
    if let Some(lease) = lease.filter(|_| !leased.is_empty()) {
        peer.lease(&leased, lease);
    }
    let counters = &core.counters;
    add(&counters.hits_shm, hits);
    add(&counters.foreign_hits, foreign);
    add(&counters.bytes_read_shm, bytes);
    if !lost.is_empty() || !corrupt.is_empty() {
        add(&counters.lost_races, lost.len() as u64);
        add(&counters.corrupt_copies, corrupt.len() as u64);
        corrupt.into_iter().for_each(|(id, copy)| memory.doubt(id, copy));
    }
    lost
}
