//! Asking many nodes at once.

use crate::error::NodeError;
use crate::members::ask;
use crate::peers::Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidepool_locks::Mutex;
use tidepool_types::Deadline;
use tidepool_wire::message::{Reply, Request};

/// Nodes asked at once.
const AT_ONCE: usize = 16;

/// How long catalogs may take, so that there is time left for the nodes: with several catalogs stopped one after the other is
/// waited for.
pub(crate) fn for_catalogs(deadline: Deadline) -> Deadline {
    Deadline::after(deadline.remaining() / 2)
}

/// Asks every peer its own question, all at once; answers come in the order of `questions`. A node that has ended is told
/// from one that did not answer.
pub(crate) fn fan_out(questions: &[(Arc<Peer>, Request)], deadline: Deadline) -> Vec<Result<Reply, NodeError>> {
    let answers = at_once(questions, |(peer, request)| match ask(peer, request, deadline) {
        Err(NodeError::Unreachable(name)) if peer.has_ended(deadline) => Err(NodeError::Ended(name)),
        answer => answer,
    });
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
