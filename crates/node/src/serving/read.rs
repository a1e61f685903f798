//! Getting blocks out: get, view, and what readers report.

use super::{Answer, SEND_BUDGET, Serving};
use crate::counters::Counters;
use crate::leases::NodeLeases;
use crate::process::{add, add_at_most};
use rustix::fd::AsFd as _;
use std::time::{Duration, Instant};
use tidepool_store::{Hold, Holdings, Reading};
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::tcp::serve::{BlockSource, HeldBlock, serve_get};
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, UsedFor};
use tidepool_wire::message::{Get, GetItem, Ids, Reason, Reply, Run, SlotName, Touch, ViewOutcome};

/// The most hits, or races, that a report is believed: clients report many times a second.
const MOST_HITS: u64 = 1 << 30;
/// The most bytes: more than any memory moves between two reports.
const MOST_BYTES: u64 = 1 << 40;

/// What the node holds, as the sending side sees it.
struct Source<'a> {
    holdings: &'a Holdings,
    counters: &'a Counters,
    reader: ClientId,
    leases: &'a NodeLeases,
    lease: Option<Duration>,
}

/// A block that is being sent.
struct Sending(Hold);

impl BlockSource for Source<'_> {
    type Held = Sending;

    fn hold(&self, id: &BlockId, copy: Option<CopyName>) -> Option<Sending> {
        in_memory(self.holdings.read(id, copy)).map(Sending)
    }

    fn hold_all(&self, items: &[GetItem], uses: &mut dyn Iterator<Item = Option<UsedFor>>) -> Vec<Option<Sending>> {
        let wanted: Vec<_> = items.iter().map(|item| (item.id, item.copy)).collect();
        let held = |reading| {
            let used = uses.next().flatten();
            in_memory(reading).map(|hold| hold.used_for(used))
        };
        let held: Vec<Option<Hold>> = self.holdings.read_all(&wanted).into_iter().map(held).collect();
        // A read that names its copy continues one that has been counted and noted.
        let first = || held.iter().zip(items).filter_map(|(hold, item)| hold.as_ref().filter(|_| item.copy.is_none()));
        add(&self.counters.foreign_hits, first().filter(|hold| hold.writer() != self.reader).count() as u64);
        if let Some(lease) = self.lease {
            self.leases.note(first().map(Hold::id), lease);
        }
        held.into_iter().map(|hold| hold.map(Sending)).collect()
    }

    fn let_go(&self, held: Vec<Sending>) {
        self.holdings.memory().let_go(held.into_iter().map(|Sending(hold)| hold).collect());
    }

    fn damaged(&self, id: &BlockId, copy: CopyName) {
        self.holdings.memory().verify(id, copy);
    }
}

/// Bytes are sent from memory: a block that is not there is a miss for its reader.
fn in_memory(reading: Reading) -> Option<Hold> {
    match reading {
        Reading::Here(hold) => Some(hold),
        Reading::Slower(_) | Reading::BeingWritten | Reading::Throttled | Reading::Miss => None,
    }
}

// SAFETY: the hold keeps the block's run its own until it is dropped, and nobody writes to a sealed block.
unsafe impl HeldBlock for Sending {
    fn bytes(&self) -> (*const u8, u64) {
        let bytes = self.0.bytes();
        (bytes.as_ptr(), bytes.len() as u64)
    }

    fn checksums(&self) -> &[u32] {
        self.0.checksums()
    }

    fn copy(&self) -> CopyName {
        self.0.copy()
    }

    fn writer(&self) -> ClientId {
        self.0.writer()
    }
}

impl Serving<'_> {
    pub(super) fn get(&mut self, number: u64, get: &Get) -> Result<Answer, ConnError> {
        let started = Instant::now();
        let counters = &self.shared.counters;
        let space = self.writes.space();
        let (holdings, leases) = (space.holdings(), &space.leases);
        let source = Source { holdings, counters, reader: self.writes.client, leases, lease: self.lease };
        // A reader that stopped waiting must not keep blocks held.
        let budget = Duration::from_millis(get.wait_millis.into()).min(SEND_BUDGET);
        let served = serve_get(&mut self.connection, number, get, &source, Deadline::after(budget))?;
        add(&counters.tcp_hits, served.hits);
        add(&counters.misses_absent, served.misses);
        add(&counters.misses_damaged, served.damaged);
        add(&counters.tcp_bytes_out, served.bytes);
        counters.get_latency.observe(started.elapsed());
        Ok(Answer::None)
    }

    pub(super) fn view(&self, asked: &Ids) -> Answer {
        let Some(process) = &self.writes.process else {
            let message = "views need a Unix socket and a process that the node can watch";
            return Answer::Refuse(Reason::NotHere, message.to_owned());
        };
        let limit = self.space().limits().view_bytes;
        let mut uses = Run::uses(&asked.runs);
        let one = |id: &BlockId| {
            let used = uses.next().flatten();
            let Some(hold) = self.space().memory().hold(id, None) else { return ViewOutcome::Miss };
            let hold = hold.used_for(used);
            let (offset, len) = (hold.offset(), hold.bytes().len() as u64);
            match process.add_view(hold, limit) {
                Ok(slot) => ViewOutcome::Pinned { slot, offset, len },
                Err(_hold) => {
                    add(&self.shared.counters.views_refused, 1);
                    ViewOutcome::OverLimit
                }
            }
        };
        let outcomes: Vec<ViewOutcome> = asked.ids.iter().map(one).collect();
        let held = outcomes.iter().zip(&asked.ids).filter(|(outcome, _)| **outcome != ViewOutcome::Miss);
        self.note_lease(held.map(|(_, id)| *id));
        Answer::Reply(Reply::Views(outcomes))
    }

    /// Leases blocks that this connection has been told of, if it wants that.
    pub(super) fn note_lease(&self, ids: impl IntoIterator<Item = BlockId>) {
        if let Some(lease) = self.lease {
            self.space().leases.note(ids, lease);
        }
    }

    /// Hands out a ring for the leases of what the client reads through shared memory.
    pub(super) fn open_ring(&mut self, number: u64) -> Result<Answer, ConnError> {
        let opened = if self.memory { self.space().leases.open_ring() } else { Ok(None) };
        match opened {
            Ok(Some((ring, descriptor))) => {
                self.ring = Some(ring);
                let until = Deadline::after(SEND_BUDGET);
                self.connection.send_reply(number, &Reply::Ring, &[], &[descriptor.as_fd()], until)?;
                Ok(Answer::None)
            }
            Ok(None) => Ok(Answer::Refuse(Reason::NotHere, "no ring for leases is to be had here".to_owned())),
            Err(error) => Ok(Answer::Refuse(Reason::Overloaded, format!("a ring for leases: {error}"))),
        }
    }

    /// Lets go of views whose reply the client ended its connection without reading: it cannot, not knowing of them.
    pub(super) fn take_back_unread(&self, end: &ConnError) {
        if !self.named.is_empty() && self.connection.socket().was_left_unread(end) {
            self.let_go(&self.named);
        }
    }

    pub(super) fn let_go(&self, slots: &[SlotName]) {
        if let Some(process) = &self.writes.process {
            slots.iter().for_each(|slot| process.drop_view(*slot));
        }
    }

    /// Answers a put's question whether blocks are held. A yes answers that put, so the catalogs must know of it.
    pub(super) fn confirm(&self, asked: &Ids) -> Answer {
        let found = self.space().memory().confirm_for(&asked.ids, &asked.runs);
        if found.iter().any(Option::is_some) {
            self.shared.announce_all();
        }
        Answer::Reply(Reply::Found(found.into()))
    }

    pub(super) fn unview(&self, slots: &[SlotName]) -> Answer {
        self.let_go(slots);
        Answer::None
    }

    pub(super) fn touch(&self, touch: &Touch) -> Answer {
        // Any client may ask for blocks by id, which counts as a use of them: so it may say that it used them. The ids come
        // behind the slots, and the last one counts as used first.
        let mut slots_runs = touch.runs.clone();
        let ids_runs = Run::split_off(&mut slots_runs, touch.slots.len());
        self.space().memory().confirm_for(&touch.ids, &ids_runs);
        // Whoever does not have the memory mapped has read nothing in it.
        if self.memory {
            self.space().memory().touch(&touch.slots, &slots_runs);
            let counters = &self.shared.counters;
            let hits = touch.hits.min(MOST_HITS);
            add_at_most(&counters.shm_hits, hits);
            add_at_most(&counters.foreign_hits, touch.foreign_hits.min(hits));
            add_at_most(&counters.shm_bytes, touch.bytes.min(MOST_BYTES));
            add_at_most(&counters.misses_race, touch.lost_races.min(MOST_HITS));
        }
        Answer::None
    }

    pub(super) fn verify(&self, copies: &[(BlockId, CopyName)]) -> Answer {
        for (id, copy) in copies {
            add(&self.shared.counters.corrupt_reports, 1);
            self.space().memory().verify(id, *copy);
        }
        Answer::None
    }
}

/// The views that a reply names.
pub(super) fn pinned(reply: &Reply) -> Vec<SlotName> {
    let Reply::Views(views) = reply else { return Vec::new() };
    let slot = |view: &ViewOutcome| match view {
        ViewOutcome::Pinned { slot, .. } => Some(*slot),
        ViewOutcome::OverLimit | ViewOutcome::Miss => None,
    };
    views.iter().filter_map(slot).collect()
}
