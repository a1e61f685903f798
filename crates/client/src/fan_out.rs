//! Asking many nodes at once.

use crate::client::Client;
use crate::error::NodeError;
use crate::members::ask;
use crate::peers::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_locks::Mutex;
use tidepool_types::{Deadline, NodeName};
use tidepool_wire::message::{Reply, Request};

/// Nodes asked at once.
const AT_ONCE: usize = 16;

impl Client {
    /// Every node that could hold something: this host's, and those that the catalogs do not hold for dead. Then the
    /// names of those that cannot be asked: the catalogs hold them for dead, and they may come back with what they hold,
    /// or there is no way to their address; or no catalog answers, and their sockets on this host do not either.
    pub(crate) fn everyone(&self, deadline: Deadline) -> (Vec<Arc<Peer>>, Vec<NodeName>) {
        let core = self.core();
        let answered = core.refresh_members(for_catalogs(deadline));
        let table = core.peers.table();
        let mut unanswered: Vec<NodeName> = table.lost().into_iter().chain(table.unreached().cloned()).collect();
        if !answered {
            unanswered.extend(core.peers.unheard());
        }
        (table.reachable().cloned().collect(), unanswered)
    }
}

/// How long catalogs may take, so that there is time left for the nodes: with several catalogs stopped one after the other is
/// waited for.
pub(crate) fn for_catalogs(deadline: Deadline) -> Deadline {
    Deadline::after(deadline.remaining() / 2)
}

/// Asks every peer its own question, all at once; answers come in the order of `questions`.
pub(crate) fn fan_out(questions: &[(Arc<Peer>, Request)], deadline: Deadline) -> Vec<Result<Reply, NodeError>> {
    let answers = at_once(questions, |(peer, request)| ask(peer, request, deadline));
    answers.into_iter().map(|answer| answer.unwrap_or(Err(NodeError::NoNode))).collect()
}

/// Does `work` for every item, for at most [`AT_ONCE`] at a time; results come in the order of `items`.
pub(crate) fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    if let [item] = items {
        return vec![Some(work(item))];
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let run = || {
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            let result = work(item);
            results.lock()[index] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..items.len().min(AT_ONCE) {
            // Without a thread the others have more to do.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    results.into_inner()
}
