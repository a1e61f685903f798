//! `Wait`: answers as soon as a node holds one of some blocks.

use super::lookup;
use crate::core::Core;
use crate::requests::id_chunks;
use crate::waiters::Waiter;
use std::time::Duration;
use tidepool_schema::{LONGEST_WAIT, WaitReply, WaitRequest, Want};
use tidepool_types::BlockId;
use tokio::time::Instant;
use tonic::Status;

type Ids<'a> = &'a [[u8; BlockId::LEN]];

/// Answers at once when a block is held. Otherwise when one is, or when the time is up.
pub(super) async fn wait(core: &Core, request: &WaitRequest) -> Result<WaitReply, Status> {
    let ids = id_chunks("ids", &request.ids)?;
    let wait = Duration::from_millis(request.wait_millis.into()).min(LONGEST_WAIT);
    let until = Instant::now() + wait;
    // A call whose block is held already needs no place among the waiting ones.
    let now = held(core, ids);
    if is_answer(&now) || ids.is_empty() || wait.is_zero() {
        return Ok(now);
    }
    let place = core.waiters.enter(ids)?;
    loop {
        // An addition that this does not see comes later, of a stream that the view may not know yet: then it wakes the call.
        let now = held(core, ids);
        if is_answer(&now) {
            return Ok(now);
        }
        if core.is_stopping() {
            return Err(Status::unavailable("the catalog is stopping"));
        }
        if !is_woken(&place, until).await {
            return Ok(held(core, ids));
        }
    }
}

async fn is_woken(place: &Waiter<'_>, until: Instant) -> bool {
    tokio::time::timeout_at(until, place.woken()).await.is_ok()
}

/// Whether a block is held.
pub(super) fn is_answer(reply: &WaitReply) -> bool {
    reply.held.iter().any(|held| *held > 0)
}

/// Which of `ids` a node holds.
fn held(core: &Core, ids: Ids<'_>) -> WaitReply {
    let (reply, complete) = core.answer(|view| lookup::lookup(&core.index, view, ids, Want::Exists));
    WaitReply { complete, incarnation: core.incarnation, held: reply.counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CatalogConfig;
    use crate::streams::Intake;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidepool_schema::inventory_up::Message;
    use tidepool_schema::{Deltas, Hello, InventoryUp, NodeInfo, SnapshotPage, pack_ids};

    const ROUNDS: u64 = 400;
    /// Ids that a call waits for in vain: looking them up and registering them takes a while, in which much may happen.
    const OTHERS: u64 = 2000;

    fn id(n: u64) -> BlockId {
        BlockId::from_words([n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n])
    }

    fn node(core: &Arc<Core>) -> Intake {
        let node = Some(NodeInfo { name: "a".to_owned(), ..NodeInfo::default() });
        let hello = InventoryUp { message: Some(Message::Hello(Hello { node, ack_bound_millis: 0 })) };
        Intake::admit(core.clone(), hello).unwrap().0
    }

    fn say(node: &mut Intake, message: Message) {
        node.take(InventoryUp { message: Some(message) }).unwrap();
    }

    /// Adds block after block, each a little after a call has begun to wait for it; every other one on a stream that is just as
    /// new.
    fn seal_each(core: &Arc<Core>, begun: &AtomicU64) {
        let mut stream = node(core);
        for n in 1..=ROUNDS {
            while begun.load(Ordering::Relaxed) < n {
                std::thread::yield_now();
            }
            (0..n % 64 * 500).for_each(|_| std::hint::spin_loop());
            let ids = pack_ids([id(n)].iter());
            if n % 2 == 1 {
                stream = node(core);
                say(
                    &mut stream,
                    Message::Page(SnapshotPage { snapshot: 1, last: true, ids, ..SnapshotPage::default() }),
                );
            } else {
                say(&mut stream, Message::Deltas(Deltas { first: 1, ids, kinds: vec![0].into() }));
            }
        }
    }

    #[test]
    fn no_addition_is_missed_whenever_it_comes_while_a_call_begins_to_wait() {
        let (suspect_after, dead_after) = (Duration::from_secs(600), Duration::from_secs(1200));
        let core = Arc::new(Core::new(&CatalogConfig { suspect_after, dead_after, ..CatalogConfig::default() }));
        let begun = AtomicU64::new(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let is_told = |n: u64| {
            let ids: Vec<BlockId> = (ROUNDS + 1..ROUNDS + OTHERS).chain([n]).map(id).collect();
            let request = WaitRequest { ids: pack_ids(ids.iter()), wait_millis: 10_000 };
            begun.store(n, Ordering::Relaxed);
            is_answer(&runtime.block_on(wait(&core, &request)).unwrap())
        };
        let missed = std::thread::scope(|scope| {
            scope.spawn(|| seal_each(&core, &begun));
            let missed = (1..=ROUNDS).find(|n| !is_told(*n));
            // The other thread ends in any case.
            begun.store(ROUNDS, Ordering::Relaxed);
            missed
        });
        assert_eq!(missed, None, "the addition of this round was missed");
        assert_eq!(core.waiters.counts(), (0, 0));
    }
}
