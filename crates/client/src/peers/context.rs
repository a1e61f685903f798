//! What all peers of a client share.

use crate::bell::Bell;
use crate::counters::Counters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidepool_transfer::carriers::Carriers;
use tidepool_types::ClientId;

/// See the file's head.
pub(crate) struct Context {
    pub(crate) client: ClientId,
    pub(crate) carriers: Carriers,
    pub(crate) connections: usize,
    /// The client's catalogs: they say which pool it is of.
    pub(crate) catalogs: Vec<String>,
    pub(crate) counters: Arc<Counters>,
    /// Whether this client's reads are leased at all.
    pub(crate) leases: bool,
    /// For how many milliseconds, as far as is known; zero for not at all.
    pub(crate) lease_millis: AtomicU32,
    /// Wakes the prober.
    pub(crate) probe: Bell,
}

impl Context {
    /// For how many milliseconds what is read is leased; zero for not at all.
    pub(crate) fn lease_millis(&self) -> u32 {
        self.lease_millis.load(Ordering::Relaxed)
    }
}
