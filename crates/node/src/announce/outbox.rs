//! What goes out to one catalog: changes in the order of their numbers, whoever sends them.

use super::AnnounceConfig;
use tidepool_schema::{Deltas, InventoryUp, REMOVED, SnapshotPage, inventory_up::Message};
use tidepool_store::inventory::{Change, Inventory, Overrun};
use tidepool_types::{BlockId, Tier};
use tokio::sync::mpsc;

/// Why changes stopped going out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// All have gone out.
    Idle,
    /// The stream takes no more just now.
    Full,
    /// The journal no longer has the next change.
    Overrun,
    /// The stream is closed.
    Closed,
}

/// The sending end of a stream, and how far it has got.
pub(super) struct Outbox {
    up: mpsc::Sender<InventoryUp>,
    /// The latest change that has gone out.
    pub(super) sent: u64,
    // Reused from batch to batch.
    changes: Vec<Change>,
}

impl Outbox {
    pub(super) fn new(up: mpsc::Sender<InventoryUp>) -> Self {
        Self { up, sent: 0, changes: Vec::new() }
    }

    /// The channel itself, to wait for room in it.
    pub(super) fn channel(&self) -> mpsc::Sender<InventoryUp> {
        self.up.clone()
    }

    /// Sends the changes up to number `until`, as many as the stream takes, without waiting.
    pub(super) fn send_changes(&mut self, inventory: &dyn Inventory, until: u64, config: &AnnounceConfig) -> Stopped {
        while self.sent < until {
            let permit = match self.up.try_reserve() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Full(())) => return Stopped::Full,
                Err(mpsc::error::TrySendError::Closed(())) => return Stopped::Closed,
            };
            self.changes.clear();
            let most = usize::try_from(until - self.sent).unwrap_or(usize::MAX).min(config.batch);
            if inventory.changes(self.sent, most, &mut self.changes) == Err(Overrun) {
                return Stopped::Overrun;
            }
            if self.changes.is_empty() {
                return Stopped::Idle;
            }
            let (ids, kinds) = delta_fields(&self.changes);
            let deltas = Deltas { first: self.sent + 1, ids: ids.into(), kinds: kinds.into() };
            permit.send(InventoryUp { message: Some(Message::Deltas(deltas)) });
            self.sent += self.changes.len() as u64;
        }
        Stopped::Idle
    }
}

/// A page of a snapshot as a message.
pub(super) fn page(snapshot: u64, page: u64, as_of: u64, held: &[(BlockId, Tier)], last: bool) -> Message {
    let (ids, tiers) = page_fields(held);
    Message::Page(SnapshotPage { snapshot, page, as_of, ids: ids.into(), tiers: tiers.into(), last })
}

/// Packs changes into ids and kinds.
fn delta_fields(changes: &[Change]) -> (Vec<u8>, Vec<u8>) {
    let mut ids = Vec::with_capacity(changes.len() * BlockId::LEN);
    let mut kinds = Vec::with_capacity(changes.len());
    for change in changes {
        let (id, kind) = match change {
            Change::Added(id, tier) => (id, *tier as u8),
            Change::Removed(id) => (id, REMOVED),
        };
        ids.extend_from_slice(id.as_bytes());
        kinds.push(kind);
    }
    (ids, kinds)
}

/// Packs held blocks into ids and tiers; no tiers at all when every block is in memory.
fn page_fields(held: &[(BlockId, Tier)]) -> (Vec<u8>, Vec<u8>) {
    let mut ids = Vec::with_capacity(held.len() * BlockId::LEN);
    held.iter().for_each(|(id, _)| ids.extend_from_slice(id.as_bytes()));
    let all_in_memory = held.iter().all(|(_, tier)| *tier == Tier::Dram);
    let tiers = if all_in_memory { Vec::new() } else { held.iter().map(|(_, tier)| *tier as u8).collect() };
    (ids, tiers)
}
