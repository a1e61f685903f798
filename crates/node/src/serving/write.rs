//! Putting blocks in: reserve, write, seal, abort.

use super::{Answer, FRAME_BUDGET, Serving};
use crate::node::Shared;
use crate::process::{Charge, Process, add};
use crate::reservations::Open;
use crate::spaces::LiveSpace;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::time::Duration;
use tidepool_policy::admission::Rule;
use tidepool_store::{BlockTerms, NoRoom, Reservation, Sealed, Space, Unnamed};
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::ops::Region;
use tidepool_transfer::tcp::serve::recv_write;
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, InvalidInput, Key, UsedFor, check_block_len};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{
    Reason, Reply, Reserve, ReserveItem, ReserveOutcome, Run, Seal, SealItem, SealOutcome, SlotName, Terms, Write,
};

/// The keys and ids of a batch, if all that it asks for can be.
fn checked<'a>(space: &Space, items: &'a [ReserveItem]) -> Result<(Vec<Key<'a>>, Vec<BlockId>), InvalidInput> {
    items.iter().try_for_each(|item| check_block_len(item.len))?;
    let keys = items.iter().map(|item| Key::new(&item.key)).collect::<Result<Vec<_>, _>>()?;
    let ids = space.ids_of(&keys)?;
    Ok((keys, ids))
}

/// Space for a block, and what it counts against its process's bound.
type Room<'k> = (Unnamed<'k>, Option<Charge>);

/// One writer's reservations. Dropping it frees them, except those that its process could still be writing to.
pub(crate) struct Writes {
    pub(super) shared: Arc<Shared>,
    space: Arc<LiveSpace>,
    pub(super) client: ClientId,
    /// The writer's process, when it is on this host and can be watched.
    pub(super) process: Option<Arc<Process>>,
    /// Reservations that are still open.
    mine: FxHashSet<SlotName>,
    /// Whether the catalogs must know of something before the put is answered.
    is_news: bool,
}

impl Drop for Writes {
    fn drop(&mut self) {
        for name in std::mem::take(&mut self.mine) {
            let taken = self.space.reservations.take(name, self.client, Deadline::after(FRAME_BUDGET));
            if let (Some(open), Some(process)) = (taken, &self.process)
                && open.is_mapped()
            {
                process.quarantine(open.reservation);
            }
        }
        if let Some(process) = self.process.take() {
            self.shared.processes.disconnected(&process);
        }
    }
}

impl Writes {
    /// For `client`, whose process has been counted as connected once more.
    pub(crate) fn new(
        shared: Arc<Shared>,
        space: Arc<LiveSpace>,
        client: ClientId,
        process: Option<Arc<Process>>,
    ) -> Self {
        Self { shared, space, client, process, mine: FxHashSet::default(), is_news: false }
    }

    /// The space that it all happens in.
    pub(super) fn space(&self) -> &LiveSpace {
        &self.space
    }

    /// Waits until the catalogs know of what puts are to be answered with.
    pub(crate) fn announce(&mut self) {
        if std::mem::take(&mut self.is_news) {
            self.shared.announce_all();
        }
    }

    /// Takes space, waiting for it for as long as `is_wanted` says yes.
    pub(crate) fn reserve(&mut self, reserve: &Reserve, terms: &Terms, is_wanted: &dyn Fn() -> bool) -> Answer {
        if !terms.groups.is_empty() && terms.groups.len() != reserve.items.len() {
            return Answer::Refuse(Reason::Invalid, "groups: there is one for each block, or none at all".to_owned());
        }
        if reserve.mapped && self.process.is_none() {
            let message = "mapped writes need a Unix socket and a process that the node can watch";
            return Answer::Refuse(Reason::NotHere, message.to_owned());
        }
        let deadline = Deadline::after(Duration::from_millis(reserve.wait_millis.into()));
        let (keys, ids) = match checked(&self.space, &reserve.items) {
            Ok(checked) => checked,
            Err(error) => return Answer::Refuse(Reason::Invalid, error.to_string()),
        };
        // A version takes the place of what is held, which its seal decides.
        let held = match terms.version {
            None => self.space().memory().confirm_for(&ids, &reserve.runs),
            Some(_) => vec![None; ids.len()],
        };
        // "Held" answers the put: like any answered put it must be known to the catalogs.
        self.is_news |= held.iter().any(Option::is_some);
        // Within the time that the writer gives for this.
        if reserve.wait_millis > 0 {
            self.announce();
        }
        let (at_once, mut has_space) = (Deadline::after(Duration::ZERO), false);
        let mut uses = Run::uses(&reserve.runs);
        let one = |(index, held): (usize, Option<(CopyName, u64)>)| {
            let used = uses.next().flatten();
            if let Some((copy, _)) = held {
                return Err(ReserveOutcome::Held(copy));
            }
            // A batch waits for space only while it has none itself: what it already took may be what is in the way.
            let deadline = if has_space { at_once } else { deadline };
            let block = (keys[index], ids[index], reserve.items[index].len);
            let group = terms.groups.get(index).copied().flatten();
            let terms = BlockTerms { version: terms.version, pin: terms.pin, group };
            let space = self.space_for(block, (terms, used), reserve.mapped, (deadline, is_wanted));
            has_space |= space.is_ok();
            space
        };
        let spaces: Vec<_> = held.into_iter().enumerate().map(one).collect();
        let named = |space: Result<Room<'_>, _>| space.map(|(unnamed, charge)| (unnamed.named(), charge));
        let reservations: Vec<_> = spaces.into_iter().map(named).collect();
        let opened = |reservation: Result<_, _>| reservation.map_or_else(|outcome| outcome, |taken| self.open(taken));
        Answer::Reply(Reply::Reserved(reservations.into_iter().map(opened).collect()))
    }

    /// Takes space for a block, or says why there is none.
    fn space_for<'k>(
        &self,
        (key, id, len): (Key<'k>, BlockId, u64),
        (terms, used): (BlockTerms, Option<UsedFor>),
        mapped: bool,
        (until, is_wanted): (Deadline, &dyn Fn() -> bool),
    ) -> Result<Room<'k>, ReserveOutcome> {
        let charge = match (mapped, &self.process) {
            (false, _) => None,
            (true, Some(process)) => {
                let limit = self.space.limits().quarantine_bytes;
                // Open ones are late all at once when the process loses its sockets. A quarter of the pool is room for large
                // batches.
                let charge = process.charge(len, limit, limit.max(self.space().memory().capacity() / 4));
                Some(charge.ok_or(ReserveOutcome::UseSocket)?)
            }
            (true, None) => return Err(ReserveOutcome::UseSocket),
        };
        // Nothing is evicted for a block that is not taken.
        if self.shared.draining.is_set() {
            return Err(ReserveOutcome::NoSpace);
        }
        // What somebody wants terms for is wanted for certain.
        let is_judged = terms == BlockTerms::default() && self.shared.config.admission != Rule::All;
        if is_judged && !self.space().memory().admits(key, &id, len) {
            return Err(ReserveOutcome::Declined);
        }
        let reserved = self.space().memory().reserve(key, id, len, self.client, until, is_wanted);
        // At once: space that the terms are refused for is the next block's.
        match reserved.and_then(|unnamed| unnamed.with_terms(terms)) {
            Ok(unnamed) => Ok((unnamed.used_for(used), charge)),
            Err(NoRoom::Full) => Err(ReserveOutcome::NoSpace),
            Err(NoRoom::TooLarge) => Err(ReserveOutcome::TooLarge),
        }
    }

    /// Makes a reservation one that its writer can fill.
    fn open(&mut self, (reservation, charge): (Reservation, Option<Charge>)) -> ReserveOutcome {
        // A drain may have begun meanwhile; whoever is told of no block on its way must not find one later.
        if self.shared.draining.is_set() {
            return ReserveOutcome::NoSpace;
        }
        let offset = reservation.offset();
        let slot = self.space.reservations.add(Open::new(reservation, self.client, charge));
        self.mine.insert(slot);
        ReserveOutcome::Taken { slot, offset }
    }

    pub(crate) fn seal(&mut self, seal: &Seal) -> Answer {
        let until = Deadline::after(Duration::from_millis(seal.wait_millis.into()));
        let slots: Vec<SlotName> = seal.items.iter().map(|item| item.slot).collect();
        for slot in &slots {
            self.mine.remove(slot);
        }
        let open = self.space.reservations.take_all(&slots, self.client, until);
        self.space().memory().prefetch_index(open.iter().flatten().map(Open::id));
        // From the last to the first: of a prefix, what is behind is to be evicted before what it needs.
        let each = seal.items.iter().zip(open).rev();
        let mut outcomes: Vec<SealOutcome> = each.map(|(item, open)| self.seal_one(item, open)).collect();
        outcomes.reverse();
        // Either way the put is answered, and must be known to the catalogs.
        let is_there = |outcome: &SealOutcome| matches!(outcome, SealOutcome::Sealed(_) | SealOutcome::Held(_));
        self.is_news |= outcomes.iter().any(is_there);
        Answer::Reply(Reply::Sealed(outcomes))
    }

    fn seal_one(&self, item: &SealItem, open: Option<Open>) -> SealOutcome {
        let Some(open) = open else { return SealOutcome::Unknown };
        if !open.matches(&item.checksums) {
            add(&self.shared.counters.corrupt_writes, 1);
            return SealOutcome::Corrupt;
        }
        let mapped = if open.is_mapped() { open.reservation.len() } else { 0 };
        match open.reservation.seal(&item.checksums) {
            Ok(Sealed::New(copy)) => {
                add(&self.shared.counters.mapped_bytes_in, mapped);
                SealOutcome::Sealed(copy)
            }
            Ok(Sealed::Held(copy)) => SealOutcome::Held(copy),
            Ok(Sealed::Void) => SealOutcome::Unknown,
            Err(_) => SealOutcome::Corrupt,
        }
    }

    pub(crate) fn abort(&mut self, slots: &[SlotName]) -> Answer {
        for slot in slots {
            self.mine.remove(slot);
            // Dropped here: a client that aborts says that it no longer writes.
            let _ = self.space.reservations.take(*slot, self.client, Deadline::after(Duration::ZERO));
        }
        if let (true, Some(process)) = (slots.is_empty(), &self.process) {
            process.release_late();
        }
        Answer::Reply(Reply::Done)
    }
}

impl Serving<'_> {
    pub(super) fn reserve(&mut self, reserve: &Reserve, terms: &Terms) -> Answer {
        let Self { shared, connection, writes, .. } = self;
        let is_wanted = || !shared.stop.is_set() && !connection.socket().has_hung_up();
        writes.reserve(reserve, terms, &is_wanted)
    }

    pub(super) fn write(&mut self, write: &Write, payload_len: u64) -> Result<Answer, ConnError> {
        match self.receive(write.slot, write.offset, payload_len)? {
            Some(true) => Ok(Answer::Reply(Reply::Written)),
            Some(false) => Ok(Answer::Refuse(Reason::Invalid, "a write past the end of its reservation".to_owned())),
            None => Ok(Answer::Refuse(Reason::Invalid, "a write to a reservation that is not open".to_owned())),
        }
    }

    /// Writes and a seal in one. What is left of the payload when it is refused is thrown away.
    pub(super) fn fill(&mut self, seal: &Seal, payload_len: u64) -> Result<Answer, ConnError> {
        let refused = |message: String| Ok(Answer::Refuse(Reason::Invalid, message));
        let Writes { space, client, .. } = &self.writes;
        let len_of = |item: &SealItem| space.reservations.with(item.slot, *client, |open| open.reservation.len());
        let Some(lens) = seal.items.iter().map(len_of).collect::<Option<Vec<u64>>>() else {
            return refused("a fill of a reservation that is not open".to_owned());
        };
        let room = lens.iter().sum::<u64>();
        if room != payload_len {
            return refused(format!("a fill of {room} bytes with {payload_len}"));
        }
        for (item, len) in seal.items.iter().zip(lens) {
            if self.receive(item.slot, 0, len)? != Some(true) {
                return refused("a fill of a reservation that was given up meanwhile".to_owned());
            }
        }
        Ok(self.writes.seal(seal))
    }

    /// Receives `len` bytes of the payload to where they belong in a reservation. False when it does not reach that far,
    /// `None` when it is not open.
    fn receive(&mut self, slot: SlotName, offset: u64, len: u64) -> Result<Option<bool>, ConnError> {
        let until = Deadline::after(FRAME_BUDGET);
        let receiver = self.connection.receiver();
        let received = self.writes.space.reservations.with(slot, self.writes.client, |open| {
            let Some(start) = open.reservation.address(offset, len).filter(|_| len > 0) else {
                return Ok::<_, ConnError>(false);
            };
            open.note_receiving(offset, len);
            let to = Region { start, len: len as usize };
            let checksum = BlockChecksum::new(open.id(), open.reservation.len());
            // SAFETY: the bytes lie inside the reservation, which stays open while this runs; a second Write of the same
            // bytes by the same client stores the same values.
            let sums = unsafe { recv_write(receiver, to, &checksum, offset, until) }?;
            open.note_received(offset, len, &sums);
            Ok(true)
        });
        let received = received.transpose()?;
        if received == Some(true) {
            add(&self.shared.counters.socket_bytes_in, len);
        }
        Ok(received)
    }
}
