//! The client itself: made once per process, cloned freely, used from any thread.

use crate::background::{self, Background};
use crate::call::{Call, Overloaded, Workers};
use crate::catalogs::{Catalogs, CatalogsConfig};
use crate::config::ClientConfig;
use crate::core::Core;
use crate::counters::ClientStats;
use crate::error::ConnectError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::{ClientId, Deadline, Origin, UsedFor};

/// How long the first look around may take, unless half the default deadline is shorter.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// A handle on the pool. Clones share everything: connections, mapped memory, counters.
///
/// Calls block the calling thread until they have an answer, and no longer than their deadline: the one from
/// [`ClientConfig::deadline`] counted from the start of the call, or the one given by [`Client::within`] or [`Client::until`].
/// [`Client::spawn`] runs calls elsewhere.
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
    limit: Limit,
    origin: Option<Origin>,
}

/// How long a call may take.
#[derive(Clone, Copy)]
enum Limit {
    Budget(Duration),
    Until(Deadline),
}

/// Dropped with the last clone: ends the threads.
struct Handle {
    core: Arc<Core>,
    workers: Workers,
    doors: background::Doors,
    _background: Background,
}

impl Client {
    /// Makes a client and looks around for nodes once. A pool that is not there yet is found later: nothing but a
    /// setting that is not allowed, or a machine out of threads, makes this fail.
    pub fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        config.validate()?;
        let catalogs = Catalogs::new(&config.catalogs, CatalogsConfig::default())?;
        let doors = background::Doors::default();
        let populator = background::start_populator(Arc::clone(&doors))?;
        // A full queue only means that the mapping's first reads are slower.
        let core = Arc::new(Core::new(config, catalogs, move |mapping| {
            let _ = populator.try_send(Arc::clone(mapping));
        })?);
        let config = &core.config;
        let workers = Workers::new(config.workers, config.queued_calls);
        let limit = Limit::Budget(config.deadline);
        background::look_around(&core, (config.deadline / 2).min(FIRST_LOOK));
        let background = Background::start(&core)?;
        Ok(Self { handle: Arc::new(Handle { core, workers, doors, _background: background }), limit, origin: None })
    }

    /// The same client with another time limit per call.
    #[must_use]
    pub fn within(&self, budget: Duration) -> Self {
        Self { limit: Limit::Budget(budget), ..self.clone() }
    }

    /// The same client, all of whose calls end by `deadline`.
    #[must_use]
    pub fn until(&self, deadline: Deadline) -> Self {
        Self { limit: Limit::Until(deadline), ..self.clone() }
    }

    /// The same client at work for a request: it tells the nodes so of the blocks that it gets and puts as items, whose depths say
    /// where they stand in the request's prefix ([`Client::put`] puts the first block). A node that evicts by sessions learns from
    /// it. Calls that take keys alone tell nothing.
    #[must_use]
    pub fn used_for(&self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self.clone() }
    }

    /// The client's incarnation: blocks that it writes carry it.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.core().id
    }

    /// What the client has counted so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.core().counters.snapshot()
    }

    /// Runs `work` on one of the client's worker threads. Refused when too many wait already.
    ///
    /// The result is a future, and can be waited for without one. It may be dropped at any moment: work that has not
    /// started is then skipped, work that has goes on to its end with everything it owns, and its result is thrown away.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<Call<T>, Overloaded> {
        let client = self.clone();
        self.handle.workers.spawn(move || work(&client)).inspect_err(|_| {
            crate::counters::add(&self.core().counters.calls_refused, 1);
        })
    }

    pub(crate) fn doors(&self) -> &background::Doors {
        &self.handle.doors
    }

    pub(crate) fn core(&self) -> &Core {
        &self.handle.core
    }

    /// What is known of a use of a block with so many others before it.
    pub(crate) fn use_at(&self, depth: u32) -> Option<UsedFor> {
        self.origin.map(|origin| UsedFor { depth, origin })
    }

    /// The deadline of a call that starts now.
    pub(crate) fn deadline(&self) -> Deadline {
        match self.limit {
            Limit::Budget(budget) => Deadline::after(budget),
            Limit::Until(deadline) => deadline,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id()).finish_non_exhaustive()
    }
}
