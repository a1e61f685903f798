//! Copying blocks from another node: this node reads them as a client would, straight into reservations of its own.

use crate::node::Shared;
use crate::process::add;
use std::time::Duration;
use tidepool_store::{NoRoom, Reservation, Sealed};
use tidepool_transfer::conn::dial::{Dial, Place};
use tidepool_transfer::conn::{Connection, TcpOptions, resolve};
use tidepool_transfer::fault::FaultPlan;
use tidepool_transfer::ops::{Completion, Destination, Done, Op, ReadOp, Region, Regions};
use tidepool_transfer::tcp::{self, TcpConfig};
use tidepool_transfer::transport::Transport;
use tidepool_types::{BlockId, CopyName, Deadline, Key, TenantSecret};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{Offer, Pull, PullOutcome, Reply, Request};

/// How long the source may take to welcome a connection.
const WELCOME: Duration = Duration::from_secs(1);
/// How often a pull looks whether the node stops.
const STEP: Duration = Duration::from_millis(100);

/// Pulls a batch; one outcome per key.
pub(crate) fn run(shared: &Shared, pull: &Pull) -> Vec<PullOutcome> {
    let until = Deadline::after(Duration::from_millis(pull.wait_millis.into()));
    let mut outcomes = vec![PullOutcome::Unavailable; pull.keys.len()];
    let ids: Vec<Option<BlockId>> = pull.keys.iter().map(|key| id_of(key)).collect();
    for (outcome, id) in outcomes.iter_mut().zip(&ids) {
        if id.is_some_and(|id| shared.memory.confirm(&[id])[0].is_some()) {
            *outcome = PullOutcome::Held;
        }
    }
    // Failing half-way leaves the rest unavailable, which is what the answer says.
    if let Err(error) = pull_missing(shared, pull, &ids, &mut outcomes, until) {
        tracing::debug!(source = pull.source, %error, "a pull failed");
    }
    if outcomes.iter().any(|outcome| matches!(outcome, PullOutcome::Copied | PullOutcome::Held)) {
        shared.announce_all();
    }
    // A node that is told to move blocks from itself to itself keeps them.
    if pull.remove_source && pull.epoch != shared.memory.epoch() {
        remove_at_source(shared, pull, &ids, &outcomes, until);
    }
    outcomes
}

fn id_of(key: &[u8]) -> Option<BlockId> {
    Key::new(key).ok().map(|key| BlockId::derive(&TenantSecret::DEFAULT, key))
}

type Error = tidepool_transfer::conn::ConnError;

fn connect(shared: &Shared, pull: &Pull, until: Deadline) -> Result<Connection, Error> {
    let until = until.capped(WELCOME);
    let dial = Dial { client: shared.client, epoch: Some(pull.epoch), lease_millis: 0 };
    let options = TcpOptions::default();
    Ok(dial.to(Place::Network(resolve(&pull.source, until)?, &options), until)?.connection)
}

/// One request and its reply, unless the node stops first.
fn ask(shared: &Shared, source: &mut Connection, request: &Request, until: Deadline) -> Result<Reply, Error> {
    let number = source.send(request, &[], until.capped(WELCOME))?;
    loop {
        match source.recv(until.capped(STEP)) {
            Ok((_, Reply::Refused(refusal))) => return Err(Error::Refused(refusal)),
            Ok((answered, reply)) if answered == number => return Ok(reply),
            Ok(_) => return Err(Error::Unexpected("a reply to another request")),
            Err(Error::TimedOut) if !until.has_passed() && !shared.stop.is_set() && !source.socket().is_closed() => {}
            Err(error) => return Err(error),
        }
    }
}

/// A block on its way here.
struct Coming {
    index: usize,
    reservation: Reservation,
}

fn pull_missing(
    shared: &Shared,
    pull: &Pull,
    ids: &[Option<BlockId>],
    outcomes: &mut [PullOutcome],
    until: Deadline,
) -> Result<(), Error> {
    let wanted: Vec<(usize, BlockId)> = (0..ids.len())
        .filter(|&index| outcomes[index] != PullOutcome::Held)
        .filter_map(|index| Some((index, ids[index]?)))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut connection = connect(shared, pull, until)?;
    let ids = wanted.iter().map(|(_, id)| *id).collect();
    let offer = Offer { node: shared.config.name.to_string(), ids, ..Offer::default() };
    let Reply::Found(found) = ask(shared, &mut connection, &Request::Offer(offer), until)? else {
        return Err(Error::Unexpected("not an answer to Offer"));
    };
    let welcome = until.capped(WELCOME);
    let address = resolve(&pull.source, welcome)?;
    // A transport serves one pull: another seed for each, or all would have the same fate.
    let seed = shared.config.faults.seed ^ wanted[0].1.words()[0];
    let (config, faults) = (TcpConfig::default(), FaultPlan { seed, ..shared.config.faults.clone() });
    let mut transport = tcp::open(address, pull.epoch, shared.client, config, &faults, welcome)?;
    for ((index, id), found) in wanted.into_iter().zip(found.copies) {
        outcomes[index] = match found {
            None => PullOutcome::Missing,
            Some(_) if shared.stop.is_set() => PullOutcome::Unavailable,
            Some(found) => pull_one(shared, &mut *transport, (index, id), pull, found, until),
        };
    }
    Ok(())
}

fn pull_one(
    shared: &Shared,
    transport: &mut dyn Transport,
    (index, id): (usize, BlockId),
    pull: &Pull,
    (copy, len): (CopyName, u64),
    until: Deadline,
) -> PullOutcome {
    let (is_move, key) = (pull.remove_source, &pull.keys[index]);
    let Ok(key) = Key::new(key) else { return PullOutcome::Missing };
    if shared.draining.is_set() {
        return PullOutcome::NoSpace;
    }
    let reserved = match is_move {
        // Its source will not have it any more: it is not to cost another block, least of all one that came the same way.
        true => shared.memory.reserve_free(key, id, len, shared.client),
        false => shared.memory.reserve(key, id, len, shared.client, until, &|| !shared.stop.is_set()),
    };
    let reservation = match reserved {
        Ok(_) if shared.draining.is_set() => return PullOutcome::NoSpace,
        // From here on a removal is noticed; one that came before has the source lack the block, or name this node.
        Ok(unnamed) => unnamed.named().watched(key),
        Err(NoRoom::Full | NoRoom::TooLarge) => return PullOutcome::NoSpace,
    };
    let coming = Coming { index, reservation };
    if !receive(shared, transport, &coming, copy, until) {
        return PullOutcome::Unavailable;
    }
    seal(shared, coming)
}

/// Reads one block into its reservation. When this returns, the transport has let go of the memory.
fn receive(shared: &Shared, transport: &mut dyn Transport, coming: &Coming, copy: CopyName, until: Deadline) -> bool {
    let len = coming.reservation.len();
    let Some(start) = coming.reservation.address(0, len) else { return false };
    let read = ReadOp {
        token: coming.index as u64,
        id: coming.reservation.id(),
        copy: Some(copy),
        offset: 0,
        len: Some(len),
        destination: Destination::Into(Regions::One(Region { start, len: len as usize })),
    };
    if transport.submit(vec![Op::Read(read)], until) != [Ok(())] {
        return false;
    }
    let mut done: Vec<Completion> = Vec::new();
    // A submitted operation completes, at the latest soon after its deadline: only then is its memory ours again.
    while done.is_empty() {
        if shared.stop.is_set() {
            transport.cancel(coming.index as u64);
        }
        transport.poll(&mut done, Deadline::after(STEP));
    }
    matches!(done[0].outcome, Ok(Done::Read { bytes, .. }) if bytes == len)
}

fn seal(shared: &Shared, coming: Coming) -> PullOutcome {
    let len = coming.reservation.len();
    let Some(start) = coming.reservation.address(0, len) else { return PullOutcome::Unavailable };
    // SAFETY: the bytes lie in our own reservation and the transport has let go of them.
    let bytes = unsafe { std::slice::from_raw_parts(start, len as usize) };
    let checksums = BlockChecksum::new(coming.reservation.id(), len).range(0, bytes);
    match coming.reservation.seal(&checksums) {
        Ok(Sealed::New(_)) => {
            add(&shared.counters.pulled, 1);
            PullOutcome::Copied
        }
        Ok(Sealed::Held(_)) => PullOutcome::Held,
        Ok(Sealed::Void) => PullOutcome::Missing,
        Err(_) => PullOutcome::NoSpace,
    }
}

/// The second half of a move. Failing leaves a replica at the source, which is no harm.
fn remove_at_source(shared: &Shared, pull: &Pull, ids: &[Option<BlockId>], outcomes: &[PullOutcome], until: Deadline) {
    let here = |outcome: &PullOutcome| matches!(outcome, PullOutcome::Copied | PullOutcome::Held);
    let moved: Vec<BlockId> = ids.iter().zip(outcomes).filter(|(_, o)| here(o)).filter_map(|(id, _)| *id).collect();
    if moved.is_empty() {
        return;
    }
    let removed =
        connect(shared, pull, until).and_then(|mut source| ask(shared, &mut source, &Request::Remove(moved), until));
    if let Err(error) = removed {
        tracing::warn!(source = pull.source, %error, "a moved block stays at its source as a replica");
    }
}
