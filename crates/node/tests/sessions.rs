//! What messages say of the uses of blocks reaches a node that evicts by sessions.

mod common;

use common::{Client, TestNode, id, soon, start_with};
use std::collections::BTreeSet;
use tidepool_policy::eviction::Policy;
use tidepool_transfer::ops::{Destination, Op, ReadOp};
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_transfer::transport::Transport as _;
use tidepool_types::{ClientId, Millis, Origin, SessionId, ToolId, UsedFor};
use tidepool_wire::message::{
    Ids, List, Pattern, Reply, Request, Reserve, ReserveItem, ReserveOutcome, Run, SealOutcome, SlotName, Touch,
    ViewOutcome,
};

/// With its key and its checksum, a block takes a page.
const BLOCK: usize = 4080;
const PAGE: u64 = 4096;

/// A turn of a session whose tool is quick.
fn origin(session: u64, turn: u32) -> Origin {
    let (session, calls) = (SessionId(session), Some(ToolId(1)));
    Origin { session, parent: None, turn, pause: Millis(0), calls, last: false }
}

fn run(session: u64, turn: u32, depth: u32) -> Vec<Run> {
    vec![Run { items: 1, depth, origin: Some(origin(session, turn)) }]
}

fn put(client: &mut Client, key: &str, runs: Vec<Run>) -> Option<SlotName> {
    let items = vec![ReserveItem { key: key.into(), len: BLOCK as u64 }];
    let reserve = Reserve { wait_millis: 50, mapped: client.mapping.is_some(), items, runs };
    let Reply::Reserved(outcomes) = client.call(&Request::Reserve(reserve)).unwrap() else { panic!("no answer") };
    let ReserveOutcome::Taken { slot, offset } = outcomes[0] else { return None };
    let checksums = client.fill(key.as_bytes(), slot, offset, &[7; BLOCK]);
    assert!(matches!(client.seal(slot, checksums), SealOutcome::Sealed(_)));
    Some(slot)
}

/// What is held, without using it.
fn held(client: &mut Client) -> BTreeSet<String> {
    let list = List { pattern: Pattern::All, cursor: 0, limit: 100 };
    let Reply::Keys(keys) = client.call(&Request::List(list)).unwrap() else { panic!("no answer") };
    keys.entries.into_iter().map(|entry| String::from_utf8(entry.key).unwrap()).collect()
}

/// A way in which a client uses one block, for a request that it names.
type UseOne = fn(&TestNode, &mut Client, (&str, SlotName), Vec<Run>);

fn touch(client: &mut Client, touch: Touch) {
    assert!(client.connection.send_one_way(&Request::Touch(touch)).unwrap());
    // Requests are served one after the other: it has been counted when this is answered.
    held(client);
}

const WAYS: [(&str, UseOne); 6] = [
    ("Get", |node, _, (key, _), runs| {
        let address = (node.node.data_address(), node.node.epoch());
        let mut tcp = TcpTransport::connect(address.0, address.1, ClientId(3), TcpConfig::default(), soon()).unwrap();
        let used = runs[0].origin.map(|origin| UsedFor { depth: runs[0].depth, origin });
        let (id, destination) = (id(key.as_bytes()), Destination::Allocate);
        let read = ReadOp { used: used.map(Box::new), ..ReadOp::whole(1, id, destination) };
        assert_eq!(tcp.submit(vec![Op::Read(read)], soon()), [Ok(())]);
        let mut done = Vec::new();
        while done.is_empty() {
            tcp.poll(&mut done, soon());
        }
        assert!(done[0].outcome.is_ok());
    }),
    ("Confirm", |_, client, (key, _), runs| {
        let reply = client.call(&Request::Confirm(Ids { ids: vec![id(key.as_bytes())], runs })).unwrap();
        assert!(matches!(reply, Reply::Found(_)));
    }),
    ("View", |_, client, (key, _), runs| {
        let reply = client.call(&Request::View(Ids { ids: vec![id(key.as_bytes())], runs })).unwrap();
        let Reply::Views(views) = reply else { panic!("no answer") };
        let ViewOutcome::Pinned { slot, .. } = views[0] else { panic!("{views:?}") };
        assert!(client.connection.send_one_way(&Request::Unview(vec![slot])).unwrap());
    }),
    ("Touch", |_, client, (_, slot), runs| touch(client, Touch { slots: vec![slot], runs, ..Touch::default() })),
    ("Touch by id, behind that of another request", |_, client, (key, slot), runs| {
        let (ids, runs) = (vec![id(key.as_bytes())], [run(9, 0, 5), runs].concat());
        let gone = SlotName { generation: tidepool_types::Generation(u64::MAX), ..slot };
        touch(client, Touch { slots: vec![gone], ids, runs, ..Touch::default() });
    }),
    ("Reserve of a block that is held", |_, client, (key, _), runs| assert_eq!(put(client, key, runs), None)),
];

/// What is left of two sessions' blocks after a third has put as many as one of them has. Before that, the first session has gone on, which the node hears of its last block alone, in one of these ways.
fn left(policy: Policy, use_one: UseOne) -> BTreeSet<String> {
    let node = start_with("sessions", |config| (config.capacity.0, config.eviction) = (8 * PAGE, policy));
    let mut client = node.unix(1);
    // Others have come back at once: experience with pauses as short as a test's.
    put(&mut client, "taught", Vec::new());
    let taught = (100..120).flat_map(|session| [run(session, 1, 0), run(session, 0, 0)].concat());
    let (ids, runs) = (vec![id(b"taught"); 40], taught.collect());
    client.call(&Request::Confirm(Ids { ids, runs })).unwrap();
    assert_eq!(client.call(&Request::Remove(vec![id(b"taught")])).unwrap(), Reply::Removed(vec![true]));
    let mut last = None;
    for (session, name) in [(1, "a"), (2, "b")] {
        for depth in (0..4).rev() {
            let slot = put(&mut client, &format!("{name}{depth}00"), run(session, 0, depth)).unwrap();
            last = last.or(Some(slot));
        }
    }
    use_one(&node, &mut client, ("a300", last.unwrap()), run(1, 1, 3));
    for depth in 0..4 {
        assert!(put(&mut client, &format!("x{depth}00"), run(3, 0, depth)).is_some());
    }
    held(&mut client).into_iter().filter(|key| !key.starts_with('x')).collect()
}

/// The front of a session that goes on is not read again where its engine has it. To LRU it is the oldest.
#[test]
fn the_runs_of_a_message_reach_the_policy() {
    let keys = |keys: [&str; 4]| keys.map(str::to_owned).into();
    for (way, use_one) in WAYS {
        assert_eq!(left(Policy::Agents, use_one), keys(["a000", "a100", "a200", "a300"]), "{way}");
        assert_eq!(left(Policy::Lru, use_one), keys(["a300", "b000", "b100", "b200"]), "{way}, by age");
    }
}
