//! Writing blocks to one node: reserve, bytes, seal. A whole batch takes one round trip each for the first and the last.
//!
//! A node in this process is asked without a round trip, so a large batch goes there in two: while copy threads copy its head,
//! room is made for the rest, and of that parts are sealed, from the last on, while others are still copied.

use super::carriers::{Carrier, mapped};
use super::exchange::{Exchange, To};
use super::reserved::{Reserved, part_len, unfinished};
use super::{Elsewhere, Job};
use crate::core::Core;
use crate::counters::add;
use crate::error::PutError;
use crate::peers::{MappedNode, Peer};
use std::sync::Arc;
use tidepool_transfer::conn::ConnError;
use tidepool_types::Deadline;
use tidepool_wire::message::{
    BATCH_KEYS, Pin, Reply, Request, Reserve, ReserveAs, ReserveItem, ReserveOutcome, Run, Seal, SealItem, SealOutcome,
    SlotName, Terms,
};

/// The most bytes that one reservation asks for at once, so that a large batch does not wait for its own blocks.
const RUN_BYTES: u64 = 256 << 20;
/// The head of a batch for a node in this process is one of so many parts of it, and the fewest bytes that are cut.
const HEAD: usize = 4;
const CUT_BYTES: u64 = 4 << 20;

/// Tries to store `jobs` on a node. Those that it takes have it as a holder afterwards; the others know why not. Unless it
/// has been found out before, `elsewhere` is while the node makes room (before that, where it is in this process), and what is
/// held elsewhere is not written.
pub(super) fn on_node(
    core: &Core,
    peer: &Arc<Peer>,
    jobs: Vec<&mut Job<'_>>,
    elsewhere: &mut Elsewhere<'_>,
    deadline: Deadline,
) {
    let mut left = jobs;
    while !left.is_empty() {
        let rest = left.split_off(run_length(&left));
        if on_node_run(core, peer, left, elsewhere, deadline).is_err() {
            return;
        }
        left = rest;
    }
}

/// Whether `jobs` go to a node together.
pub(super) fn is_one_run(jobs: &[&mut Job<'_>]) -> bool {
    run_length(jobs) == jobs.len()
}

/// How many of the first jobs go together.
fn run_length(jobs: &[&mut Job<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&&mut Job<'_>| {
        bytes += job.len;
        bytes <= RUN_BYTES
    };
    jobs.iter().take(BATCH_KEYS).take_while(fits).count().max(1)
}

fn on_node_run(
    core: &Core,
    peer: &Arc<Peer>,
    jobs: Vec<&mut Job<'_>>,
    elsewhere: &mut Elsewhere<'_>,
    deadline: Deadline,
) -> Result<(), ConnError> {
    let memory = peer.memory().filter(|memory| memory.mapping.is_writable());
    let _unwinding = Unwinding(peer);
    let writer = |to| Writer { core, peer, memory, exchange: Exchange::new(peer, to, deadline), deadline };
    let (jobs, mapped) = match peer.desk() {
        // What it leaves when it fails is not written to any more, and it is told so as a connection's node is.
        Some(desk) => {
            let left = writer(To::Desk(desk)).store_here(jobs, elsewhere);
            (left.inspect_err(|_| peer.abandon())?, false)
        }
        None => (jobs, memory.is_some()),
    };
    if jobs.is_empty() {
        return Ok(());
    }
    let mut connection = peer.connection(deadline)?;
    let stored = writer(To::Socket(connection.get())).store_all(jobs, mapped, elsewhere);
    match &stored {
        Ok(()) => connection.give_back(),
        // What the connection leaves behind is not written to any more. A node whose memory is mapped must hear that: it
        // cannot tell, and would keep the space for as long as this process lives.
        Err(_) if memory.is_some() => {
            drop(connection);
            peer.abandon();
        }
        Err(_) => {}
    }
    stored
}

/// What a panic leaves behind is not written to any more, either.
struct Unwinding<'a>(&'a Peer);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}

/// What is wanted for jobs of one batch beyond their being stored.
fn terms_of(jobs: &[&mut Job<'_>]) -> Terms {
    let Some(first) = jobs.first() else { return Terms::default() };
    let is_grouped = jobs.iter().any(|job| job.group.is_some());
    let groups = if is_grouped { jobs.iter().map(|job| job.group).collect() } else { Vec::new() };
    Terms { version: first.version, pin: first.pin, groups }
}

/// How long a node may wait for something, so that its answer still comes before the deadline.
pub(crate) fn node_wait(deadline: Deadline) -> u32 {
    deadline.remaining_millis() / 10 * 9
}

/// A batch on its way to one node.
pub(super) struct Writer<'a> {
    pub(super) core: &'a Core,
    pub(super) peer: &'a Peer,
    pub(super) memory: Option<&'a Arc<MappedNode>>,
    pub(super) exchange: Exchange<'a>,
    pub(super) deadline: Deadline,
}

/// Blocks of a batch for which no space was taken, though they want to be stored.
#[derive(Default)]
struct Left<'j, 'a> {
    /// Blocks that found no space.
    full: Vec<&'j mut Job<'a>>,
    /// Blocks whose bytes must go through the socket, because this process has too much in quarantine.
    unmapped: Vec<&'j mut Job<'a>>,
}

impl Writer<'_> {
    /// Stores as much of `jobs` as the node takes, through its memory if they are `mapped` and it can be.
    fn store_all(
        &mut self,
        jobs: Vec<&mut Job<'_>>,
        mapped: bool,
        elsewhere: &mut Elsewhere<'_>,
    ) -> Result<(), ConnError> {
        let unmapped = self.store(jobs, mapped, elsewhere)?;
        self.store(unmapped, false, elsewhere)?;
        Ok(())
    }

    /// As [`Writer::store`], on a node in this process, with the catalogs told at the end.
    fn store_here<'j, 'a>(
        &mut self,
        mut jobs: Vec<&'j mut Job<'a>>,
        elsewhere: &mut Elsewhere<'_>,
    ) -> Result<Vec<&'j mut Job<'a>>, ConnError> {
        elsewhere.look(&mut jobs);
        jobs.retain(|job| job.is_ours());
        let left = self.store(jobs, true, elsewhere);
        self.exchange.announce();
        left
    }

    /// Stores as much of `jobs` as the node takes one way. Those that must go through the socket instead are given back.
    fn store<'j, 'a>(
        &mut self,
        jobs: Vec<&'j mut Job<'a>>,
        mapped: bool,
        elsewhere: &mut Elsewhere<'_>,
    ) -> Result<Vec<&'j mut Job<'a>>, ConnError> {
        let (mut left, mut for_socket) = (jobs, Vec::new());
        if !mapped {
            left.retain_mut(Job::is_addressable);
        }
        let is_copied = |job: &&&mut Job<'_>| mapped && job.item.data.on_device().is_none();
        let _awake = self.core.copies().stay_awake(left.iter().filter(is_copied).map(|job| job.len).sum());
        while !left.is_empty() {
            let (rest, mut turned_away) = (self.cut(&mut left), Left::default());
            let mut head = self.reserve(left, mapped, node_wait(self.deadline), elsewhere, &mut turned_away)?;
            let mut progress = !head.is_empty();
            if progress && self.fits_a_fill(&head, mapped) {
                self.fill(head)?;
            } else if progress || !rest.is_empty() {
                let (mut to_reserve, mut reserved) = (Some(rest), Ok(Vec::new()));
                // In order: of what a deadline cuts short, the front is to be there.
                let whole = head.len().max(1);
                self.write(&mut head, whole, mapped, |this, _| {
                    if let Some(rest) = to_reserve.take().filter(|rest| !rest.is_empty()) {
                        // More room is not waited for: what is in the way may be what is being copied.
                        reserved = this.reserve(rest, mapped, 0, elsewhere, &mut turned_away);
                    }
                })?;
                let rest = reserved?;
                progress |= !rest.is_empty();
                self.write_and_seal(head, rest, mapped)?;
            }
            for_socket.extend(turned_away.unmapped);
            // A batch may be in its own way: what it has sealed can be evicted from now on.
            left = if progress { turned_away.full } else { Vec::new() };
        }
        Ok(for_socket)
    }

    /// Cuts a batch that goes in two behind its head; the rest is given back.
    fn cut<'j, 'a>(&self, jobs: &mut Vec<&'j mut Job<'a>>) -> Vec<&'j mut Job<'a>> {
        let bytes = jobs.iter().map(|job| job.len).sum::<u64>();
        // One that takes much of the node would be in its own way, and a device has flights of its own.
        let has_room = self.memory.is_some_and(|memory| bytes <= memory.mapping.slab_bytes() / 4);
        let on_host = |job: &&mut Job<'_>| job.item.data.on_device().is_none();
        let is_cut = bytes >= CUT_BYTES && self.exchange.is_desk() && has_room && jobs.iter().all(on_host);
        if is_cut { jobs.split_off(jobs.len().div_ceil(HEAD)) } else { Vec::new() }
    }

    /// Writes what is left of a batch whose head is written, and seals all of it. From the last part to the first, as within a
    /// part: of a prefix, what is behind is to be evicted before what it needs.
    fn write_and_seal<'j, 'a>(
        &mut self,
        mut head: Vec<Reserved<'j, 'a>>,
        mut rest: Vec<Reserved<'j, 'a>>,
        mapped: bool,
    ) -> Result<(), ConnError> {
        let (part, mut sealed) = (part_len(rest.len()), Ok(()));
        if !rest.is_empty() {
            self.write(&mut rest, part, mapped, |this, rest| {
                let unfinished = unfinished(rest, part);
                // What is over last waits for the head.
                if unfinished > 0 && unfinished < rest.len() && sealed.is_ok() {
                    sealed = this.seal(rest.split_off(unfinished), mapped);
                }
            })?;
        }
        sealed?;
        head.append(&mut rest);
        self.seal(head, mapped)
    }

    /// Takes space for `jobs`, if need be after waiting for it for some time, and notes what there is none for.
    fn reserve<'j, 'a>(
        &mut self,
        mut jobs: Vec<&'j mut Job<'a>>,
        mapped: bool,
        wait_millis: u32,
        elsewhere: &mut Elsewhere<'_>,
        turned_away: &mut Left<'j, 'a>,
    ) -> Result<Vec<Reserved<'j, 'a>>, ConnError> {
        let item = |job: &&mut Job<'_>| ReserveItem { key: job.item.key.to_vec(), len: job.len };
        let items = jobs.iter().map(item).collect();
        let runs = Run::of_uses(jobs.iter().map(|job| job.used));
        let reserve = Reserve { wait_millis, mapped, items, runs };
        let terms = terms_of(&jobs);
        let request = match terms == Terms::default() {
            true => Request::Reserve(reserve),
            false => Request::ReserveAs(ReserveAs { terms, reserve }),
        };
        self.exchange.await_written()?;
        let asked = self.exchange.ask(&request, &[])?;
        elsewhere.look(&mut jobs);
        let answer = self.exchange.answer(asked)?;
        let Reply::Reserved(outcomes) = answer else { return Err(self.exchange.confused()) };
        let (mut reserved, mut unwanted) = (Vec::with_capacity(jobs.len()), Vec::new());
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            match outcome {
                // Somebody else holds it: what is lacking is copied from there, and this space given back.
                ReserveOutcome::Taken { slot, .. } if !job.is_ours() => unwanted.push(slot),
                ReserveOutcome::Taken { slot, offset } => {
                    reserved.push(Reserved { job, slot, offset, checksums: None, is_over: false });
                }
                ReserveOutcome::Held(_) => job.note_holder(&self.peer.key),
                _ if !job.is_ours() => {}
                ReserveOutcome::Declined => job.declined = true,
                ReserveOutcome::UseSocket => turned_away.unmapped.push(job),
                ReserveOutcome::NoSpace => {
                    // What is to be pinned is also refused because too much is.
                    if job.pin != Pin::Hard {
                        self.peer.fullness.set();
                    }
                    // What a device could not give to another node may still go there through the host's memory.
                    if job.failure != Some(PutError::NotFromDevice) {
                        job.failure = Some(PutError::NoSpace);
                    }
                    turned_away.full.push(job);
                }
                ReserveOutcome::TooLarge => {
                    let largest = self.core.peers.table().largest();
                    job.failure.get_or_insert(PutError::TooLarge { len: job.len, largest });
                }
            }
        }
        if !unwanted.is_empty() {
            self.exchange.call(&Request::Abort(unwanted))?;
        }
        Ok(reserved)
    }

    /// Brings the bytes to where the reservations are, the last part first. `beside` is called at least once, at the end; while
    /// copy threads copy also at the beginning and as more is in place.
    fn write<'j, 'a>(
        &mut self,
        reserved: &mut Vec<Reserved<'j, 'a>>,
        part: usize,
        mapped: bool,
        mut beside: impl FnMut(&mut Self, &mut Vec<Reserved<'j, 'a>>),
    ) -> Result<(), ConnError> {
        match Carrier::of(self, reserved, mapped) {
            Carrier::Mapped(memory) => {
                mapped::write(self, memory, reserved, part, beside);
                return Ok(());
            }
            Carrier::Device(memory) => self.write_from_device(memory, reserved),
            Carrier::Frames => self.write_frames(reserved)?,
            Carrier::Streams => self.write_over_streams(reserved, part)?,
        }
        beside(self, reserved);
        Ok(())
    }

    /// Makes visible what has been written and gives back what has not.
    fn seal(&mut self, mut reserved: Vec<Reserved<'_, '_>>, mapped: bool) -> Result<(), ConnError> {
        let unwritten: Vec<SlotName> =
            reserved.iter().filter(|reserved| reserved.checksums.is_none()).map(|reserved| reserved.slot).collect();
        if !unwritten.is_empty() {
            self.exchange.call(&Request::Abort(unwritten))?;
            reserved.retain(|reserved| reserved.checksums.is_some());
        }
        let item = |reserved: &mut Reserved<'_, '_>| {
            Some(SealItem { slot: reserved.slot, checksums: reserved.checksums.take()? })
        };
        let items: Vec<SealItem> = reserved.iter_mut().filter_map(item).collect();
        if items.is_empty() {
            return Ok(());
        }
        let request = Request::Seal(Seal { wait_millis: node_wait(self.deadline), items });
        let Reply::Sealed(outcomes) = self.exchange.call(&request)? else { return Err(self.exchange.confused()) };
        self.note_sealed(reserved, outcomes, mapped);
        Ok(())
    }

    pub(super) fn note_sealed(&self, reserved: Vec<Reserved<'_, '_>>, outcomes: Vec<SealOutcome>, mapped: bool) {
        let (mut blocks, mut bytes) = (0, 0);
        for (reserved, outcome) in reserved.into_iter().zip(outcomes) {
            match outcome {
                SealOutcome::Sealed(_) => {
                    reserved.job.note_holder(&self.peer.key);
                    reserved.job.moved = true;
                    blocks += 1;
                    bytes += reserved.job.len;
                }
                SealOutcome::Held(_) => reserved.job.note_holder(&self.peer.key),
                SealOutcome::Unknown | SealOutcome::Corrupt => {}
            }
        }
        let counters = &self.core.counters;
        let (puts, written) = match mapped {
            true => (&counters.puts_shm, &counters.bytes_written_shm),
            false => (&counters.puts_socket, &counters.bytes_written_socket),
        };
        add(puts, blocks);
        add(written, bytes);
    }
}
