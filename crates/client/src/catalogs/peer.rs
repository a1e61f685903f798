//! One catalog as a client knows it: its channel, and whether it is worth asking.

use super::CatalogsConfig;
use super::own_connection::OwnConnection;
use super::wait::wait_for;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidepool_schema as wire;
use tidepool_schema::catalog_client::CatalogClient;
use tidepool_types::Deadline;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// How a catalog last answered, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Complete, or not asked yet.
    Good,
    /// It answered that it is not complete.
    Incomplete,
    /// It did not answer: it is skipped, and probed until it does.
    Down,
}

/// Waits at a time; a connection has room for twice as many calls. Further callers ask again and again instead.
const MOST_WAITS: usize = 128;

const GOOD: u8 = 0;
const INCOMPLETE: u8 = 1;
const DOWN: u8 = 2;

/// What a catalog said to a question.
pub(super) enum Answer<T> {
    /// What it was asked for.
    Reply(T),
    /// That it will not, and why.
    Refused(String),
    /// Nothing, in time.
    None,
}

/// See the file's head.
pub(super) struct Peer {
    pub(super) address: String,
    client: CatalogClient<Channel>,
    /// Over a connection of its own, for calls that last: a connection has room for so many calls, and these must not take
    /// the room of look-ups.
    patient: CatalogClient<Channel>,
    waits: Semaphore,
    own: OwnConnection,
    standing: AtomicU8,
    failures: AtomicU64,
    /// Whether a caller that had little time got no answer, and it is being found out whether others would.
    doubted: AtomicBool,
    config: CatalogsConfig,
}

impl Peer {
    /// Does not connect yet. Must be called inside the runtime.
    pub(super) fn new(address: &str, config: &CatalogsConfig) -> Result<Self, tonic::transport::Error> {
        let endpoint = wire::endpoint(address, config.attempt)?;
        Ok(Self {
            address: address.to_owned(),
            client: wire::client(endpoint.connect_lazy()),
            patient: wire::client(endpoint.connect_lazy()),
            waits: Semaphore::new(MOST_WAITS),
            own: OwnConnection::new(address, config.attempt),
            standing: AtomicU8::new(GOOD),
            failures: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
            config: config.clone(),
        })
    }

    pub(super) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::Acquire) {
            GOOD => Standing::Good,
            INCOMPLETE => Standing::Incomplete,
            _ => Standing::Down,
        }
    }

    /// For calls that take as long as they take: nothing is concluded from them.
    pub(super) fn client(&self) -> CatalogClient<Channel> {
        self.client.clone()
    }

    /// The same, for calls that last.
    pub(super) fn patient(&self) -> CatalogClient<Channel> {
        self.patient.clone()
    }

    /// Waits at the catalog, for `wait` and the time that an answer takes, as far as `deadline` allows. `None` when it does not
    /// let this caller wait, or does not answer.
    pub(super) fn wait(
        self: &Arc<Self>,
        runtime: &Runtime,
        request: wire::WaitRequest,
        wait: Duration,
        deadline: Deadline,
    ) -> Option<wire::WaitReply> {
        let _seat = self.waits.try_acquire().ok()?;
        let within = deadline.remaining().min(wait + self.config.attempt);
        let mut client = self.patient();
        let asked = async { tokio::time::timeout(within, client.wait(request)).await };
        let outcome = wait_for(runtime, asked);
        let _inside = runtime.enter();
        // What counts is the time that the catalog had for its answer once the wait was over.
        match self.judge(outcome, within.saturating_sub(wait)) {
            Answer::Reply(reply) => Some(reply),
            Answer::Refused(_) | Answer::None => None,
        }
    }

    /// How often the catalog was found not to answer.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Remembers how complete an answer was.
    pub(super) fn answered(&self, complete: bool) {
        self.standing.store(if complete { GOOD } else { INCOMPLETE }, Ordering::Release);
    }

    /// Asks, for `within` at most, and blocks this thread meanwhile. `None` when that brought no answer; the catalog is then
    /// skipped until it answers a probe. A caller with less time than an attempt takes cannot tell: then a probe decides.
    pub(super) fn ask<T, F>(
        self: &Arc<Self>,
        runtime: &Runtime,
        within: Duration,
        call: impl Fn(CatalogClient<Channel>) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        match self.try_to_ask(runtime, within, call) {
            Answer::Reply(reply) => Some(reply),
            Answer::Refused(_) | Answer::None => None,
        }
    }

    /// As [`Peer::ask`], with what a catalog says that refuses.
    pub(super) fn try_to_ask<T, F>(
        self: &Arc<Self>,
        runtime: &Runtime,
        within: Duration,
        call: impl Fn(CatalogClient<Channel>) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let started = Instant::now();
        let is_sound = |outcome: &Result<Result<Response<T>, Status>, Elapsed>| matches!(outcome, Ok(answer) if answer.as_ref().err().is_none_or(is_dislike));
        let mut outcome = self.own.drive(within, &call, is_sound);
        // An error may be the connection's.
        if outcome.as_ref().is_none_or(|outcome| matches!(outcome, Ok(Err(status)) if !is_dislike(status))) {
            let rest = within.saturating_sub(started.elapsed());
            let asked = async { tokio::time::timeout(rest, call(self.client.clone())).await };
            outcome = Some(wait_for(runtime, asked));
        }
        let _inside = runtime.enter();
        outcome.map_or(Answer::None, |outcome| self.judge(outcome, within))
    }

    /// The answer, or what its absence says about the catalog.
    fn judge<T>(
        self: &Arc<Self>,
        outcome: Result<Result<Response<T>, Status>, Elapsed>,
        within: Duration,
    ) -> Answer<T> {
        match outcome {
            Ok(Ok(response)) => return Answer::Reply(response.into_inner()),
            // The catalog is there and dislikes the request: asking it again would not help, skipping it neither.
            Ok(Err(status)) if is_dislike(&status) => return Answer::Refused(status.message().to_owned()),
            Ok(Err(status)) => self.suspend(&status),
            Err(_) if within < self.config.attempt => self.doubt(),
            Err(_) => self.suspend(&Status::deadline_exceeded("no answer in time")),
        }
        Answer::None
    }

    /// Skips the catalog from now on, and probes it until it answers.
    fn suspend(self: &Arc<Self>, status: &Status) {
        if self.standing.swap(DOWN, Ordering::AcqRel) == DOWN {
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(catalog = self.address, %status, "catalog does not answer, going on without it");
        Handle::current().spawn(self.clone().probe());
    }

    /// Finds out whether the catalog answers somebody who has the time to wait, and skips it if not.
    pub(super) fn doubt(self: &Arc<Self>) {
        if self.standing() == Standing::Down || self.doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        let peer = self.clone();
        Handle::current().spawn(async move {
            if let Err(status) = peer.members().await {
                peer.suspend(&status);
            }
            peer.doubted.store(false, Ordering::Release);
        });
    }

    async fn probe(self: Arc<Self>) {
        loop {
            if let Ok(complete) = self.members().await {
                tracing::info!(catalog = self.address, "catalog answers again");
                return self.answered(complete);
            }
            tokio::time::sleep(self.config.probe_every).await;
        }
    }

    /// The smallest question, within an attempt's time: is the catalog complete?
    async fn members(&self) -> Result<bool, Status> {
        let mut client = self.client.clone();
        match tokio::time::timeout(self.config.attempt, client.members(wire::MembersRequest::default())).await {
            Ok(answer) => Ok(answer?.into_inner().complete),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
    }
}

fn is_dislike(status: &Status) -> bool {
    use Code::{FailedPrecondition, InvalidArgument, ResourceExhausted, Unimplemented};
    matches!(status.code(), InvalidArgument | FailedPrecondition | ResourceExhausted | Unimplemented)
}
