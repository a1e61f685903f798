//! Which blocks were read too lately to be removed: what a node notes when it serves, and what clients on this host write
//! into their rings.

use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tidepool_locks::Mutex;
use tidepool_policy::Leases;
use tidepool_store::{LeaseRing, host_time};
use tidepool_types::BlockId;

/// Leases that a node remembers; past them the oldest are forgotten.
const MOST_LEASES: usize = 1 << 19;
/// Clients with a ring; further ones note no leases for what they read through shared memory.
const MOST_RINGS: usize = 256;
/// The longest lease there is: a client that asks for more gets this much.
const LONGEST: Duration = Duration::from_secs(3600);

/// All leases on a node's blocks.
pub(crate) struct NodeLeases {
    /// Short sections: noting a batch, emptying the rings, looking through the table.
    noted: Mutex<Noted>,
}

struct Noted {
    table: Leases,
    rings: HashMap<u64, LeaseRing>,
    last_ring: u64,
}

impl Noted {
    /// Takes what clients have written to their rings since the last time.
    fn empty_rings(&mut self, now: Duration) {
        let mut taken = Vec::new();
        self.rings.values_mut().for_each(|ring| ring.take(&mut taken));
        self.note(taken, now);
    }

    fn note(&mut self, taken: Vec<(BlockId, Duration)>, now: Duration) {
        self.table.note_each(taken.into_iter().map(|(id, until)| (id, until.min(now + LONGEST))), now);
    }
}

impl NodeLeases {
    pub(crate) fn new() -> Arc<Self> {
        let noted = Noted { table: Leases::new(MOST_LEASES), rings: HashMap::new(), last_ring: 0 };
        Arc::new(Self { noted: Mutex::new(noted) })
    }

    /// Leases blocks that have just been served.
    pub(crate) fn note(&self, ids: impl IntoIterator<Item = BlockId>, lease: Duration) {
        let now = host_time();
        self.noted.lock().table.note(ids, now + lease.min(LONGEST), now);
    }

    /// How many leases there are, as far as they have been taken in.
    pub(crate) fn count(&self) -> u64 {
        self.noted.lock().table.len() as u64
    }

    /// Takes in what the rings hold, so that they have room. Called a few times a second.
    pub(crate) fn collect(&self) {
        self.noted.lock().empty_rings(host_time());
    }

    /// Which of `ids` are leased, by whoever noted it up to now.
    pub(crate) fn leased(&self, ids: &[BlockId]) -> Vec<bool> {
        let now = host_time();
        let mut noted = self.noted.lock();
        noted.empty_rings(now);
        noted.table.leased(ids, now)
    }

    /// A ring for a client, and the descriptor to hand out; `None` when there are as many as there may be.
    pub(crate) fn open_ring(self: &Arc<Self>) -> io::Result<Option<(OpenRing, OwnedFd)>> {
        if self.noted.lock().rings.len() >= MOST_RINGS {
            return Ok(None);
        }
        let ring = LeaseRing::create()?;
        let descriptor = ring.descriptor().try_clone_to_owned()?;
        let mut noted = self.noted.lock();
        noted.last_ring += 1;
        let number = noted.last_ring;
        noted.rings.insert(number, ring);
        Ok(Some((OpenRing { leases: Arc::clone(self), number }, descriptor)))
    }
}

/// A client's ring, until its connection ends. What the client noted outlives it.
pub(crate) struct OpenRing {
    leases: Arc<NodeLeases>,
    number: u64,
}

impl Drop for OpenRing {
    fn drop(&mut self) {
        let mut noted = self.leases.noted.lock();
        if let Some(mut ring) = noted.rings.remove(&self.number) {
            let mut taken = Vec::new();
            ring.take(&mut taken);
            noted.note(taken, host_time());
        }
    }
}
