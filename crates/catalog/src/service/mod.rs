//! The gRPC service: checks a request, answers it from the index and the members, counts it.

mod holders;
mod lookup;
mod wait;
pub(crate) mod watch;

use crate::core::Core;
use crate::members::state::Link;
use crate::members::{NameConflict, View, ViewMember};
use crate::metrics;
use crate::recorders::Reports;
use crate::requests::{check_lengths, check_report, id_chunks};
use crate::streams::Answers;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_schema::catalog_server::Catalog;
use tidepool_schema::{
    ForgetReply, ForgetRequest, Incarnation, InventoryUp, LeasedReply, LeasedRequest, LookupReply, LookupReport,
    LookupRequest, MatchPrefixReply, MatchPrefixRequest, Member, MembersReply, MembersRequest, NodeInfo, NodeState,
    Number, RecordRequest, ReportReply, StatReply, StatRequest, WaitReply, WaitRequest, WatchRequest,
};
use tidepool_types::{BlockId, Value};
use tonic::{Request, Response, Status, Streaming};

/// How long a stream may take to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// See the module's head.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Core>);

impl Service {
    /// Counts a request that is refused.
    fn rejected(&self, status: Status) -> Status {
        metrics::add(&self.0.counters.rejected, 1);
        status
    }

    fn count_keys(&self, asked: usize, found: usize, started: Instant) {
        let counters = &self.0.counters;
        metrics::add(&counters.lookup_keys, asked);
        metrics::add(&counters.found_keys, found);
        metrics::add(&counters.absent_keys, asked - found);
        counters.lookup_latency.observe(started.elapsed());
    }
}

#[tonic::async_trait]
impl Catalog for Service {
    type InventoryStream = Answers;
    type RecordStream = Reports;
    type WatchStream = watch::Events;

    async fn inventory(&self, request: Request<Streaming<InventoryUp>>) -> Result<Response<Answers>, Status> {
        let mut inbound = request.into_inner();
        let hello = tokio::time::timeout(HELLO_WITHIN, inbound.message()).await;
        let hello = hello.map_err(|_| Status::deadline_exceeded("no hello came"))??;
        let hello = hello.ok_or_else(|| Status::invalid_argument("the stream ended without a hello"))?;
        let answers = Answers::admit(self.0.clone(), hello, inbound).map_err(|status| self.rejected(status))?;
        Ok(Response::new(answers))
    }

    async fn lookup(&self, request: Request<LookupRequest>) -> Result<Response<LookupReply>, Status> {
        let started = Instant::now();
        let request = request.into_inner();
        let ids = id_chunks("ids", &request.ids).map_err(|status| self.rejected(status))?;
        let (mut reply, complete) = self.0.answer(|view| LookupReply {
            vouched: if request.vouch { vouched(view) } else { Vec::new() },
            ..lookup::lookup(&self.0.index, view, ids, request.want())
        });
        (reply.complete, reply.incarnation) = (complete, self.0.incarnation);
        if !complete {
            reply.vouched.clear();
        }
        if request.lease {
            self.0.note_leases(ids, &reply.counts);
        }
        metrics::add(&self.0.counters.lookups, 1);
        self.count_keys(ids.len(), reply.counts.iter().filter(|count| **count > 0).count(), started);
        Ok(Response::new(reply))
    }

    async fn match_prefix(&self, request: Request<MatchPrefixRequest>) -> Result<Response<MatchPrefixReply>, Status> {
        let started = Instant::now();
        let request = request.into_inner();
        let ids = id_chunks("ids", &request.ids).map_err(|status| self.rejected(status))?;
        check_lengths(&request.lengths, ids.len()).map_err(|status| self.rejected(status))?;
        let (mut reply, complete) =
            (self.0).answer(|view| lookup::match_prefix(&self.0.index, view, ids, &request.lengths, request.want()));
        (reply.complete, reply.incarnation) = (complete, self.0.incarnation);
        metrics::add(&self.0.counters.matches, 1);
        self.count_keys(ids.len(), reply.runs.iter().map(|run| *run as usize).sum(), started);
        Ok(Response::new(reply))
    }

    async fn leased(&self, request: Request<LeasedRequest>) -> Result<Response<LeasedReply>, Status> {
        let request = request.into_inner();
        let ids = id_chunks("ids", &request.ids).map_err(|status| self.rejected(status))?;
        let ids: Vec<BlockId> = ids.iter().map(|id| BlockId::from_bytes(*id)).collect();
        let leased: Vec<u8> = self.0.leased(&ids).into_iter().map(u8::from).collect();
        Ok(Response::new(LeasedReply { leased: leased.into() }))
    }

    async fn wait(&self, request: Request<WaitRequest>) -> Result<Response<WaitReply>, Status> {
        let reply = wait::wait(&self.0, request.get_ref()).await.map_err(|status| self.rejected(status))?;
        let counters = &self.0.counters;
        metrics::add(if wait::is_answer(&reply) { &counters.waits_held } else { &counters.waits_over }, 1);
        Ok(Response::new(reply))
    }

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<watch::Events>, Status> {
        let events = watch::subscribe(&self.0).map_err(|status| self.rejected(status))?;
        Ok(Response::new(events))
    }

    async fn members(&self, request: Request<MembersRequest>) -> Result<Response<MembersReply>, Status> {
        let (directory, hidden) = (&self.0.directory, request.into_inner().hidden);
        let (now, conflicts) = (directory.now(), directory.name_conflicts());
        let (members, complete) = self.0.answer(|view| {
            let shown = view.members.iter().filter(|member| hidden || directory.shows(member, now));
            shown.map(|member| described(member, now, &conflicts)).collect()
        });
        Ok(Response::new(MembersReply {
            complete,
            incarnation: self.0.incarnation,
            members,
            lease_millis: u32::try_from(self.0.lease.as_millis()).unwrap_or(u32::MAX),
            recorded: self.0.recorders.wanted(),
            known_millis: directory.known_for().as_millis() as u64,
            forgotten: if hidden { directory.forgotten() } else { Vec::new() },
        }))
    }

    async fn forget(&self, request: Request<ForgetRequest>) -> Result<Response<ForgetReply>, Status> {
        let missing = || self.rejected(Status::invalid_argument("node: it is missing; a name and an epoch are wanted"));
        let Incarnation { name, epoch } = request.into_inner().node.ok_or_else(missing)?;
        match self.0.directory.forget(&name, epoch) {
            Ok(known) => {
                tracing::info!(node = name, epoch, known, "node forgotten by request");
                Ok(Response::new(ForgetReply { known }))
            }
            Err(state) => Err(self.rejected(Status::failed_precondition(format!(
                "node {name} is {}: only a dead node can be forgotten; stop it first",
                state.word()
            )))),
        }
    }

    async fn record(&self, request: Request<RecordRequest>) -> Result<Response<Reports>, Status> {
        let reports = self.0.recorders.add(request.into_inner().wanted).map_err(|status| self.rejected(status))?;
        Ok(Response::new(reports))
    }

    async fn report(&self, request: Request<LookupReport>) -> Result<Response<ReportReply>, Status> {
        let report = request.into_inner();
        check_report(&report).map_err(|status| self.rejected(status))?;
        self.0.recorders.pass_on(&report, &self.0.counters);
        Ok(Response::new(ReportReply {}))
    }

    async fn stat(&self, _: Request<StatRequest>) -> Result<Response<StatReply>, Status> {
        let complete = self.0.directory.is_complete(&self.0.directory.view());
        let plain = |value| match value {
            Value::Counter(value) | Value::Gauge(value) => Some(value),
            Value::Histogram { .. } => None,
        };
        let metrics = self.0.metrics().into_iter();
        let numbers = metrics.filter_map(|m| plain(m.value).map(|value| Number { name: m.name.to_owned(), value }));
        Ok(Response::new(StatReply { complete, incarnation: self.0.incarnation, numbers: numbers.collect() }))
    }
}

/// The nodes that a complete answer from `view` vouches for.
fn vouched(view: &View) -> Vec<Incarnation> {
    view.living().map(|member| Incarnation { name: member.info.name.clone(), epoch: member.info.epoch }).collect()
}

fn described(member: &ViewMember, now: Duration, conflicts: &[NameConflict]) -> Member {
    let conflict = conflicts.iter().find(|conflict| conflict.name == member.info.name);
    Member {
        node: Some(NodeInfo { used_bytes: member.health.used(), ..NodeInfo::clone(&member.info) }),
        state: NodeState::from(member.state).into(),
        stream: member.stream,
        caught_up: member.standing().caught_up,
        silent_millis: now.saturating_sub(member.health.heard()).as_millis() as u64,
        left: member.health.link() == Link::Left,
        rival_address: conflict.map(|conflict| conflict.rival.clone()).unwrap_or_default(),
    }
}
