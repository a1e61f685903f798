//! Waiting until a node holds one of some blocks.
//!
//! A wait is asked for in rounds. A catalog that is stopped costs one round, and one that has lost word from a node is left for
//! another one after a round. Nothing is missed in between: each round begins with a look-up.

use super::Catalogs;
use std::time::Duration;
use tidepool_schema::{MAX_IDS, WaitRequest, pack_ids};
use tidepool_types::{BlockId, Deadline};

/// How long one round takes.
const ROUND: Duration = Duration::from_secs(1);

/// Rest after a round in which no catalog let the caller wait.
const PAUSE: Duration = Duration::from_millis(50);

impl Catalogs {
    pub(super) fn wait_a_round(&self, ids: &[BlockId], deadline: Deadline) -> Option<Vec<bool>> {
        let some = &ids[..ids.len().min(MAX_IDS)];
        let Some(mut held) = self.wait_at_a_catalog(some, deadline) else {
            std::thread::sleep(PAUSE.min(deadline.remaining()));
            return None;
        };
        held.resize(ids.len(), false);
        held.contains(&true).then_some(held)
    }

    /// Which of `ids` are held when a round at the best catalog ends; `None` when that brought no answer.
    fn wait_at_a_catalog(&self, ids: &[BlockId], deadline: Deadline) -> Option<Vec<bool>> {
        let (runtime, peer) = (self.runtime.as_ref()?, self.order().into_iter().next()?);
        // A part of what is left is for the way back.
        let wait = ROUND.min(deadline.remaining() / 10 * 9);
        let request = WaitRequest { ids: pack_ids(ids.iter()), wait_millis: wait.as_millis() as u32 };
        let reply = peer.wait(runtime, request, wait, deadline)?;
        if reply.held.len() != ids.len() {
            tracing::warn!(catalog = peer.address, "catalog gave an answer that contradicts itself");
            return None;
        }
        peer.answered(reply.complete);
        Some(reply.held.iter().map(|held| *held > 0).collect())
    }
}
