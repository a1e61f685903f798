//! One node as this client reaches it: through its mapped memory and Unix socket, or over TCP.
//!
//! A node that did not answer is *down* until a probe in the background hears from it: callers pass it by, so it costs one
//! time-out and not one per call. A wait that is in vain makes the node *suspect*, no more: it may have ended early because
//! its caller was in a hurry, which says nothing about the node. A suspect is probed, and that decides: while the probe goes
//! unanswered for too long, and after it has failed, everyone passes the node by.

use super::mapped_node::MappedNode;
use super::pool;
use crate::bell::Bell;
use crate::bounded::{Bounded, Lent};
use crate::catalogs::NodeKey;
use crate::counters::{Counters, add};
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidepool_locks::Mutex;
use tidepool_store::{LeaseWriter, Mapping};
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_transfer::direct::{self, Direct};
use tidepool_transfer::fault::{FaultPlan, Faulty};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::transport::{Health, Transport as _};
use tidepool_types::{BlockId, ClientId, Deadline, NodeName};
use tidepool_wire::message::{BATCH_IDS, Hello, Judge, Reason, Reply, Request, Welcome};

/// How long a node that could make no room is asked after all others: each time it may take as long as the deadline.
const FULL_FOR: Duration = Duration::from_secs(1);
/// A wait that has lasted this long makes the node suspect; a probe that has, has it passed by.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);
/// How long a node may take to welcome a connection.
const WELCOME: Duration = Duration::from_secs(1);
/// How long a host may take to refuse a connection to a node that has ended.
const REFUSAL: Duration = Duration::from_millis(250);
/// How long a host that was silent then is not asked again.
const UNHEARD_FOR: Duration = Duration::from_secs(2);
/// How long a node may take to empty a full lease ring; then the oldest leases are lost.
const RING_EMPTIED: Duration = Duration::from_millis(100);
/// Transports to one node that are used at once; each has streams of its own.
const TRANSPORTS: usize = 4;
/// How often a node is told that closed connections are not written through any more.
const TELL_TIMES: u32 = 5;

/// What all peers of a client share.
pub(crate) struct Context {
    pub(crate) client: ClientId,
    pub(crate) tcp: TcpConfig,
    pub(crate) faults: FaultPlan,
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

/// How a node is reached.
pub(crate) enum Reach {
    /// On this host.
    Memory(Arc<MappedNode>),
    /// Anywhere.
    Network(SocketAddr),
}

/// One node.
pub(crate) struct Peer {
    pub(crate) key: NodeKey,
    pub(crate) reach: Reach,
    context: Arc<Context>,
    connections: Bounded<Connection>,
    transports: Bounded<Faulty<TcpTransport>>,
    down: AtomicBool,
    suspect: AtomicBool,
    /// Whether a probe is under way.
    probing: AtomicBool,
    /// When it began. Short sections: reading and writing it.
    probed_since: Mutex<Option<Instant>>,
    /// Until when it counts as full. Short sections: reading and writing it.
    full_until: Mutex<Option<Instant>>,
    /// How often the node is still to be told that nothing is written any more through connections that were closed.
    abandoned: AtomicU32,
    /// When its host last neither refused nor took a connection. Short sections: reading and writing it.
    unheard_at: Mutex<Option<Instant>>,
}

/// A request that has been sent and waits for its reply.
pub(crate) struct Asked(u64);

impl Peer {
    fn new(key: NodeKey, reach: Reach, context: &Arc<Context>) -> Self {
        Self {
            key,
            reach,
            connections: Bounded::new(context.connections),
            transports: Bounded::new(TRANSPORTS),
            context: Arc::clone(context),
            down: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            probing: AtomicBool::new(false),
            probed_since: Mutex::new(None),
            full_until: Mutex::new(None),
            abandoned: AtomicU32::new(0),
            unheard_at: Mutex::new(None),
        }
    }

    /// The node that listens at `path`, if it is one, of this pool (the catalogs name it, or see [`pool`]), and its memory can
    /// be mapped.
    pub(crate) fn on_this_host(
        path: &Path,
        context: &Arc<Context>,
        is_named: impl FnOnce(&NodeKey) -> bool,
        until: Deadline,
    ) -> Result<Self, ConnError> {
        let hello = Hello { client: context.client, wants_memory: true };
        let (mut control, welcome, fds) = Connection::connect_unix(path, hello, until.capped(WELCOME))?;
        let key = key_of(&welcome)?;
        if !is_named(&key) && !pool::is_shared(&context.catalogs, &announced(&mut control, until)?) {
            return Err(ConnError::Unexpected("the node is another pool's: it announces to other catalogs"));
        }
        let (map, slab, writable) = match &fds[..] {
            [map, slab] => (map, slab, None),
            [map, slab, writable] => (map, slab, Some(writable)),
            _ => return Err(ConnError::Unexpected("the node hands out no memory")),
        };
        let unmappable = |error| ConnError::Io(std::io::Error::other(error));
        let mapping = Mapping::open(map, slab, writable).map_err(unmappable)?;
        let ring = if context.leases { open_ring(&mut control, until.capped(WELCOME)) } else { None };
        let memory = MappedNode::new(mapping, path.to_owned(), welcome.writable, control, ring);
        Ok(Self::new(key, Reach::Memory(Arc::new(memory)), context))
    }

    /// The node that a catalog says is at `address`. Nothing is sent yet.
    pub(crate) fn on_the_network(key: NodeKey, address: SocketAddr, context: &Arc<Context>) -> Self {
        Self::new(key, Reach::Network(address), context)
    }

    /// The node's memory, while it is mapped and its owner there.
    pub(crate) fn memory(&self) -> Option<&Arc<MappedNode>> {
        match &self.reach {
            Reach::Memory(memory) if !memory.is_gone() => Some(memory),
            _ => None,
        }
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
        self.down.load(Ordering::Acquire) || (self.probing.load(Ordering::Acquire) && self.keeps_probe_waiting())
    }

    fn keeps_probe_waiting(&self) -> bool {
        self.probed_since.lock().is_some_and(|since| since.elapsed() >= SILENCE)
    }

    /// The node cannot be reached, or broke off: pass it by from now on.
    pub(crate) fn set_down(&self) {
        self.pass_by();
        // Also when it was down already: whoever says so has just tried.
        self.context.probe.ring();
    }

    fn pass_by(&self) {
        if !self.down.swap(true, Ordering::AcqRel) {
            add(&self.context.counters.nodes_down, 1);
            tracing::debug!(node = %self.key.name, "does not answer; passed by until it does");
        }
    }

    /// The node could make no room before the deadline of a put.
    pub(crate) fn set_full(&self) {
        *self.full_until.lock() = Some(Instant::now() + FULL_FOR);
    }

    /// Whether a put had better try others first.
    pub(crate) fn is_full(&self) -> bool {
        self.full_until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// The node has kept a caller waiting: have it probed.
    pub(crate) fn set_suspect(&self) {
        if !self.suspect.swap(true, Ordering::AcqRel) {
            self.context.probe.ring();
        }
    }

    /// Whether a probe is wanted.
    pub(crate) fn wants_probe(&self) -> bool {
        self.down.load(Ordering::Acquire) || self.suspect.load(Ordering::Acquire)
    }

    /// Whether the caller may probe: nobody else does. To be ended by [`Peer::end_probe`].
    pub(crate) fn start_probe(&self) -> bool {
        let free = !self.probing.swap(true, Ordering::AcqRel);
        if free {
            *self.probed_since.lock() = Some(Instant::now());
        }
        free
    }

    pub(crate) fn end_probe(&self) {
        *self.probed_since.lock() = None;
        self.probing.store(false, Ordering::Release);
    }

    /// Finds out whether the node answers, and remembers it. False when another incarnation is in its place.
    pub(crate) fn probe(&self) -> bool {
        let heard = self.connect(Deadline::after(WELCOME));
        self.suspect.store(false, Ordering::Release);
        match heard {
            Ok(connection) => {
                drop(connection);
                self.down.store(false, Ordering::Release);
                true
            }
            // It lives: it only has no room for one more connection.
            Err(ConnError::Refused(refusal)) if refusal.reason != Reason::Stopping => {
                self.down.store(false, Ordering::Release);
                true
            }
            Err(error) => {
                self.pass_by();
                self.connections.clear();
                self.transports.clear();
                !matches!(error, ConnError::WrongEpoch(_))
            }
        }
    }

    /// Whether the node's process has ended, so that what it held is gone: its host refuses connections. Not known of a
    /// host that is silent.
    pub(crate) fn has_ended(&self, until: Deadline) -> bool {
        match &self.reach {
            Reach::Memory(memory) => memory.socket().has_hung_up(),
            Reach::Network(address) => self.is_refused(address, until),
        }
    }

    fn is_refused(&self, address: &SocketAddr, until: Deadline) -> bool {
        let is_recent = |at: &Instant| at.elapsed() < UNHEARD_FOR;
        let within = until.remaining().min(REFUSAL);
        if within.is_zero() || self.unheard_at.lock().as_ref().is_some_and(is_recent) {
            return false;
        }
        match TcpStream::connect_timeout(address, within).map_err(|error| error.kind()) {
            Err(ErrorKind::ConnectionRefused) => true,
            Err(ErrorKind::TimedOut) if within == REFUSAL => {
                *self.unheard_at.lock() = Some(Instant::now());
                false
            }
            _ => false,
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
        self.down.store(true, Ordering::Release);
        if let Reach::Memory(memory) = &self.reach {
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

    /// A TCP transport that is connected and unused, if there is one.
    pub(crate) fn idle_transport(&self) -> Option<Lent<'_, Faulty<TcpTransport>>> {
        if self.is_down() { None } else { self.transports.take_idle(is_usable) }
    }

    /// A TCP transport of the caller's own. Only for nodes on the network.
    pub(crate) fn transport(&self, until: Deadline) -> Result<Lent<'_, Faulty<TcpTransport>>, ConnError> {
        let Reach::Network(address) = self.reach else { return Err(ConnError::Closed) };
        if self.is_down() {
            return Err(ConnError::Closed);
        }
        let Context { client, tcp, faults, .. } = &*self.context;
        let tcp = TcpConfig { lease_millis: self.context.lease_millis(), ..tcp.clone() };
        let connect = || {
            let transport =
                TcpTransport::connect(address, self.key.epoch, *client, tcp.clone(), until.capped(WELCOME))?;
            Ok::<_, ConnError>(Faulty::new(transport, faults.clone()))
        };
        self.transports.take(until, is_usable, || self.connecting(connect))
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
    pub(crate) fn call_about<T>(
        &self,
        ids: &[BlockId],
        request: impl Fn(Vec<BlockId>) -> Request,
        until: impl Fn() -> Deadline,
        read: impl Fn(Reply) -> Option<Vec<T>>,
    ) -> Vec<T> {
        self.try_call_about(ids, request, until, read).0
    }

    /// As [`Peer::call_about`], with the error that the missing answers are missing for.
    pub(crate) fn try_call_about<T>(
        &self,
        ids: &[BlockId],
        request: impl Fn(Vec<BlockId>) -> Request,
        until: impl Fn() -> Deadline,
        read: impl Fn(Reply) -> Option<Vec<T>>,
    ) -> (Vec<T>, Option<ConnError>) {
        let mut answers = Vec::with_capacity(ids.len());
        for piece in ids.chunks(BATCH_IDS) {
            match self.call(&request(piece.to_vec()), until()).map(&read) {
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
        let (client, until) = (self.context.client, until.capped(WELCOME));
        let (mut connection, welcome) = match &self.reach {
            Reach::Memory(memory) => {
                // Mapped writes and views are only for connections that asked for memory; the descriptors are not needed.
                let hello = Hello { client, wants_memory: true };
                let (connection, welcome, _) = Connection::connect_unix(&memory.socket_path, hello, until)?;
                (connection, welcome)
            }
            Reach::Network(address) => {
                let hello = Hello { client, wants_memory: false };
                Connection::connect_tcp(*address, &TcpOptions::default(), hello, until)?
            }
        };
        if welcome.epoch != self.key.epoch {
            return Err(ConnError::WrongEpoch(welcome.epoch));
        }
        let lease = self.context.lease_millis();
        if lease > 0 {
            connection.send(&Request::Lease(lease), &[], until)?;
        }
        Ok(connection)
    }
}

/// A ring to note leases in; without one, reads through the node's memory are not leased.
fn open_ring(control: &mut Connection, until: Deadline) -> Option<LeaseWriter> {
    let (_, fds) = control.call_for_fds(&Request::LeaseRing, until).ok()?;
    let opened = LeaseWriter::open(fds.first()?);
    opened.inspect_err(|error| tracing::debug!(%error, "the node's ring for leases")).ok()
}

fn is_usable(transport: &Faulty<TcpTransport>) -> bool {
    transport.health() != Health::Down
}

/// The catalogs that a node announces to; none if it does not say.
fn announced(connection: &mut Connection, until: Deadline) -> Result<Vec<String>, ConnError> {
    match connection.call(&Request::Catalogs, &[], until) {
        Ok(Reply::Catalogs(addresses)) => Ok(addresses),
        Ok(_) | Err(ConnError::Refused(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn key_of(welcome: &Welcome) -> Result<NodeKey, ConnError> {
    let bad_name = |_| ConnError::Unexpected("the node's name is not a node's name");
    let name = NodeName::new(welcome.node.clone()).map_err(bad_name)?;
    Ok(NodeKey { name, epoch: welcome.epoch })
}
