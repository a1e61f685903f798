//! Applies one stream's messages to the index.

use super::progress::{PageHead, Progress, Verdict};
use crate::core::Core;
use crate::members::state::Link;
use crate::members::{Admission, Health, Lease, Refused};
use crate::metrics;
use crate::requests::{self, id_chunks};
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::{
    Ack, Deltas, Heartbeat, InventoryDown, InventoryUp, NodeInfo, REMOVED, Resync, SnapshotPage, inventory_down,
    inventory_up::Message,
};
use tidepool_types::Tier;
use tokio::sync::oneshot;
use tonic::Status;

/// See the file's head. Dropping it tells the directory that the stream ended.
pub(crate) struct Intake {
    core: Arc<Core>,
    name: String,
    lease: Arc<Lease>,
    health: Arc<Health>,
    progress: Progress,
    /// Whether the stream's number may be in the index.
    used: bool,
    link: Link,
}

impl Intake {
    /// Admits the node that `hello` introduces; the receiver resolves when the stream must end.
    pub(crate) fn admit(
        core: Arc<Core>,
        hello: InventoryUp,
    ) -> Result<(Self, oneshot::Receiver<&'static str>), Status> {
        let (info, waits) = introduced(hello)?;
        let name = info.name.clone();
        let Admission { lease, health, ended } = core.directory.connect(info, waits).map_err(|refused| {
            metrics::add(&core.counters.refused_streams, 1);
            match refused {
                Refused::NameInUse(holder) => Status::already_exists(format!(
                    "another live node, at {holder}, is called {name:?}: give one of them another name"
                )),
                Refused::Forgotten => Status::failed_precondition(
                    "this incarnation of the node was replaced by a newer one, or an operator had it forgotten: restart the node",
                ),
                Refused::TooMany => Status::resource_exhausted("the catalog has as many nodes and streams as it may"),
            }
        })?;
        metrics::add(&core.counters.streams, 1);
        tracing::info!(node = name, stream = lease.number(), "inventory stream opened");
        let progress = Progress::default();
        Ok((Self { core, name, lease, health, progress, used: false, link: Link::Broken }, ended))
    }

    /// Applies one message; the answer, if it gets one.
    pub(crate) fn take(&mut self, up: InventoryUp) -> Result<Option<InventoryDown>, Status> {
        self.health.hear(self.core.directory.now());
        let mut probe = None;
        let resync = match up.message {
            Some(Message::Page(page)) => self.page(page)?,
            Some(Message::Deltas(deltas)) => self.deltas(deltas)?,
            Some(Message::Heartbeat(Heartbeat { latest, echo, used_bytes })) => {
                self.health.set_used(used_bytes);
                // A probe that this catalog has not written yet proves nothing.
                probe = Some(Duration::from_micros(echo).min(self.core.directory.now()));
                let verdict = self.progress.heartbeat(latest);
                self.resync(verdict)?
            }
            Some(Message::Goodbye(_)) => {
                self.link = Link::Left;
                self.core.directory.disconnect(&self.name, self.lease.number(), Link::Left);
                return Ok(None);
            }
            Some(Message::Hello(_)) => return Err(Status::invalid_argument("hello: only the first message is one")),
            // A kind of message that this version does not know.
            None => None,
        };
        self.health.stand(self.progress.is_caught_up(), probe);
        Ok(Some(resync.unwrap_or_else(|| self.ack())))
    }

    fn page(&mut self, page: SnapshotPage) -> Result<Option<InventoryDown>, Status> {
        let ids = id_chunks("ids", &page.ids)?;
        requests::check_tiers("tiers", &page.tiers, ids.len(), true)?;
        let head = PageHead { snapshot: page.snapshot, page: page.page, as_of: page.as_of, last: page.last };
        let verdict = self.progress.page(head);
        match verdict {
            Verdict::Start => {
                metrics::add(&self.core.counters.snapshots, 1);
                self.start_over()?;
            }
            Verdict::Apply { .. } => {}
            other => return self.resync(other),
        }
        self.apply(ids, &page.tiers);
        Ok(None)
    }

    fn deltas(&mut self, deltas: Deltas) -> Result<Option<InventoryDown>, Status> {
        let ids = id_chunks("ids", &deltas.ids)?;
        requests::check_tiers("kinds", &deltas.kinds, ids.len(), false)?;
        match self.progress.deltas(deltas.first, ids.len() as u64) {
            Verdict::Apply { skip } => {
                self.apply(&ids[skip..], &deltas.kinds[skip..]);
                Ok(None)
            }
            other => self.resync(other),
        }
    }

    /// Applies changes of checked kinds; without kinds, they are additions to memory.
    fn apply(&mut self, ids: &[[u8; 16]], kinds: &[u8]) {
        self.used = true;
        let core = &self.core;
        metrics::add(&core.counters.changes, ids.len());
        let tier_of = |n| kinds.get(n).map_or(Some(Tier::Dram), |kind| Tier::try_from(*kind).ok());
        core.index.apply(self.lease.slot(), ids, tier_of);
        // After the index: waiting calls and subscribers rely on this order.
        core.waiters.applied(ids, kinds);
        core.subscribers.applied(self.lease.number(), ids, kinds);
    }

    /// Drops what the stream said if the verdict asks for that, and says so.
    fn resync(&mut self, verdict: Verdict) -> Result<Option<InventoryDown>, Status> {
        let Verdict::Resync(reason) = verdict else { return Ok(None) };
        tracing::warn!(node = self.name, reason, "inventory stream has a gap, asking for a snapshot");
        metrics::add(&self.core.counters.resyncs, 1);
        self.health.stand(false, None);
        self.start_over()?;
        let resync = Resync { snapshot: self.progress.snapshot(), reason };
        Ok(Some(InventoryDown { message: Some(inventory_down::Message::Resync(resync)) }))
    }

    /// Forgets what the stream said: a new number, unless the old one was never used.
    fn start_over(&mut self) -> Result<(), Status> {
        if self.used {
            self.lease = (self.core.directory.renumber(&self.name, &self.lease))
                .ok_or_else(|| Status::aborted("the stream is no longer valid, or there are too many streams"))?;
            self.used = false;
        }
        Ok(())
    }

    fn ack(&self) -> InventoryDown {
        let ack = Ack {
            applied: self.progress.applied(),
            snapshot: self.progress.snapshot(),
            pages: self.progress.pages(),
            probe: self.core.directory.now().as_micros() as u64,
        };
        InventoryDown { message: Some(inventory_down::Message::Ack(ack)) }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        tracing::info!(node = self.name, stream = self.lease.number(), "inventory stream ended");
        self.core.directory.disconnect(&self.name, self.lease.number(), self.link);
    }
}

/// How long a node waits for acknowledgements that does not say.
const UNTOLD: u32 = 100;

/// The node that the first message of a stream introduces, and how long it waits for acknowledgements.
fn introduced(hello: InventoryUp) -> Result<(NodeInfo, Duration), Status> {
    let Some(Message::Hello(hello)) = hello.message else {
        return Err(Status::invalid_argument("the first message of an inventory stream must be a hello"));
    };
    let info = hello.node.ok_or_else(|| Status::invalid_argument("hello: node is missing"))?;
    requests::check_node(&info)?;
    let waits = if hello.ack_bound_millis == 0 { UNTOLD } else { hello.ack_bound_millis };
    Ok((info, Duration::from_millis(waits.into())))
}

const _: () = assert!(REMOVED as usize > Tier::Object as usize, "a removal is no tier");
