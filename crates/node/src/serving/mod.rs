//! One connection: its handshake, then its requests one after the other.

mod manage;
mod read;
mod write;

use crate::leases::OpenRing;
use crate::node::Shared;
use crate::process::add;
use crate::pull::Task;
use crate::spaces::LiveSpace;
use read::pinned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_locks::seats::Voice;
use tidepool_transfer::conn::{ConnError, Connection, Incoming};
use tidepool_types::Deadline;
use tidepool_wire::message::{Hello, Reason, Reply, Request, ReserveAs, SlotName, Terms, Welcome};
pub(crate) use write::Writes;

/// How long a client may take to say hello.
const HELLO_BUDGET: Duration = Duration::from_secs(5);
/// How long one frame may take to arrive once it has started.
const FRAME_BUDGET: Duration = Duration::from_secs(30);
/// How long one answer may take to leave.
const SEND_BUDGET: Duration = Duration::from_secs(30);
/// How often a client that asks on before it has read is looked at.
const READING_STEP: Duration = Duration::from_millis(1);
/// A connection may be idle for as long as it likes; the wait is in steps.
const IDLE_STEP: Duration = Duration::from_secs(3600);

/// A connection and what belongs to it.
pub(crate) struct Serving<'a> {
    shared: &'a Arc<Shared>,
    /// What the connection's client has reserved. It is freed before the connection is closed.
    writes: Writes,
    connection: Connection,
    /// Whether the client has the node's memory mapped.
    memory: bool,
    /// Views that the latest reply named. The client has them only once it has read that.
    named: Vec<SlotName>,
    /// How long what the connection reads is leased; not at all unless it has asked for it.
    lease: Option<Duration>,
    /// Where the client notes what it reads through shared memory.
    ring: Option<OpenRing>,
}

/// What a handler leaves for the loop to do.
pub(crate) enum Answer {
    /// Send this.
    Reply(Reply),
    /// It was sent already, or none is due.
    None,
    /// The request cannot be served.
    Refuse(Reason, String),
}

impl<'a> Serving<'a> {
    /// Serves a connection to its end.
    pub(crate) fn serve(shared: &'a Arc<Shared>, connection: Connection, local: bool, voice: &Voice) {
        add(&shared.counters.connections, 1);
        let end = match Self::welcome(shared, connection, local, voice) {
            Ok(mut serving) => {
                let end = serving.run();
                tracing::debug!(client = serving.writes.client.0, %end, "connection ended");
                serving.take_back_unread(&end);
                end
            }
            Err(error) => {
                tracing::debug!(%error, "no handshake");
                error
            }
        };
        // Whoever hangs up or keeps silent, as one that only looks whether the port is open, has said nothing wrong.
        if matches!(end, ConnError::Frame(_) | ConnError::Unexpected(_)) {
            add(&shared.counters.malformed, 1);
        }
        crate::process::sub(&shared.counters.connections, 1);
    }

    fn welcome(
        shared: &'a Arc<Shared>,
        mut connection: Connection,
        local: bool,
        voice: &Voice,
    ) -> Result<Self, ConnError> {
        let until = Deadline::after(HELLO_BUDGET);
        let hello = connection.accept_hello(until)?;
        let Hello { client, wants_memory } = hello;
        let space = Arc::clone(shared.spaces.at_hello(&hello));
        voice.raise();
        connection.set_frame_budget(FRAME_BUDGET);
        let memory = local && wants_memory;
        let process = if memory { shared.processes.at(&**connection.socket(), client) } else { None };
        let node = shared.config.name.to_string();
        let writable = process.is_some();
        let build = env!("CARGO_PKG_VERSION").to_owned();
        let welcome = Welcome { node, epoch: space.memory().epoch(), memory, writable, build };
        let writes = Writes::new(Arc::clone(shared), space, client, process);
        let mut serving = Self { shared, connection, memory, writes, named: Vec::new(), lease: None, ring: None };
        let descriptors = if memory { serving.writes.space().descriptors(writable) } else { Vec::new() };
        serving.connection.welcome(welcome, &descriptors, until)?;
        drop(descriptors);
        Ok(serving)
    }

    /// The space of the connection's client.
    fn space(&self) -> &LiveSpace {
        self.writes.space()
    }

    fn run(&mut self) -> ConnError {
        loop {
            let incoming = match self.connection.recv_request(Deadline::after(IDLE_STEP)) {
                Ok(incoming) => incoming,
                Err(ConnError::TimedOut) => continue,
                Err(error) => return error,
            };
            if let Err(error) = self.handle(incoming) {
                return error;
            }
        }
    }

    fn handle(&mut self, incoming: Incoming<Request>) -> Result<(), ConnError> {
        let Incoming { number, message, payload_len } = incoming;
        self.await_reading()?;
        let started = Instant::now();
        let answer = match message {
            Ok(request) => {
                let answer = self.dispatch(number, request, payload_len)?;
                self.writes.announce();
                answer
            }
            Err(error) => {
                add(&self.shared.counters.malformed, 1);
                Answer::Refuse(error.reason(), error.to_string())
            }
        };
        let until = Deadline::after(SEND_BUDGET);
        match answer {
            Answer::Reply(reply) => {
                let pinned = pinned(&reply);
                if let Err(error) = self.connection.send_reply(number, &reply, &[], &[], until) {
                    self.let_go(&pinned);
                    return Err(error);
                }
                self.named = pinned;
                self.shared.counters.observe(&reply, started.elapsed());
            }
            Answer::None => {}
            Answer::Refuse(reason, message) => self.connection.refuse(number, reason, message, until)?,
        }
        Ok(())
    }

    /// Waits until the client has read the views that the latest reply named. While that is the last thing it was sent, its
    /// end without reading says exactly that these views are nobody's; behind further replies it would say nothing.
    fn await_reading(&mut self) -> Result<(), ConnError> {
        if self.named.is_empty() {
            return Ok(());
        }
        let (socket, until) = (self.connection.socket(), Deadline::after(SEND_BUDGET));
        while socket.has_unread() && !socket.has_hung_up() {
            if until.has_passed() || self.shared.stop.wait(READING_STEP) {
                socket.close();
                return Err(ConnError::TimedOut);
            }
        }
        if socket.has_hung_up() && socket.was_left_unread(&ConnError::Closed) {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        }
        self.named.clear();
        Ok(())
    }

    fn dispatch(&mut self, number: u64, request: Request, payload_len: u64) -> Result<Answer, ConnError> {
        Ok(match request {
            Request::Hello(_) => Answer::Refuse(Reason::Invalid, "a connection says hello once".to_owned()),
            Request::Reserve(reserve) => self.reserve(&reserve, &Terms::default()),
            Request::ReserveAs(ReserveAs { terms, reserve }) => self.reserve(&reserve, &terms),
            Request::Write(write) => self.write(&write, payload_len)?,
            Request::Seal(seal) => self.writes.seal(&seal),
            Request::Fill(seal) => self.fill(&seal, payload_len)?,
            Request::Abort(slots) => self.writes.abort(&slots),
            Request::Get(get) => self.get(number, &get)?,
            Request::Confirm(asked) => self.confirm(&asked),
            Request::View(asked) => self.view(&asked),
            Request::Unview(slots) => self.unview(&slots),
            Request::Touch(touch) => self.touch(&touch),
            Request::ReportCorrupt(copies) => self.verify(&copies),
            Request::Remove(ids) => self.remove(&ids),
            Request::RemoveMatching(pattern) => self.remove_matching(&pattern),
            Request::List(list) => self.list(&list),
            Request::Pull(pull) => match Task::by_key(self.space(), &pull) {
                Ok(task) => self.pull(&task),
                Err(error) => Answer::Refuse(Reason::Invalid, error.to_string()),
            },
            Request::PullIds(pull) => self.pull(&Task::by_id(&pull)),
            Request::Stat => self.stat(),
            Request::Describe(id) => self.describe(&id),
            Request::Lease(millis) => {
                self.lease = Some(Duration::from_millis(millis.into()));
                Answer::None
            }
            Request::LeaseRing => self.open_ring(number)?,
            Request::Judge(judge) => self.judge(&judge),
            Request::Supersede(items) => self.supersede(&items),
            Request::Offer(offer) => self.offer(offer),
            Request::Drain(millis) => self.drain(Duration::from_millis(millis.into())),
            Request::Catalogs => Answer::Reply(Reply::Catalogs(self.shared.config.catalogs.clone())),
            // Requests are served one after the other: what it names has been answered.
            Request::Cancel(_) => Answer::None,
            Request::ReadRange(_) | Request::WriteRange(_) => {
                Answer::Refuse(Reason::Invalid, "no range is registered at this node".to_owned())
            }
        })
    }
}
