//! What can be set about a catalog.

use crate::index::StreamSlot;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thiserror::Error;

/// The longest lease that a catalog gives.
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// A catalog's configuration; [`CatalogConfig::default`] suits a pool on one host or in one rack.
#[derive(Debug, Clone)]
pub struct CatalogConfig {
    /// Where the catalog listens. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Threads that serve calls.
    pub workers: usize,
    /// How long nodes may need to find a catalog that has just started; until then it is not complete.
    pub settle: Duration,
    /// Silence after which a node is suspect.
    pub suspect_after: Duration,
    /// Silence after which a node is dead.
    pub dead_after: Duration,
    /// How long lists show a dead node. A node that said goodbye is then forgotten.
    pub hide_after: Duration,
    /// How long a catalog remembers a dead node that did not say goodbye: it may come back with what it holds.
    pub forget_after: Duration,
    /// How long ago a node's stream must be proven to have been open for the catalog to be complete; for a node that waits
    /// for acknowledgements for less, as long as the node waits. At most half of `suspect_after` counts.
    pub ack_bound: Duration,
    /// For how long a block that was found, or read, is not removed, for clients that want leases. Zero: not at all.
    pub lease: Duration,
    /// Most nodes, remembered ones included.
    pub max_nodes: usize,
    /// Most inventory streams, those included that are gone and not yet swept.
    pub max_streams: usize,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
    /// Most calls that wait for blocks; further ones are refused.
    pub max_waits: usize,
    /// Most ids that calls wait for, all calls together; about 40 bytes each.
    pub max_waited_ids: usize,
    /// Most subscribers to changes; further ones are refused.
    pub max_subscribers: usize,
    /// Most bytes of changes that wait for one subscriber. Subscribers share the memory of what waits for several of them.
    pub subscriber_queue_bytes: usize,
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            workers: 2,
            settle: Duration::from_secs(1),
            suspect_after: Duration::from_millis(500),
            dead_after: Duration::from_secs(5),
            hide_after: Duration::from_secs(600),
            forget_after: Duration::from_secs(24 * 3600),
            ack_bound: Duration::from_millis(250),
            lease: Duration::ZERO,
            max_nodes: 4096,
            max_streams: StreamSlot::COUNT,
            max_connections: 4096,
            max_waits: 4096,
            max_waited_ids: 1 << 20,
            max_subscribers: 64,
            subscriber_queue_bytes: 16 << 20,
        }
    }
}

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {allowed}")]
pub struct InvalidConfig {
    /// The field.
    pub field: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be set to.
    pub allowed: String,
}

impl CatalogConfig {
    /// How long a proof counts of a node that waits so long for acknowledgements.
    pub(crate) fn proof_counts_for(&self, waits: Duration) -> Duration {
        // A node that is about to be suspect is not one to vouch for.
        waits.min(self.ack_bound).min(self.suspect_after / 2)
    }

    /// Checks every field.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let count = |field, value: usize, max: usize| {
            let allowed = format!("a whole number from 1 to {max}");
            check((1..=max).contains(&value), field, value.to_string(), allowed)
        };
        count("workers", self.workers, 256)?;
        count("max_nodes", self.max_nodes, StreamSlot::COUNT)?;
        count("max_streams", self.max_streams, StreamSlot::COUNT)?;
        count("max_connections", self.max_connections, 1 << 20)?;
        count("max_waits", self.max_waits, 1 << 20)?;
        count("max_waited_ids", self.max_waited_ids, 1 << 24)?;
        count("max_subscribers", self.max_subscribers, 1 << 10)?;
        count("subscriber_queue_bytes", self.subscriber_queue_bytes, 1 << 30)?;
        let allowed = format!("at most {LONGEST_LEASE:?}");
        check(self.lease <= LONGEST_LEASE, "lease", format!("{:?}", self.lease), allowed)?;
        let later = |field, value: Duration, than: &str, least: Duration| {
            check(value > least, field, format!("{value:?}"), format!("more than {than} ({least:?})"))
        };
        later("ack_bound", self.ack_bound, "nothing", Duration::ZERO)?;
        later("suspect_after", self.suspect_after, "nothing", Duration::ZERO)?;
        later("dead_after", self.dead_after, "suspect_after", self.suspect_after)?;
        let allowed = format!("at least hide_after ({:?})", self.hide_after);
        check(self.forget_after >= self.hide_after, "forget_after", format!("{:?}", self.forget_after), allowed)
    }
}

fn check(holds: bool, field: &'static str, value: String, allowed: String) -> Result<(), InvalidConfig> {
    if holds { Ok(()) } else { Err(InvalidConfig { field, value, allowed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        assert_eq!(CatalogConfig::default().validate(), Ok(()));
        let bad = CatalogConfig { workers: 0, ..Default::default() };
        assert_eq!(bad.validate().unwrap_err().to_string(), "workers = 0: a whole number from 1 to 256");
        let bad = CatalogConfig { dead_after: Duration::from_millis(400), ..Default::default() };
        assert_eq!(bad.validate().unwrap_err().to_string(), "dead_after = 400ms: more than suspect_after (500ms)");
    }
}
