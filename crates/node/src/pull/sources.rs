//! The nodes that this node copies blocks from. Connections and transports to them are kept from pull to pull, for a while.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_transfer::carriers::{Carriers, Target};
use tidepool_transfer::conn::dial::{Dial, Place};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions, resolve};
use tidepool_transfer::fault::FaultPlan;
use tidepool_transfer::fetch::{OwnTransport, Source};
use tidepool_transfer::lent::{Bounded, Lent};
use tidepool_transfer::tcp::TcpConfig;
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::{ClientId, Deadline, Epoch};
use tidepool_wire::message::{Reply, Request};

/// How long a source may take to welcome a connection, to take a request, or to answer over a connection that was kept.
const WELCOME: Duration = Duration::from_secs(1);
/// A source of which no block has come for so long is given up. The longest block needs a tenth of a gigabit per second.
const SILENCE: Duration = Duration::from_secs(90);
/// How often a node that waits for an answer looks whether it is stopping.
const STEP: Duration = Duration::from_millis(100);
/// Sources that are kept: with their connections they take a part of the descriptors that a node sets aside. Past them the one
/// that has been idle for the longest goes.
const MOST: usize = 4;
/// How long an idle source is kept.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Pulls from one source that have a connection or a transport at once; others wait.
const AT_ONCE: usize = 2;

/// See the file's head.
pub(crate) struct Sources {
    client: ClientId,
    carriers: Arc<Carriers>,
    /// Short sections: finding a source and dropping idle ones. Connections end outside it.
    kept: Mutex<FxHashMap<(String, Epoch), Kept>>,
}

struct Kept {
    source: Arc<NodeSource>,
    used: Instant,
}

impl Sources {
    /// For a node that is `client` to the others; its transports fail by `faults`.
    pub(crate) fn new(client: ClientId, faults: FaultPlan) -> Self {
        let carriers = Arc::new(Carriers::tcp(TcpConfig::default(), faults));
        Self { client, carriers, kept: Mutex::default() }
    }

    /// The node of incarnation `epoch` at `address`. Nothing is connected yet.
    pub(crate) fn at(&self, address: &str, epoch: Epoch) -> Arc<NodeSource> {
        let key = (address.to_owned(), epoch);
        let mut kept = self.kept.lock();
        let surplus = match kept.len() >= MOST && !kept.contains_key(&key) {
            // One that a pull is using stays: another one of it would be beside it.
            true => kept
                .iter()
                .filter(|(_, kept)| Arc::strong_count(&kept.source) == 1)
                .min_by_key(|(_, kept)| kept.used)
                .map(|(key, _)| key.clone()),
            false => None,
        };
        let surplus = surplus.and_then(|key| kept.remove(&key));
        let new = || Arc::new(NodeSource::new(address, epoch, self.client, &self.carriers));
        let found = kept.entry(key).or_insert_with(|| Kept { source: new(), used: Instant::now() });
        found.used = Instant::now();
        let source = Arc::clone(&found.source);
        drop(kept);
        drop(surplus);
        source
    }

    /// Ends what has been idle for long; called now and then.
    pub(crate) fn drop_idle(&self) {
        let is_idle = |kept: &mut Kept| {
            if Arc::strong_count(&kept.source) > 1 {
                kept.used = Instant::now();
            }
            kept.used.elapsed() >= KEPT_FOR
        };
        let idle: Vec<Kept> = self.kept.lock().extract_if(|_, kept| is_idle(kept)).map(|(_, kept)| kept).collect();
        drop(idle);
    }

    /// Ends everything: the node stops.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.kept.lock());
        drop(all);
    }
}

/// One node that blocks are copied from.
pub(crate) struct NodeSource {
    address: String,
    epoch: Epoch,
    client: ClientId,
    carriers: Arc<Carriers>,
    /// Transports opened so far: each has a seed of its own, or all would have the same faults.
    opened: AtomicU64,
    connections: Bounded<Connection>,
    transports: Bounded<Box<dyn Transport>>,
}

impl NodeSource {
    fn new(address: &str, epoch: Epoch, client: ClientId, carriers: &Arc<Carriers>) -> Self {
        let (connections, transports) = (Bounded::new(AT_ONCE), Bounded::new(AT_ONCE));
        let (address, carriers) = (address.to_owned(), Arc::clone(carriers));
        Self { address, epoch, client, carriers, opened: AtomicU64::new(0), connections, transports }
    }

    /// Waits for a turn at the source, for as long as `go_on` says yes.
    pub(crate) fn turn(&self, go_on: &dyn Fn() -> bool, until: Deadline) -> Result<Turn<'_>, ConnError> {
        let is_usable = |connection: &Connection| !connection.socket().has_hung_up();
        loop {
            let mut dialled = false;
            let dial = || {
                dialled = true;
                self.dial(until.capped(WELCOME))
            };
            match self.connections.take(until.capped(STEP), is_usable, dial) {
                Ok(lent) => return Ok(Turn { source: self, lent: Some(lent), is_kept: !dialled }),
                Err(ConnError::TimedOut) if !dialled && !until.has_passed() && go_on() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn dial(&self, until: Deadline) -> Result<Connection, ConnError> {
        let dial = Dial { client: self.client, epoch: Some(self.epoch), lease_millis: 0 };
        let options = TcpOptions::default();
        Ok(dial.to(Place::Network(resolve(&self.address, until)?, &options), until)?.connection)
    }

    fn open(&self, until: Deadline) -> Result<Box<dyn Transport>, ConnError> {
        let address = resolve(&self.address, until)?;
        let target = Target { address, epoch: self.epoch, client: self.client, lease_millis: 0 };
        self.carriers.open(&target, self.opened.fetch_add(1, Ordering::Relaxed), until)
    }
}

/// A pull's turn at a source. No more pulls than [`AT_ONCE`] have one, so that a transport is there for each.
pub(crate) struct Turn<'a> {
    source: &'a NodeSource,
    /// There until the turn ends.
    lent: Option<Lent<'a, Connection>>,
    /// Whether the connection is of an earlier pull.
    is_kept: bool,
}

impl Turn<'_> {
    /// One request and its reply. Gives up when `go_on` says no.
    pub(crate) fn ask(
        &mut self,
        request: &Request,
        go_on: &dyn Fn() -> bool,
        until: Deadline,
    ) -> Result<Reply, ConnError> {
        let Some(lent) = &mut self.lent else { return Err(ConnError::Closed) };
        // A source that has been stopped says nothing, while its kernel goes on taking what is sent.
        let kept = self.is_kept.then(|| exchange(lent.get(), request, go_on, until.capped(WELCOME)));
        self.is_kept = false;
        let reply = match kept {
            Some(Ok(reply)) => reply,
            Some(Err(_)) if go_on() => {
                self.source.has_failed();
                *lent.get() = self.source.dial(until.capped(WELCOME))?;
                exchange(lent.get(), request, go_on, until)?
            }
            Some(Err(error)) => return Err(error),
            None => exchange(lent.get(), request, go_on, until)?,
        };
        match reply {
            Reply::Refused(refusal) => Err(ConnError::Refused(refusal)),
            reply => Ok(reply),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(mut lent) = self.lent.take()
            && !lent.get().socket().is_closed()
        {
            lent.give_back();
        }
    }
}

fn is_usable(transport: &impl Transport) -> bool {
    transport.health() != Health::Down
}

impl Source for NodeSource {
    fn idle_transport(&self) -> Option<OwnTransport<'_>> {
        self.transports.take_idle(is_usable)
    }

    fn transport(&self, until: Deadline) -> Result<OwnTransport<'_>, ConnError> {
        self.transports.take(until, is_usable, || self.open(until.capped(WELCOME)))
    }

    /// The next pull connects anew.
    fn has_failed(&self) {
        self.connections.clear();
        self.transports.clear();
    }

    fn is_late(&self) {}

    fn is_silent(&self, for_so_long: Duration) -> bool {
        for_so_long >= SILENCE
    }
}

/// Sends a request and waits for its reply. On an error the connection is of no more use.
fn exchange(
    connection: &mut Connection,
    request: &Request,
    go_on: &dyn Fn() -> bool,
    until: Deadline,
) -> Result<Reply, ConnError> {
    let number = connection.send(request, &[], until.capped(WELCOME))?;
    loop {
        // An answer that has begun is not cut off where a look whether the node stops comes in between.
        connection.set_frame_budget(until.remaining());
        let error = match connection.recv(until.capped(STEP)) {
            Ok((answered, reply)) if answered == number => return Ok(reply),
            Ok(_) => ConnError::Unexpected("a reply to another request"),
            Err(ConnError::TimedOut) if !until.has_passed() && go_on() && !connection.socket().is_closed() => continue,
            Err(error) => error,
        };
        // Without its reply the request would answer the next one.
        connection.socket().close();
        return Err(error);
    }
}
