//! Which catalogs are asked, in which order, and how their answers are put together.

use super::answers::{Located, Member, NodeKey};
use super::peer::{Peer, Standing};
use super::wait::wait_for;
use super::{CatalogStat, Catalogs, Exists, Lookup, Members, Prefixes, StatAnswer};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::catalog_client::CatalogClient;
use tidepool_schema::{
    LeasedRequest, LookupReply, LookupReport, LookupRequest, MAX_CHAINS, MAX_IDS, MatchPrefixReply, MatchPrefixRequest,
    MembersRequest, StatRequest, Want, pack_ids,
};
use tidepool_types::{BlockId, Deadline};
use tonic::transport::Channel;
use tonic::{Response, Status};

impl Catalogs {
    /// The peers that answered last time, complete ones first.
    pub(super) fn order(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<_> = self.peers.iter().filter(|peer| peer.standing() != Standing::Down).cloned().collect();
        peers.sort_by_key(|peer| peer.standing());
        peers
    }

    /// Asks one catalog after the other until one is complete. `read` checks an answer and says whether it is complete.
    /// The best answer comes first.
    fn ask<T, U, F>(
        &self,
        deadline: Deadline,
        call: impl Fn(CatalogClient<Channel>) -> F,
        read: impl Fn(T) -> Option<(U, bool)>,
    ) -> (Vec<U>, bool)
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let Some(runtime) = &self.runtime else { return (Vec::new(), false) };
        let mut answers = Vec::new();
        for peer in self.order() {
            let within = deadline.remaining().min(self.config.attempt);
            if within.is_zero() {
                break;
            }
            let Some(reply) = peer.ask(runtime, within, &call) else { continue };
            let Some((answer, complete)) = read(reply) else {
                tracing::warn!(catalog = peer.address, "catalog gave an answer that contradicts itself");
                continue;
            };
            peer.answered(complete);
            answers.insert(0, answer);
            if complete {
                return (answers, true);
            }
        }
        (answers, false)
    }

    pub(super) fn ask_lookup(&self, ids: &[BlockId], vouch: bool, deadline: Deadline) -> Lookup {
        let mut parts = ids.chunks(MAX_IDS).map(|part| self.lookup_part(part, vouch, deadline));
        let nothing =
            || Lookup { located: Located::nowhere(0), complete: true, answered: true, vouched: HashSet::new() };
        let first = parts.next().unwrap_or_else(nothing);
        parts.fold(first, |all, part| Lookup {
            located: all.located.followed_by(&part.located),
            complete: all.complete && part.complete,
            answered: all.answered && part.answered,
            vouched: all.vouched.into_iter().filter(|node| part.vouched.contains(node)).collect(),
        })
    }

    fn lookup_part(&self, ids: &[BlockId], vouch: bool, deadline: Deadline) -> Lookup {
        let packed = pack_ids(ids.iter());
        let call = |mut client: CatalogClient<Channel>| {
            let request = LookupRequest { ids: packed.clone(), want: Want::Holders.into(), lease: false, vouch };
            async move { client.lookup(request).await }
        };
        let read = |reply: LookupReply| {
            let located = Located::from_wire(ids.len(), &reply.counts, &reply.holders, reply.nodes)?;
            let vouched: Option<HashSet<_>> = reply.vouched.into_iter().map(NodeKey::from_wire).collect();
            Some(((located, vouched?), reply.complete))
        };
        let (answers, complete) = self.ask(deadline, call, read);
        let answered = !answers.is_empty();
        // The complete answer comes first, and it alone vouches for anybody.
        let best = answers.into_iter().reduce(|(best, vouched), (other, _)| (best.merged(&other), vouched));
        let (located, vouched) = best.unwrap_or_else(|| (Located::nowhere(ids.len()), HashSet::new()));
        Lookup { located, complete, answered, vouched: if complete { vouched } else { HashSet::new() } }
    }

    pub(super) fn ask_exists(&self, ids: &[BlockId], lease: bool, deadline: Deadline) -> Exists {
        let mut all = Exists { found: Vec::with_capacity(ids.len()), complete: true };
        for part in ids.chunks(MAX_IDS) {
            let packed = pack_ids(part.iter());
            let call = |mut client: CatalogClient<Channel>| {
                let request = LookupRequest { ids: packed.clone(), want: Want::Exists.into(), lease, vouch: false };
                async move { client.lookup(request).await }
            };
            let read = |reply: LookupReply| {
                let complete = reply.complete;
                (reply.counts.len() == part.len()).then_some((reply.counts, complete))
            };
            let (answers, complete) = self.ask(deadline, call, read);
            let start = all.found.len();
            all.found.resize(start + part.len(), false);
            for answer in answers {
                all.found[start..].iter_mut().zip(&answer).for_each(|(found, count)| *found |= *count > 0);
            }
            all.complete &= complete;
        }
        all
    }

    /// Asks every catalog that answers: a lease is noted where its question was asked.
    pub(super) fn ask_leased(&self, ids: &[BlockId], deadline: Deadline) -> Vec<bool> {
        let mut all = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_IDS) {
            let packed = pack_ids(part.iter());
            let call = |mut client: CatalogClient<Channel>| {
                let request = LeasedRequest { ids: packed.clone() };
                async move { client.leased(request).await }
            };
            let mut leased = vec![false; part.len()];
            for reply in self.ask_all(deadline, call) {
                leased.iter_mut().zip(&reply.leased).for_each(|(leased, flag)| *leased |= *flag > 0);
            }
            all.extend(leased);
        }
        all
    }

    /// The answers of all catalogs that answer.
    fn ask_all<T, F>(&self, deadline: Deadline, call: impl Fn(CatalogClient<Channel>) -> F) -> Vec<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let Some(runtime) = &self.runtime else { return Vec::new() };
        let ask = |peer: Arc<Peer>| peer.ask(runtime, deadline.remaining().min(self.config.attempt), &call);
        self.order().into_iter().filter_map(ask).collect()
    }

    pub(super) fn ask_prefixes(&self, chains: &[&[BlockId]], deadline: Deadline) -> Prefixes {
        let mut room = MAX_IDS;
        let cut = |chain: &&[BlockId]| {
            let taken = chain.len().min(room);
            room -= taken;
            taken as u32
        };
        let lengths: Vec<u32> = chains.iter().take(MAX_CHAINS).map(cut).collect();
        let whole =
            lengths.iter().map(|length| *length as usize).sum::<usize>() == chains.iter().map(|c| c.len()).sum();
        let taken = chains.iter().zip(&lengths).map(|(chain, length)| &chain[..*length as usize]);
        let ids: Vec<BlockId> = taken.flatten().copied().collect();
        let packed = pack_ids(ids.iter());
        let call = |mut client: CatalogClient<Channel>| {
            let (ids, lengths, want) = (packed.clone(), lengths.clone(), Want::Holders.into());
            async move { client.match_prefix(MatchPrefixRequest { ids, lengths, want }).await }
        };
        let (answers, complete) = self.ask(deadline, call, |reply| runs(reply, &lengths));
        let answered = !answers.is_empty();
        let nothing = chains.iter().map(|_| Located::nowhere(0)).collect();
        let runs = answers.into_iter().fold(nothing, longest);
        Prefixes { runs, complete: complete && whole, answered }
    }

    pub(super) fn ask_members(&self, deadline: Deadline) -> Members {
        let call = |mut client: CatalogClient<Channel>| async move { client.members(MembersRequest::default()).await };
        let (answers, complete) = self.ask(deadline, call, |reply| {
            let members: Option<Vec<_>> = reply.members.into_iter().map(Member::from_wire).collect();
            let lease = Duration::from_millis(reply.lease_millis.into());
            Some(((members?, lease, reply.recorded), reply.complete))
        });
        let lease = answers.iter().map(|(_, lease, _)| *lease).max();
        let recorded = answers.iter().fold(0, |all, (_, _, recorded)| all | recorded);
        let mut members: BTreeMap<_, Member> = BTreeMap::new();
        for member in answers.into_iter().flat_map(|(members, ..)| members) {
            let known = members.entry(member.node.name.clone()).or_insert_with(|| member.clone());
            if member.node.state < known.node.state {
                *known = member;
            }
        }
        Members { members: members.into_values().collect(), complete, lease, recorded }
    }

    /// Tells the catalog that is asked first. It is not judged by this: a report may be large, and an older catalog does not
    /// know what it is.
    pub(super) fn ask_report(&self, report: LookupReport, deadline: Deadline) -> bool {
        let (Some(runtime), Some(peer)) = (&self.runtime, self.order().into_iter().next()) else { return false };
        let mut client = peer.client();
        let told = async { tokio::time::timeout(deadline.remaining(), client.report(report)).await };
        matches!(wait_for(runtime, told), Ok(Ok(_)))
    }

    pub(super) fn ask_stat(&self, deadline: Deadline) -> Vec<CatalogStat> {
        let Some(runtime) = &self.runtime else { return Vec::new() };
        let ask = |peer: &Arc<Peer>| {
            let within = deadline.remaining().min(self.config.attempt);
            let reply = peer.ask(runtime, within, |mut client| async move { client.stat(StatRequest {}).await });
            let answer = reply.map(|reply| StatAnswer {
                complete: reply.complete,
                incarnation: reply.incarnation,
                numbers: reply.numbers.into_iter().map(|number| (number.name, number.value)).collect(),
            });
            CatalogStat { address: peer.address.clone(), failures: peer.failures(), answer }
        };
        self.peers.iter().map(ask).collect()
    }
}

/// The runs of an answer; `None` when it contradicts itself or the question.
fn runs(reply: MatchPrefixReply, lengths: &[u32]) -> Option<(Vec<Located>, bool)> {
    let fits = reply.runs.len() == lengths.len() && reply.runs.iter().zip(lengths).all(|(run, length)| run <= length);
    if !fits {
        return None;
    }
    let ids = reply.runs.iter().map(|run| *run as usize).sum();
    let located = Located::from_wire(ids, &reply.counts, &reply.holders, reply.nodes)?;
    Some((located.split(&reply.runs), reply.complete))
}

/// Chain by chain, the longer of two runs. Each is true on its own.
fn longest(best: Vec<Located>, mut other: Vec<Located>) -> Vec<Located> {
    // Chains past the bound were not asked about.
    other.resize_with(best.len(), || Located::nowhere(0));
    best.into_iter().zip(other).map(|(a, b)| if b.len() > a.len() { b } else { a }).collect()
}
