//! The pool under a policy that knows sessions: what is known of uses reaches it, whichever way the uses come.

use super::tests::common::{create_with, id, sums};
use super::*;
use crate::placed::Placed;
use std::sync::Arc;
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_types::{ClientId, Deadline, Key, Millis, Origin, SessionId};
use tidepool_wire::message::Run;

const BLOCK: usize = 4080;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

fn at_minute(minute: u64) {
    NOW.set(Duration::from_secs(60 * minute));
}

/// Two sessions.
const SESSIONS: [&str; 2] = ["a", "b"];

/// The key of a session's block.
fn key(session: &str, depth: u32) -> String {
    format!("{session}{depth:03}")
}

fn used(session: &str, turn: u32, depth: u32) -> Option<UsedFor> {
    let session = SessionId(session.bytes().next()?.into());
    let origin = Origin { session, parent: None, turn, pause: Millis(0), calls: None, last: false };
    Some(UsedFor { depth, origin })
}

fn store(memory: &Arc<NodeMemory>, key: &str, used: Option<UsedFor>) {
    let key = key.as_bytes();
    let name = Key::new(key).unwrap();
    let space = memory.reserve(name, id(key), BLOCK as u64, ClientId(1), Deadline::after(Duration::ZERO), &|| true);
    let reservation = space.unwrap().used_for(used).named();
    // SAFETY: the reservation's bytes are its own.
    unsafe { reservation.address(0, BLOCK as u64).unwrap().write_bytes(7, BLOCK) };
    reservation.seal(&sums(key, &[7; BLOCK])).unwrap();
}

/// A use of one block, of which this much is known.
type UseOne = fn(&Arc<NodeMemory>, &BlockId, Option<UsedFor>);

const WAYS: [(&str, UseOne); 4] = [
    ("touched", |memory, id, used| {
        let slot = memory.peek(id).unwrap().name();
        memory.touch(&[slot], &Run::of_uses([used]));
    }),
    ("confirmed", |memory, id, used| assert!(memory.confirm_for(&[*id], &Run::of_uses([used]))[0].is_some())),
    ("sent", |memory, id, used| memory.let_go(vec![memory.hold(id, None).unwrap().used_for(used)])),
    ("put again", |memory, _, used| store(memory, &key("a", 3), used)),
];

/// The blocks that are evicted for five others, the first one first: after each session has put four, and then the first session
/// has used its last block once more, in one of these ways.
fn evicted(use_one: UseOne, knows: bool) -> Vec<String> {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let page = Placed::run_bytes(BLOCK as u64, 4);
    let memory = create_with(dir.path(), "n", Epoch(1), (9 * page, page / 2), (Policy::Agents, Rule::All));
    memory.inner.lock().clock = || NOW.get();
    let known = |used: Option<UsedFor>| used.filter(|_| knows);
    for (minute, session) in (0..).zip(SESSIONS) {
        at_minute(minute);
        (0..4).rev().for_each(|depth| store(&memory, &key(session, depth), known(used(session, 0, depth))));
    }
    at_minute(2);
    use_one(&memory, &id(key("a", 3).as_bytes()), known(used("a", 1, 3)));
    let mut left: Vec<String> = SESSIONS.iter().flat_map(|session| (0..4).map(|depth| key(session, depth))).collect();
    let mut gone = Vec::new();
    for other in 0..5 {
        at_minute(3 + u64::from(other));
        store(&memory, &key("x", other), None);
        gone.extend(left.extract_if(.., |key| !memory.contains(&id(key.as_bytes()))));
    }
    gone
}

/// A session that goes on keeps its front, which it does not read again where its engine has it. The other goes from its end.
#[test]
fn a_node_that_knows_sessions_spares_the_one_that_goes_on() {
    for (way, use_one) in WAYS {
        assert_eq!(evicted(use_one, true), ["b003", "b002", "b001", "b000"], "{way}");
        assert_eq!(evicted(use_one, false), ["a002", "a001", "a000", "b003"], "{way}, and nothing is known");
    }
}

/// Uses of several requests may come in one message; what is known of each is its own.
#[test]
fn a_batch_of_uses_may_be_of_several_requests() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let page = Placed::run_bytes(BLOCK as u64, 4);
    let memory = create_with(dir.path(), "n", Epoch(1), (600 * page, page / 2), (Policy::Agents, Rule::All));
    memory.inner.lock().clock = || NOW.get();
    at_minute(0);
    let all = |turn| SESSIONS.iter().flat_map(move |session| (0..300).map(move |depth| (*session, turn, depth)));
    let put = |(session, turn, depth)| store(&memory, &key(session, depth), used(session, turn, depth));
    all(0).collect::<Vec<_>>().into_iter().rev().for_each(put);
    let keys: Vec<String> = all(0).map(|(session, _, depth)| key(session, depth)).collect();
    let ids: Vec<BlockId> = keys.iter().map(|key| id(key.as_bytes())).collect();
    let slots: Vec<_> = ids.iter().map(|id| memory.peek(id).unwrap().name()).collect();
    at_minute(1);
    memory.touch(&slots, &Run::of_uses(all(1).map(|(session, turn, depth)| used(session, turn, depth))));
    at_minute(2);
    let turn = Run { items: 1, depth: 299, origin: used("b", 2, 0).map(|used| used.origin) };
    memory.confirm_for(&ids[599..], &[turn]);
    at_minute(3);
    (0..200).for_each(|other| store(&memory, &key("x", other), None));
    let gone: Vec<&String> = keys.iter().filter(|key| !memory.contains(&id(key.as_bytes()))).collect();
    assert!(gone.iter().copied().eq(&keys[100..300]), "the end of the session that did not go on: {gone:?}");
}
