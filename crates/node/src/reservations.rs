//! Reservations that writers are filling, by slot.
//!
//! A reservation belongs to the connection that asked for it, but its bytes may come through other connections of the same
//! client. Whoever receives bytes into one keeps it alive meanwhile, and a seal waits until nobody does.

use crate::process::Charge;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tidepool_locks::{Condvar, Mutex, MutexGuard};
use tidepool_store::Reservation;
use tidepool_types::{BlockId, CHUNK_LEN, ClientId, Deadline, chunk_count};
use tidepool_wire::message::SlotName;

/// Reservations taken under one lock: writers of other connections wait for it.
const PER_LOCK: usize = 256;

/// A reservation that is being filled.
pub(crate) struct Open {
    pub(crate) reservation: Reservation,
    pub(crate) client: ClientId,
    /// Present if its writer copies through the mapped slab.
    mapped: Option<Charge>,
    /// What is known of the chunks that came through a socket.
    received: Mutex<Vec<Chunk>>,
}

/// What is known of one chunk of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// Nothing has been written to it.
    Untouched,
    /// It is being written to for the first time.
    Coming,
    /// It was written to once, as a whole, with this checksum.
    Whole(u32),
    /// It was written to in parts or more than once: only its bytes tell what it is.
    Unsure,
}

impl Open {
    pub(crate) fn new(reservation: Reservation, client: ClientId, mapped: Option<Charge>) -> Self {
        let chunks = if mapped.is_some() { 0 } else { chunk_count(reservation.len()) as usize };
        Self { reservation, client, mapped, received: Mutex::new(vec![Chunk::Untouched; chunks]) }
    }

    /// Whether its writer copies through the mapped slab.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// The block's id.
    pub(crate) fn id(&self) -> BlockId {
        self.reservation.id()
    }

    /// A Write is about to store `len` bytes at `offset`. A chunk that was touched before is unsure from now on, whether
    /// or not this Write comes to its end.
    pub(crate) fn note_receiving(&self, offset: u64, len: u64) {
        let mut received = self.received.lock();
        for chunk in offset / CHUNK_LEN..(offset + len).div_ceil(CHUNK_LEN) {
            if let Some(known) = received.get_mut(chunk as usize) {
                *known = if *known == Chunk::Untouched { Chunk::Coming } else { Chunk::Unsure };
            }
        }
    }

    /// Notes what a Write brought: `sums` are those of the pieces of chunks from `offset` on, `len` bytes.
    pub(crate) fn note_received(&self, offset: u64, len: u64, sums: &[u32]) {
        let whole = |at: u64, end: u64| {
            at.is_multiple_of(CHUNK_LEN) && (end.is_multiple_of(CHUNK_LEN) || end == self.reservation.len())
        };
        let mut received = self.received.lock();
        let first = offset / CHUNK_LEN;
        for (chunk, &sum) in (first..).zip(sums) {
            let start = offset.max(chunk * CHUNK_LEN);
            let end = (offset + len).min((chunk + 1) * CHUNK_LEN);
            if let Some(known) = received.get_mut(chunk as usize) {
                let first = *known == Chunk::Coming && whole(start, end);
                *known = if first { Chunk::Whole(sum) } else { Chunk::Unsure };
            }
        }
    }

    /// Whether what lies in the slab is what the writer summed. What a mapped writer copied is its own responsibility.
    pub(crate) fn matches(&self, checksums: &[u32]) -> bool {
        if self.is_mapped() {
            return true;
        }
        let received = self.received.lock();
        let known = received.len() == checksums.len()
            && received.iter().zip(checksums).all(|(known, sum)| *known == Chunk::Whole(*sum));
        known || self.reservation.matches(checksums)
    }
}

/// The open reservations, locked.
type AllOpen<'a> = MutexGuard<'a, FxHashMap<SlotName, Arc<Open>>>;

/// All open reservations of a node.
#[derive(Default)]
pub(crate) struct Reservations {
    /// Names are the node's own: nobody can choose ones that collide.
    open: Mutex<FxHashMap<SlotName, Arc<Open>>>,
    /// Signalled when a connection has stopped receiving into a reservation.
    quiet: Condvar,
}

impl Reservations {
    /// Adds a reservation and returns its name.
    pub(crate) fn add(&self, open: Open) -> SlotName {
        let name = open.reservation.name();
        self.open.lock().insert(name, Arc::new(open));
        name
    }

    /// Uses a reservation of `client` for as long as `receive` takes.
    pub(crate) fn with<T>(&self, name: SlotName, client: ClientId, receive: impl FnOnce(&Open) -> T) -> Option<T> {
        let open = self.open.lock().get(&name).filter(|open| open.client == client).cloned()?;
        let result = receive(&open);
        drop(open);
        // Under the lock, so that a waiting seal does not miss it.
        let _lock = self.open.lock();
        self.quiet.notify_all();
        Some(result)
    }

    /// Takes a reservation of `client` out, once nobody receives into it any more.
    pub(crate) fn take(&self, name: SlotName, client: ClientId, until: Deadline) -> Option<Open> {
        self.take_from(&mut self.open.lock(), name, client, until)
    }

    /// The same of many.
    pub(crate) fn take_all(&self, names: &[SlotName], client: ClientId, until: Deadline) -> Vec<Option<Open>> {
        let mut taken = Vec::with_capacity(names.len());
        for names in names.chunks(PER_LOCK) {
            let mut all = self.open.lock();
            taken.extend(names.iter().map(|name| self.take_from(&mut all, *name, client, until)));
        }
        taken
    }

    fn take_from(&self, all: &mut AllOpen<'_>, name: SlotName, client: ClientId, until: Deadline) -> Option<Open> {
        let Entry::Occupied(entry) = all.entry(name) else { return None };
        if entry.get().client != client {
            return None;
        }
        let mut open = entry.remove();
        loop {
            match Arc::try_unwrap(open) {
                Ok(open) => return Some(open),
                Err(busy) => open = busy,
            }
            if self.quiet.wait_until(all, until.instant()).timed_out() {
                // Whoever still receives drops it last.
                return Arc::try_unwrap(open).ok();
            }
        }
    }
}
