//! Listening to the look-ups of all of a pool's clients.

use super::peer::Peer;
use super::wait::wait_for;
use super::{Catalogs, CatalogsConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_schema::{
    EXISTENCE_CHECK, LookupReport, MembersRequest, Missing, PREFIX_MATCH, RecordRequest, unpack_ids,
};
use tidepool_types::BlockId;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Status;

/// Reports that wait to be taken; with more, catalogs wait, and drop what they have no room for.
const WAITING: usize = 16;
/// Time between attempts to listen to a catalog.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// A catalog that has passed nothing on for so long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(1);
/// How long it may take to say so: a busy machine takes a while, and a look-up in that time is not lost.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Something that a [`Recorder`] has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// From now on the catalog at this address passes on what clients tell it.
    Listening(String),
    /// A catalog cannot be listened to; that is tried again.
    Lost {
        /// Its address.
        catalog: String,
        /// Why.
        reason: String,
        /// When it was last heard, or first asked.
        since: Instant,
    },
    /// Look-ups that a client made.
    Lookups {
        /// The look-ups, in the order in which they were made.
        lookups: Vec<HeardLookup>,
        /// Look-ups that are missing before these.
        missing: Missing,
    },
}

/// A look-up that a client made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeardLookup {
    /// When.
    pub at: Instant,
    /// The blocks that it was about: of a prefix match, those of its longest chain.
    pub ids: Vec<BlockId>,
}

/// Listens to the look-ups of all clients until dropped.
pub struct Recorder<'a> {
    heard: mpsc::Receiver<Heard>,
    catalogs: usize,
    runtime: &'a Runtime,
    /// Aborted when this is dropped.
    _listeners: JoinSet<()>,
}

impl Recorder<'_> {
    /// How many catalogs it listens to, or tries to.
    #[must_use]
    pub const fn catalogs(&self) -> usize {
        self.catalogs
    }

    /// What is heard next, if that comes in time.
    pub fn next(&mut self, within: Duration) -> Option<Heard> {
        let next = async { tokio::time::timeout(within, self.heard.recv()).await };
        wait_for(self.runtime, next).ok().flatten()
    }
}

impl Catalogs {
    /// Listens to the look-ups that clients tell any of the catalogs of: prefix matches, and existence checks if wanted. Clients
    /// notice within a second or so. `None` without catalogs.
    #[must_use]
    pub fn record(&self, with_existence_checks: bool) -> Option<Recorder<'_>> {
        let runtime = self.runtime.as_ref()?;
        let wanted = if with_existence_checks { PREFIX_MATCH | EXISTENCE_CHECK } else { PREFIX_MATCH };
        let (sender, heard) = mpsc::channel(WAITING);
        let mut listeners = JoinSet::new();
        for peer in &self.peers {
            listeners.spawn_on(listen(Arc::clone(peer), self.config.clone(), wanted, sender.clone()), runtime.handle());
        }
        Some(Recorder { heard, catalogs: self.peers.len(), runtime, _listeners: listeners })
    }
}

/// Listens to one catalog, again and again, for as long as somebody takes what is heard.
async fn listen(peer: Arc<Peer>, config: CatalogsConfig, wanted: u8, heard: mpsc::Sender<Heard>) {
    let mut last = Instant::now();
    while !heard.is_closed() {
        let status = listen_once(&peer, &config, wanted, &heard, &mut last).await;
        let _ = heard.send(lost(&peer, &status, last)).await;
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

fn lost(peer: &Peer, status: &Status, since: Instant) -> Heard {
    Heard::Lost { catalog: peer.address.clone(), reason: status.message().to_owned(), since }
}

/// Why the catalog is no longer listened to; `last` is when it was heard. One that is silent and gives no sign of life is
/// lost until it does, but is listened to on: it may have look-ups to pass on when it wakes up.
async fn listen_once(
    peer: &Peer,
    config: &CatalogsConfig,
    wanted: u8,
    heard: &mpsc::Sender<Heard>,
    last: &mut Instant,
) -> Status {
    let mut client = peer.client();
    let request = RecordRequest { wanted: wanted.into() };
    let mut reports = match tokio::time::timeout(config.attempt, client.record(request)).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return status,
        Err(_) => return Status::deadline_exceeded("no answer in time"),
    };
    *last = Instant::now();
    let _ = heard.send(Heard::Listening(peer.address.clone())).await;
    let mut is_lost = false;
    loop {
        let report = match tokio::time::timeout(SILENCE, reports.message()).await {
            Ok(Ok(Some(report))) => Some(report),
            Ok(Ok(None)) => return Status::unavailable("the catalog ended it"),
            Ok(Err(status)) => return status,
            Err(_) => None,
        };
        let sign = if report.is_some() { Ok(()) } else { sign_of_life(peer).await };
        let was_lost = std::mem::replace(&mut is_lost, sign.is_err());
        match sign {
            Ok(()) => *last = Instant::now(),
            Err(status) => drop(heard.send(lost(peer, &status, *last)).await),
        }
        if was_lost && !is_lost {
            let _ = heard.send(Heard::Listening(peer.address.clone())).await;
        }
        if let Some(report) = report {
            let _ = heard.send(lookups(&report, wanted)).await;
        }
    }
}

/// Asks a catalog that is silent for something.
async fn sign_of_life(peer: &Peer) -> Result<(), Status> {
    let mut client = peer.client();
    let asked = tokio::time::timeout(SIGN_OF_LIFE, client.members(MembersRequest::default())).await;
    asked.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))).map(drop)
}

/// The look-ups of a report that are wanted.
fn lookups(report: &LookupReport, wanted: u8) -> Heard {
    let now = Instant::now();
    let mut ids = unpack_ids(&report.ids);
    let each = report.lengths.iter().zip(&report.ages).zip(&report.kinds);
    let lookups = each.filter_map(|((length, age), kind)| {
        let ids: Vec<BlockId> = ids.by_ref().take(*length as usize).collect();
        let at = now.checked_sub(Duration::from_millis((*age).into())).unwrap_or(now);
        (kind & wanted != 0).then_some(HeardLookup { at, ids })
    });
    Heard::Lookups { lookups: lookups.collect(), missing: Missing::of(report) }
}
