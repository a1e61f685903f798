//! Questions to all catalogs at once: every node that any of them knows, and having a node forgotten.

use super::answers::{Member, NodeKey};
use super::peer::{Answer, Peer, Standing};
use super::{Catalogs, Census, Forgotten};
use crate::fan_out::at_once;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::catalog_client::CatalogClient;
use tidepool_schema::{ForgetRequest, Incarnation, MembersReply, MembersRequest};
use tidepool_types::Deadline;
use tonic::transport::Channel;
use tonic::{Response, Status};

impl Catalogs {
    /// What each catalog says, in the order of their addresses.
    fn ask_each<T: Send, F>(
        &self,
        deadline: Deadline,
        call: impl Fn(CatalogClient<Channel>) -> F + Sync,
    ) -> Vec<(&Peer, Answer<T>)>
    where
        F: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let Some(runtime) = &self.runtime else { return Vec::new() };
        let ask = |peer: &Arc<Peer>| {
            let within = match peer.standing() {
                Standing::Down => deadline.remaining().min(self.config.attempt),
                _ => deadline.remaining(),
            };
            peer.try_to_ask(runtime, within, &call)
        };
        let answers = at_once(&self.peers, ask).into_iter().map(|answer| answer.unwrap_or(Answer::None));
        self.peers.iter().map(|peer| &**peer).zip(answers).collect()
    }

    pub(super) fn ask_census(&self, deadline: Deadline) -> Census {
        let call =
            |mut client: CatalogClient<Channel>| async move { client.members(MembersRequest { hidden: true }).await };
        let mut census = Census::default();
        let mut members: HashMap<NodeKey, Member> = HashMap::new();
        for (peer, answer) in self.ask_each(deadline, call) {
            let Answer::Reply(reply) = answer else { continue };
            if read_members(reply, &mut census, &mut members).is_none() {
                tracing::warn!(catalog = peer.address, "catalog gave an answer that contradicts itself");
            }
        }
        census.members = members.into_values().collect();
        census
    }

    pub(super) fn ask_forget(&self, node: &NodeKey, deadline: Deadline) -> Forgotten {
        let call = |mut client: CatalogClient<Channel>| {
            let incarnation = Incarnation { name: node.name.to_string(), epoch: node.epoch.0 };
            let request = ForgetRequest { node: Some(incarnation) };
            async move { client.forget(request).await }
        };
        let mut forgotten = Forgotten::default();
        for (peer, answer) in self.ask_each(deadline, call) {
            match answer {
                Answer::Reply(reply) => forgotten.by += usize::from(reply.known),
                Answer::Refused(message) => forgotten.refused = Some(message),
                Answer::None => forgotten.unanswered.push(peer.address.clone()),
            }
        }
        forgotten
    }
}

/// Adds what one catalog knows. Of two that know the same life of a node, the one that heard from it last is right.
fn read_members(reply: MembersReply, census: &mut Census, known: &mut HashMap<NodeKey, Member>) -> Option<()> {
    let members: Vec<Member> = reply.members.into_iter().map(Member::from_wire).collect::<Option<_>>()?;
    let forgotten: Vec<NodeKey> = reply.forgotten.into_iter().map(NodeKey::from_wire).collect::<Option<_>>()?;
    let known_for = Duration::from_millis(reply.known_millis);
    for member in members {
        let left = member.left;
        let entry = known.entry(NodeKey::of(&member.node)).or_insert_with(|| member.clone());
        if member.silent < entry.silent {
            let left = entry.left;
            *entry = Member { left, ..member };
        }
        entry.left |= left;
    }
    census.forgotten.extend(forgotten);
    census.known_for = census.known_for.max(Some(known_for));
    Some(())
}
