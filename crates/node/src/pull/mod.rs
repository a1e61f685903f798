//! Copying blocks from another node: this node reads them as a client would, straight into reservations of its own, many at a
//! time. A reservation is sealed with the checksums that its bytes were verified with on arrival.

mod sources;
mod under_way;

pub(crate) use sources::Sources;
use under_way::Claim;
pub(crate) use under_way::UnderWay;

use crate::node::Shared;
use crate::process::add;
use crate::spaces::LiveSpace;
use rustc_hash::FxHashMap;
use sources::{NodeSource, Turn};
use std::collections::VecDeque;
use std::time::Duration;
use tidepool_store::{NoRoom, Reservation, Sealed};
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::fetch::{Group, Reads, fetch};
use tidepool_transfer::ops::{Destination, Done, Failure, ReadOp, Region, Regions};
use tidepool_types::{BlockId, CopyName, Deadline, Epoch, InvalidInput, Key};
use tidepool_wire::message::{Found, Offer, Pull, PullIds, PullOutcome, Reply, Request};

/// Blocks that a source is asked for together: their keys fit an answer.
const BATCH_BLOCKS: usize = 1024;
/// Bytes that are reserved, and then read, together.
const BATCH_BYTES: u64 = 64 << 20;

/// What a pull asks for.
pub(crate) struct Task<'a> {
    wait_millis: u32,
    source: &'a str,
    epoch: Epoch,
    remove_source: bool,
    wanted: Vec<Wanted<'a>>,
}

/// A block that a pull asks for: by its key, or by its id, whose key the source tells.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    Key(Key<'a>, BlockId),
    Id(BlockId),
}

impl Wanted<'_> {
    fn id(&self) -> BlockId {
        match self {
            Self::Key(_, id) | Self::Id(id) => *id,
        }
    }
}

impl<'a> Task<'a> {
    /// The blocks with the keys of a message, which were checked as it was read.
    pub(crate) fn by_key(space: &LiveSpace, pull: &'a Pull) -> Result<Self, InvalidInput> {
        let Pull { wait_millis, source, epoch, remove_source, keys } = pull;
        let wanted = |key: &'a Vec<u8>| {
            let key = Key::new(key)?;
            Ok(Wanted::Key(key, space.id_of(key)))
        };
        let wanted = keys.iter().map(wanted).collect::<Result<_, InvalidInput>>()?;
        Ok(Self { wait_millis: *wait_millis, source, epoch: *epoch, remove_source: *remove_source, wanted })
    }

    pub(crate) fn by_id(pull: &'a PullIds) -> Self {
        let PullIds { wait_millis, source, epoch, remove_source, ids } = pull;
        let wanted = ids.iter().map(|id| Wanted::Id(*id)).collect();
        Self { wait_millis: *wait_millis, source, epoch: *epoch, remove_source: *remove_source, wanted }
    }
}

/// Pulls a batch; one outcome per block.
pub(crate) fn run(
    shared: &Shared,
    space: &LiveSpace,
    task: &Task<'_>,
    is_wanted: &dyn Fn() -> bool,
) -> Vec<PullOutcome> {
    let until = Deadline::after(Duration::from_millis(task.wait_millis.into()));
    let source = shared.sources.at(task.source, task.epoch);
    let outcomes = vec![PullOutcome::Unavailable; task.wanted.len()];
    let mut pulling = Pulling { shared, space, is_wanted, task, source: &source, until, outcomes };
    pulling.bring_all();
    let Pulling { outcomes, .. } = pulling;
    if outcomes.iter().any(is_here) {
        shared.announce_all();
    }
    // A node that is told to move blocks from itself to itself keeps them.
    if task.remove_source && task.epoch != space.memory().epoch() {
        let moved = task.wanted.iter().zip(&outcomes).filter(|(_, outcome)| is_here(outcome));
        remove_at_source(&source, is_wanted, moved.map(|(wanted, _)| wanted.id()).collect(), until);
    }
    outcomes
}

fn is_here(outcome: &PullOutcome) -> bool {
    matches!(outcome, PullOutcome::Copied | PullOutcome::Held | PullOutcome::Joined)
}

/// The second half of a move. Failing leaves a replica at the source, which is no harm.
fn remove_at_source(source: &NodeSource, is_wanted: &dyn Fn() -> bool, moved: Vec<BlockId>, until: Deadline) {
    if moved.is_empty() {
        return;
    }
    let removed =
        source.turn(is_wanted, until).and_then(|mut turn| turn.ask(&Request::Remove(moved), is_wanted, until));
    if let Err(error) = removed {
        tracing::warn!(%error, "a moved block stays at its source as a replica");
    }
}

/// One pull.
struct Pulling<'a> {
    shared: &'a Shared,
    space: &'a LiveSpace,
    /// Whether the node goes on, and the client still waits.
    is_wanted: &'a dyn Fn() -> bool,
    task: &'a Task<'a>,
    source: &'a NodeSource,
    until: Deadline,
    /// Blocks that nothing was found out about are unavailable.
    outcomes: Vec<PullOutcome>,
}

/// A block that the source holds: its place in the pull, its key, and its copy's name and length.
struct Offered {
    index: usize,
    id: BlockId,
    key: Vec<u8>,
    copy: CopyName,
    len: u64,
}

impl Pulling<'_> {
    /// Brings what is not here. What another pull is bringing is waited for, and brought only if that one fails or hangs.
    fn bring_all(&mut self) {
        let mut first_of = FxHashMap::default();
        let is_first = |index: &usize| *first_of.entry(self.task.wanted[*index].id()).or_insert(*index) == *index;
        let firsts = (0..self.task.wanted.len()).filter(is_first).collect();
        let (mut left, mut hangs) = (self.note_here(firsts, PullOutcome::Held), false);
        while !left.is_empty() && !self.until.has_passed() && (self.is_wanted)() {
            let mut claim = self.space.under_way.claim(self.ids(&left));
            let is_mine = |index: &usize| hangs || claim.has(&self.task.wanted[*index].id());
            let (mine, others): (Vec<usize>, Vec<usize>) = left.into_iter().partition(is_mine);
            let brought = self.bring(&mine, &mut claim);
            drop(claim);
            let mut others = others;
            // Failing half-way leaves the rest unavailable, which is what the answer says.
            if let Err(error) = brought {
                tracing::debug!(source = self.task.source, %error, "a pull failed");
                // The pull that seemed to hang may only be slow.
                let is_left = |index: &usize| hangs && self.outcomes[*index] == PullOutcome::Unavailable;
                others.extend(mine.into_iter().filter(is_left));
            }
            hangs = !self.space.under_way.wait(&self.ids(&others), self.is_wanted, self.until);
            left = self.note_here(others, PullOutcome::Joined);
        }
        for (index, wanted) in self.task.wanted.iter().enumerate() {
            let first = first_of[&wanted.id()];
            if first != index {
                let outcome = self.outcomes[first];
                self.outcomes[index] = if outcome == PullOutcome::Copied { PullOutcome::Held } else { outcome };
            }
        }
    }

    fn ids(&self, indexes: &[usize]) -> Vec<BlockId> {
        indexes.iter().map(|&index| self.task.wanted[index].id()).collect()
    }

    /// Notes for blocks that are here that they are. Returns the others.
    fn note_here(&mut self, mut indexes: Vec<usize>, outcome: PullOutcome) -> Vec<usize> {
        let mut held = self.space.memory().confirm(&self.ids(&indexes)).into_iter();
        indexes.retain(|&index| {
            let is_held = held.next().flatten().is_some();
            if is_held {
                self.outcomes[index] = outcome;
            }
            !is_held
        });
        indexes
    }

    fn bring(&mut self, indexes: &[usize], claim: &mut Claim<'_>) -> Result<(), ConnError> {
        for indexes in indexes.chunks(BATCH_BLOCKS) {
            if self.until.has_passed() || !(self.is_wanted)() {
                break;
            }
            // Nothing is reserved, and nothing evicted, for a pull that waits for others at its source.
            let mut turn = self.source.turn(self.is_wanted, self.until)?;
            // Another pull may have brought some meanwhile.
            let left = self.note_here(indexes.to_vec(), PullOutcome::Joined);
            indexes.iter().filter(|index| !left.contains(index)).for_each(|&index| {
                claim.release(&self.task.wanted[index].id());
            });
            if left.is_empty() {
                continue;
            }
            // Offered piece by piece: a source remembers for a while only who copies what.
            let mut offered = self.offered(&mut turn, &left, claim)?;
            while !offered.is_empty() && (self.is_wanted)() && !self.until.has_passed() {
                let mut coming = self.reserve_batch(&mut offered, claim, false);
                if coming.is_empty() && !offered.is_empty() {
                    // Other pulls may have the turn while this one waits for room.
                    drop(turn);
                    coming = self.reserve_batch(&mut offered, claim, true);
                    turn = self.source.turn(self.is_wanted, self.until)?;
                }
                if coming.is_empty() {
                    continue;
                }
                let group = Group { source: self.source, reads: (0..coming.len()).collect() };
                let mut landing = Landing { pulling: self, claim, coming: coming.into_iter().map(Some).collect() };
                let until = landing.pulling.until;
                fetch(&[group], &mut landing, until);
            }
            drop(turn);
            // From here on removals find the copies through the catalogs, too.
            if indexes.iter().any(|&index| self.outcomes[index] == PullOutcome::Copied) {
                self.shared.announce_all();
            }
        }
        Ok(())
    }

    /// Notes what became of a block: other pulls need not wait for it.
    fn conclude(&mut self, index: usize, outcome: PullOutcome, claim: &mut Claim<'_>) {
        self.outcomes[index] = outcome;
        claim.release(&self.task.wanted[index].id());
    }

    /// What the source has of the blocks. It remembers that this node copies them.
    fn offered(
        &mut self,
        turn: &mut Turn<'_>,
        indexes: &[usize],
        claim: &mut Claim<'_>,
    ) -> Result<VecDeque<Offered>, ConnError> {
        let keys_wanted = indexes.iter().any(|&index| matches!(self.task.wanted[index], Wanted::Id(_)));
        let node = self.shared.config.name.to_string();
        let offer = Request::Offer(Offer { node, ids: self.ids(indexes), keys_wanted });
        let Reply::Found(Found { copies, keys }) = turn.ask(&offer, self.is_wanted, self.until)? else {
            return Err(ConnError::Unexpected("not an answer to Offer"));
        };
        let mut offered = VecDeque::with_capacity(copies.len());
        let mut keys = keys.into_iter();
        for (&index, copy) in indexes.iter().zip(copies) {
            let Some((copy, len)) = copy else {
                self.conclude(index, PullOutcome::Missing, claim);
                continue;
            };
            let (told, wanted) = (keys.next(), self.task.wanted[index]);
            let id = wanted.id();
            let key = match wanted {
                Wanted::Key(key, _) => Some(key.as_bytes().to_vec()),
                Wanted::Id(_) => told.filter(|key| Key::new(key).is_ok_and(|key| self.space.id_of(key) == id)),
            };
            match key {
                Some(key) => offered.push_back(Offered { index, id, key, copy, len }),
                // A block under another key would be found by nobody.
                None => tracing::warn!(source = self.task.source, %id, "the source told a key that is not the block's"),
            }
        }
        Ok(offered)
    }

    /// Takes space for the first of the blocks, as many as are read together. Only where it `waits` is space made for the first
    /// one until the deadline; otherwise none comes back where there is none at once.
    fn reserve_batch(&mut self, offered: &mut VecDeque<Offered>, claim: &mut Claim<'_>, waits: bool) -> Vec<Coming> {
        let (mut coming, mut bytes): (Vec<Coming>, u64) = (Vec::new(), 0);
        while let Some(next) = offered.front()
            && (coming.is_empty() || bytes + next.len <= BATCH_BYTES)
        {
            // A batch waits for space only while it has none itself: its own blocks may be what is in the way.
            let until = if coming.is_empty() && waits { self.until } else { Deadline::after(Duration::ZERO) };
            // A move does not wait for space.
            let is_final = coming.is_empty() && (waits || self.task.remove_source);
            match self.reserve(next, until) {
                Err(NoRoom::Full) if !is_final => break,
                Err(_) => {
                    let index = next.index;
                    self.conclude(index, PullOutcome::NoSpace, claim);
                }
                Ok(reservation) => {
                    bytes += next.len;
                    coming.push(Coming { index: next.index, copy: next.copy, reservation });
                }
            }
            offered.pop_front();
        }
        coming
    }

    fn reserve(&self, block: &Offered, until: Deadline) -> Result<Reservation, NoRoom> {
        let Shared { client, draining, .. } = self.shared;
        let memory = self.space.memory();
        let key = Key::new(&block.key).map_err(|_| NoRoom::TooLarge)?;
        if draining.is_set() {
            return Err(NoRoom::TooLarge);
        }
        let unnamed = match self.task.remove_source {
            // Its source will not have it any more: it is not to cost another block, least of all one that came the same way.
            true => memory.reserve_free(key, block.id, block.len, *client)?,
            false => memory.reserve(key, block.id, block.len, *client, until, self.is_wanted)?,
        };
        if draining.is_set() {
            return Err(NoRoom::TooLarge);
        }
        // From here on a removal is noticed; one that came before has the source lack the block, or name this node.
        Ok(unnamed.named().watched(key))
    }
}

/// A block on its way here.
struct Coming {
    index: usize,
    copy: CopyName,
    reservation: Reservation,
}

/// A batch of reservations that are being filled.
struct Landing<'p, 'a, 'c> {
    pulling: &'p mut Pulling<'a>,
    claim: &'p mut Claim<'c>,
    coming: Vec<Option<Coming>>,
}

impl Reads for Landing<'_, '_, '_> {
    fn op(&mut self, read: usize) -> ReadOp {
        let coming = self.coming[read].as_ref().expect("a read is settled after its last operation");
        let (id, len) = (coming.reservation.id(), coming.reservation.len());
        let start = coming.reservation.address(0, len).expect("a reservation has all of its bytes");
        let destination = Destination::Into(Regions::One(Region { start, len: len as usize }));
        ReadOp {
            copy: Some(coming.copy),
            len: Some(len),
            wants_checksums: true,
            ..ReadOp::whole(read as u64, id, destination)
        }
    }

    fn settle(&mut self, read: usize, outcome: Result<Done, Failure>) {
        let Some(coming) = self.coming.get_mut(read).and_then(Option::take) else { return };
        let index = coming.index;
        let outcome = match outcome {
            Ok(Done::Read { bytes, checksums: Some(sums), .. }) if bytes == coming.reservation.len() => {
                seal(self.pulling.shared, coming, &sums)
            }
            // The source has lost it since.
            Err(Failure::Miss) => PullOutcome::Missing,
            _ => PullOutcome::Unavailable,
        };
        self.pulling.conclude(index, outcome, self.claim);
    }

    fn go_on(&self) -> bool {
        (self.pulling.is_wanted)()
    }
}

fn seal(shared: &Shared, coming: Coming, checksums: &[u32]) -> PullOutcome {
    match coming.reservation.seal(checksums) {
        Ok(Sealed::New(_)) => {
            add(&shared.counters.pulled, 1);
            PullOutcome::Copied
        }
        Ok(Sealed::Held(_)) => PullOutcome::Held,
        Ok(Sealed::Void) => PullOutcome::Missing,
        Err(_) => PullOutcome::NoSpace,
    }
}
