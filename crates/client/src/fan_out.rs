//! Asking many nodes at once.

use crate::client::Client;
use crate::error::NodeError;
use crate::members::ask;
use crate::peers::Peer;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_types::{Deadline, NodeName};
use tidepool_wire::message::{Reply, Request};

/// Nodes asked at once.
const AT_ONCE: usize = 16;

impl Client {
    /// Every node that could hold something: this host's, and those that the catalogs do not hold for dead. Then the
    /// names of those that cannot be asked: the catalogs hold them for dead, and they may come back with what they hold,
    /// or there is no way to their address.
    pub(crate) fn everyone(&self, deadline: Deadline) -> (Vec<Arc<Peer>>, Vec<NodeName>) {
        let core = self.core();
        core.refresh_members(deadline);
        let table = core.peers.table();
        let unanswered = table.lost().into_iter().chain(table.unreached().cloned()).collect();
        (table.reachable().cloned().collect(), unanswered)
    }
}

/// Asks every peer its own question, at most [`AT_ONCE`] at a time; answers come in the order of `questions`.
pub(crate) fn fan_out(questions: &[(Arc<Peer>, Request)], deadline: Deadline) -> Vec<Result<Reply, NodeError>> {
    if let [(peer, request)] = questions {
        return vec![ask(peer, request, deadline)];
    }
    let next = AtomicUsize::new(0);
    let answers: Mutex<Vec<Option<Result<Reply, NodeError>>>> = Mutex::new(vec![None; questions.len()]);
    let work = || {
        while let Some((index, (peer, request))) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            questions.get(index).map(|question| (index, question))
        } {
            let answer = ask(peer, request, deadline);
            answers.lock()[index] = Some(answer);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..questions.len().min(AT_ONCE) {
            // Without a thread the others have more to do.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    answers.into_inner().into_iter().map(|answer| answer.unwrap_or(Err(NodeError::NoNode))).collect()
}
