//! Subscribing to all that a catalog knows.

use super::pool_map::PoolMap;
use super::wait::wait_for;
use super::{Catalogs, peer::Peer};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_schema::{SIGN_OF_LIFE, WatchEvent, WatchRequest};
use tidepool_types::Deadline;
use tokio::runtime::Runtime;
use tonic::{Status, Streaming};

/// A catalog that has said nothing for so long is not there any more.
const SILENCE: Duration = SIGN_OF_LIFE.saturating_mul(3);

/// Rest when no catalog can be subscribed to.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of following.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// The map has taken an event over.
    Event,
    /// Nothing came in time.
    Nothing,
    /// The catalog is not heard any more; the next call begins with another one. The map stays as it was, as a hint.
    Lost {
        /// Its address.
        catalog: String,
        /// Why.
        reason: String,
    },
}

/// A map of all that one catalog knows, kept up to date by calling [`Subscription::follow`] again and again.
///
/// A subscriber that calls it too seldom loses changes, and is told anew what it has lost; see docs/catalog.md.
pub struct Subscription<'a> {
    catalogs: &'a Catalogs,
    runtime: &'a Runtime,
    map: PoolMap,
    source: Option<Source>,
}

/// The catalog that is listened to.
struct Source {
    peer: Arc<Peer>,
    events: Streaming<WatchEvent>,
    /// How long it has been listened to in vain.
    silent: Duration,
}

impl Catalogs {
    /// Subscribes to the catalog that is asked first; to the next one when that is lost. `None` without catalogs.
    #[must_use]
    pub fn subscribe(&self) -> Option<Subscription<'_>> {
        let runtime = self.runtime.as_ref()?;
        Some(Subscription { catalogs: self, runtime, map: PoolMap::default(), source: None })
    }
}

impl Subscription<'_> {
    /// What the catalog knows, as far as it was followed.
    #[must_use]
    pub const fn map(&self) -> &PoolMap {
        &self.map
    }

    /// Follows the next event, if that comes in time.
    pub fn follow(&mut self, within: Duration) -> Followed {
        let deadline = Deadline::after(within);
        let mut source = match self.source.take() {
            Some(source) => source,
            None => match self.begin(deadline) {
                Ok(source) => source,
                Err(followed) => return followed,
            },
        };
        let makes_sense = |taken: Option<()>| taken.ok_or_else(|| "it said something that makes no sense".to_owned());
        let event = source.next(self.runtime, deadline);
        match event.and_then(|event| event.map(|event| makes_sense(self.map.apply(event))).transpose()) {
            Ok(event) => {
                self.source = Some(source);
                event.map_or(Followed::Nothing, |()| Followed::Event)
            }
            Err(reason) => {
                self.map.lose();
                lost(&source.peer, reason, self.runtime)
            }
        }
    }

    /// Subscribes to the best catalog.
    fn begin(&self, deadline: Deadline) -> Result<Source, Followed> {
        let Some(peer) = self.catalogs.order().into_iter().next() else {
            std::thread::sleep(PAUSE.min(deadline.remaining()));
            return Err(Followed::Nothing);
        };
        let (within, mut client) = (deadline.remaining().min(self.catalogs.config.attempt), peer.patient());
        let asked = async { tokio::time::timeout(within, client.watch(WatchRequest {})).await };
        let late = |_| Err(Status::deadline_exceeded("no answer in time"));
        match wait_for(self.runtime, asked).unwrap_or_else(late) {
            Ok(response) => Ok(Source { peer, events: response.into_inner(), silent: Duration::ZERO }),
            Err(status) => {
                std::thread::sleep(PAUSE.min(deadline.remaining()));
                Err(lost(&peer, status.message().to_owned(), self.runtime))
            }
        }
    }
}

impl Source {
    /// The next event, if that comes in time; an error says why there will be none.
    fn next(&mut self, runtime: &Runtime, deadline: Deadline) -> Result<Option<WatchEvent>, String> {
        let patience = deadline.remaining().min(SILENCE.saturating_sub(self.silent));
        let began = Instant::now();
        let next = async { tokio::time::timeout(patience, self.events.message()).await };
        let heard = wait_for(runtime, next);
        self.silent = if heard.is_ok() { Duration::ZERO } else { self.silent + began.elapsed() };
        match heard {
            Ok(Ok(Some(event))) => Ok(Some(event)),
            Ok(Ok(None)) => Err("it ended the subscription".to_owned()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) if self.silent < SILENCE => Ok(None),
            Err(_) => Err("it is silent".to_owned()),
        }
    }
}

/// The catalog is asked whether it is there, and skipped if not.
fn lost(peer: &Arc<Peer>, reason: String, runtime: &Runtime) -> Followed {
    let _inside = runtime.enter();
    peer.doubt();
    Followed::Lost { catalog: peer.address.clone(), reason }
}
