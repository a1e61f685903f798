//! One node as this client knows it: the [way](super::way) to it, its [health](super::health), whether it is
//! [full](super::fullness), and the connections and transports that callers take turns with.

use super::context::Context;
use super::fullness::Fullness;
use super::health::{Health, SILENCE};
use super::mapped_node::MappedNode;
use super::way::{HostSays, WELCOME, Way};
use crate::catalogs::NodeKey;
use crate::counters::add;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidepool_transfer::carriers::Target;
use tidepool_transfer::conn::{ConnError, Connection};
use tidepool_transfer::direct::{self, Direct};
use tidepool_transfer::fetch::{OwnTransport, Source};
use tidepool_transfer::lent::{Bounded, Lent};
use tidepool_transfer::transport::{self, Transport};
use tidepool_types::{BlockId, Deadline};
use tidepool_wire::message::{BATCH_IDS, Judge, Reason, Reply, Request};

/// How long a node may take to empty a full lease ring; then the oldest leases are lost.
const RING_EMPTIED: Duration = Duration::from_millis(100);
/// Transports to one node that are used at once; each has streams of its own.
const TRANSPORTS: usize = 4;
/// How often a node is told that closed connections are not written through any more.
const TELL_TIMES: u32 = 5;

/// One node.
pub(crate) struct Peer {
    pub(crate) key: NodeKey,
    pub(crate) way: Way,
    pub(crate) fullness: Fullness,
    health: Health,
    context: Arc<Context>,
    connections: Bounded<Connection>,
    transports: Bounded<Box<dyn Transport>>,
    /// How often the node is still to be told that nothing is written any more through connections that were closed.
    abandoned: AtomicU32,
}

/// A request that has been sent and waits for its reply.
pub(crate) struct Asked(u64);

impl Peer {
    fn new(key: NodeKey, way: Way, context: &Arc<Context>) -> Self {
        Self {
            key,
            way,
            fullness: Fullness::default(),
            health: Health::default(),
            connections: Bounded::new(context.connections),
            transports: Bounded::new(TRANSPORTS),
            context: Arc::clone(context),
            abandoned: AtomicU32::new(0),
        }
    }

    /// The node that listens at `path`: see [`Way::on_this_host`].
    pub(crate) fn on_this_host(
        path: &Path,
        context: &Arc<Context>,
        is_named: impl FnOnce(&NodeKey) -> bool,
        until: Deadline,
    ) -> Result<Self, ConnError> {
        let (key, way) = Way::on_this_host(path, context, is_named, until)?;
        Ok(Self::new(key, way, context))
    }

    /// The node that a catalog says is at `address`. Nothing is sent yet.
    pub(crate) fn on_the_network(key: NodeKey, address: SocketAddr, context: &Arc<Context>) -> Self {
        Self::new(key, Way::Network(address), context)
    }

    /// The node's memory, while it is mapped and its owner there.
    pub(crate) fn memory(&self) -> Option<&Arc<MappedNode>> {
        self.way.memory()
    }

    /// Leases blocks that were found in the node's memory, or read there.
    pub(crate) fn lease(&self, ids: &[BlockId], lease: Duration) {
        // A judgement of nothing: the node empties the rings before any.
        let look = Request::Judge(Judge { remove: false, writer: None, ids: Vec::new() });
        if let Some(memory) = self.memory() {
            memory.lease(ids, lease, || drop(self.call(&look, Deadline::after(RING_EMPTIED))));
        }
    }

    /// Whether the node is passed by until a probe has heard from it.
    pub(crate) fn is_down(&self) -> bool {
        self.health.is_down()
    }

    /// The node cannot be reached, or broke off: pass it by from now on.
    pub(crate) fn set_down(&self) {
        self.pass_by();
        // Also when it was down already: whoever says so has just tried.
        self.context.probe.ring();
    }

    fn pass_by(&self) {
        if self.health.pass_by() {
            add(&self.context.counters.nodes_down, 1);
            tracing::debug!(node = %self.key.name, "does not answer; passed by until it does");
        }
    }

    /// The node has kept a caller waiting: have it probed.
    pub(crate) fn set_suspect(&self) {
        if self.health.suspect() {
            self.context.probe.ring();
        }
    }

    /// Whether a probe is wanted.
    pub(crate) fn wants_probe(&self) -> bool {
        self.health.wants_probe()
    }

    /// Whether the caller may probe: nobody else does. To be ended by [`Peer::end_probe`].
    pub(crate) fn start_probe(&self) -> bool {
        self.health.start_probe()
    }

    pub(crate) fn end_probe(&self) {
        self.health.end_probe();
    }

    /// Finds out whether the node answers, and remembers it. False when another incarnation is in its place.
    pub(crate) fn probe(&self) -> bool {
        let error = match self.connect(Deadline::after(WELCOME)) {
            Ok(_) => return self.heard(),
            // It lives: it only has no room for one more connection.
            Err(ConnError::Refused(refusal)) if refusal.reason != Reason::Stopping => return self.heard(),
            Err(error) => error,
        };
        self.health.probed(false);
        self.pass_by();
        self.connections.clear();
        self.transports.clear();
        !matches!(error, ConnError::WrongEpoch(_))
    }

    fn heard(&self) -> bool {
        self.health.probed(true);
        true
    }

    /// Whether the node's process has ended, so that what it held is gone: its host refuses connections. Not known of a
    /// host that is silent.
    pub(crate) fn has_ended(&self, until: Deadline) -> bool {
        if self.health.host_was_silent() {
            return false;
        }
        match self.way.ask_host(until) {
            HostSays::Refused => true,
            HostSays::Unknown => false,
            HostSays::Nothing => {
                self.health.host_is_silent();
                false
            }
        }
    }

    /// A connection was closed whose reservations, known or not, the node may still count as being written to.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(TELL_TIMES, Ordering::Release);
    }

    /// Tells the node that nothing is written any more through closed connections; called now and then. Several times,
    /// because a node that was stopped may come to the closed connection after it has come to this.
    pub(crate) fn give_back_abandoned(&self) {
        if self.abandoned.load(Ordering::Acquire) > 0
            && self.call(&Request::Abort(Vec::new()), Deadline::after(WELCOME)).is_ok()
        {
            self.abandoned.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Ends what is idle, so that what is connected next knows of a change.
    pub(crate) fn connect_anew(&self) {
        self.connections.clear();
        self.transports.clear();
    }

    /// Ends what is idle; what is in use ends when it is given back.
    pub(crate) fn close(&self) {
        self.health.pass_by();
        if let Way::Memory(memory) = &self.way {
            memory.set_gone();
        }
        self.connections.clear();
        self.transports.clear();
    }

    /// A connection of the caller's own.
    pub(crate) fn connection(&self, until: Deadline) -> Result<Lent<'_, Connection>, ConnError> {
        if self.is_down() {
            return Err(ConnError::Closed);
        }
        let fit = |connection: &Connection| !connection.socket().has_hung_up();
        self.connections.take(until, fit, || self.connecting(|| self.connect(until)))
    }

    /// A desk at the node itself, if it is in this process and its memory is mapped writable.
    pub(crate) fn desk(&self) -> Option<Box<dyn Direct>> {
        let is_writable = self.memory().is_some_and(|memory| memory.mapping.is_writable());
        if !is_writable || self.is_down() { None } else { direct::open(self.key.epoch, self.context.client) }
    }

    /// Connects, and draws the conclusion from a failure.
    fn connecting<T>(&self, connect: impl FnOnce() -> Result<T, ConnError>) -> Result<T, ConnError> {
        let started = Instant::now();
        connect().inspect_err(|error| match error {
            // As long as a probe would have waited.
            ConnError::TimedOut if started.elapsed() >= WELCOME => self.set_down(),
            error => self.note(error),
        })
    }

    /// One request and its reply.
    pub(crate) fn call(&self, request: &Request, until: Deadline) -> Result<Reply, ConnError> {
        let mut connection = self.connection(until)?;
        let reply = self.exchange(connection.get(), request, &[], until);
        if !connection.get().socket().is_closed() {
            connection.give_back();
        }
        reply
    }

    /// One request about many blocks, cut into as many as it takes, and their answers put together. An answer that is
    /// missing is missing for all blocks after it too. Each request has its own deadline, from `until`.
    pub(crate) fn call_about<I, T>(
        &self,
        blocks: &[I],
        request: impl Fn(&[I]) -> Request,
        until: impl Fn() -> Deadline,
        read: impl Fn(Reply) -> Option<Vec<T>>,
    ) -> Vec<T> {
        self.try_call_about(blocks, request, until, read).0
    }

    /// As [`Peer::call_about`], with the error that the missing answers are missing for.
    pub(crate) fn try_call_about<I, T>(
        &self,
        blocks: &[I],
        request: impl Fn(&[I]) -> Request,
        until: impl Fn() -> Deadline,
        read: impl Fn(Reply) -> Option<Vec<T>>,
    ) -> (Vec<T>, Option<ConnError>) {
        let mut answers = Vec::with_capacity(blocks.len());
        for piece in blocks.chunks(BATCH_IDS) {
            match self.call(&request(piece), until()).map(&read) {
                Ok(Some(answer)) if answer.len() == piece.len() => answers.extend(answer),
                Ok(_) => return (answers, Some(ConnError::Unexpected("not an answer to this question"))),
                Err(error) => return (answers, Some(error)),
            }
        }
        (answers, None)
    }

    /// One request and its reply on a connection that the caller has. On an error other than a refusal it is closed.
    pub(crate) fn exchange(
        &self,
        connection: &mut Connection,
        request: &Request,
        payload: &[IoSlice<'_>],
        until: Deadline,
    ) -> Result<Reply, ConnError> {
        let asked = self.ask(connection, request, payload, until)?;
        self.answer(connection, asked, until)
    }

    /// The first half of an exchange: sends the request. Its reply must be read before the next request is sent.
    pub(crate) fn ask(
        &self,
        connection: &mut Connection,
        request: &Request,
        payload: &[IoSlice<'_>],
        until: Deadline,
    ) -> Result<Asked, ConnError> {
        let sent = connection.send(request, payload, until).map(Asked);
        sent.inspect_err(|error| self.give_up(connection, error))
    }

    /// The second half of an exchange: waits for the reply.
    pub(crate) fn answer(
        &self,
        connection: &mut Connection,
        asked: Asked,
        until: Deadline,
    ) -> Result<Reply, ConnError> {
        match self.receive(connection, asked, until) {
            Ok(Reply::Refused(refusal)) => Err(ConnError::Refused(refusal)),
            answered => answered.inspect_err(|error| self.give_up(connection, error)),
        }
    }

    /// Without its reply a request would answer the next one.
    fn give_up(&self, connection: &Connection, error: &ConnError) {
        connection.socket().close();
        self.note(error);
    }

    fn receive(&self, connection: &mut Connection, Asked(number): Asked, until: Deadline) -> Result<Reply, ConnError> {
        loop {
            match connection.recv(until.capped(SILENCE)) {
                Ok((answered, reply)) if answered == number => return Ok(reply),
                // What the node could not read has no number; the node closes the connection.
                Ok((0, reply @ Reply::Refused(_))) => {
                    connection.socket().close();
                    return Ok(reply);
                }
                Ok(_) => return Err(ConnError::Unexpected("a reply to another request")),
                Err(ConnError::TimedOut) if !until.has_passed() && !connection.socket().is_closed() => {
                    self.set_suspect();
                    if self.is_down() {
                        return Err(ConnError::TimedOut);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Draws the conclusion from a failure.
    fn note(&self, error: &ConnError) {
        match error {
            // It lives, and is busy.
            ConnError::Refused(refusal) if refusal.reason != Reason::Stopping => {}
            // Perhaps it was only not given the time.
            ConnError::TimedOut => self.set_suspect(),
            _ => self.set_down(),
        }
    }

    fn connect(&self, until: Deadline) -> Result<Connection, ConnError> {
        self.way.connect(&self.context, self.key.epoch, until)
    }
}

impl Source for Peer {
    fn idle_transport(&self) -> Option<OwnTransport<'_>> {
        if self.is_down() { None } else { self.transports.take_idle(is_usable) }
    }

    /// Only for nodes on the network.
    fn transport(&self, until: Deadline) -> Result<OwnTransport<'_>, ConnError> {
        let Way::Network(address) = self.way else { return Err(ConnError::Closed) };
        if self.is_down() {
            return Err(ConnError::Closed);
        }
        let Context { client, carriers, .. } = &*self.context;
        let lease_millis = self.context.lease_millis();
        let target = Target { address, epoch: self.key.epoch, client: *client, lease_millis };
        // All of a client's transports have the same faults: a test counts on them.
        let open = || carriers.open(&target, 0, until.capped(WELCOME));
        self.transports.take(until, is_usable, || self.connecting(open))
    }

    fn has_failed(&self) {
        self.set_down();
    }

    fn is_late(&self) {
        self.set_suspect();
    }

    fn is_silent(&self, _for_so_long: Duration) -> bool {
        self.is_down()
    }
}

fn is_usable(transport: &impl Transport) -> bool {
    transport.health() != transport::Health::Down
}
