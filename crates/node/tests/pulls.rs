//! A node copies blocks from another: many at a time, over connections that are kept, each block once.

mod common;

use common::{Client, TestNode, content, id, soon, start, start_with};
use std::net::SocketAddr;
use tidepool_testing::eventually;
use tidepool_transfer::testing::{Break, Proxy};
use tidepool_types::Epoch;
use tidepool_wire::message::{List, Pattern, Pull, PullIds, PullOutcome, Reply, Request, ReserveOutcome, ViewOutcome};

const LEN: usize = 64 << 10;

fn key(number: usize) -> Vec<u8> {
    format!("block {number}").into_bytes()
}

/// A source that holds so many blocks of [`LEN`] bytes.
fn source(blocks: usize) -> TestNode {
    let source = start("source");
    let mut client = source.unix(1);
    (0..blocks).for_each(|number| client.put(&key(number), &content(&key(number), LEN)));
    source
}

fn pull(source: SocketAddr, epoch: Epoch, wait_millis: u32, blocks: std::ops::Range<usize>) -> Request {
    let keys = blocks.map(key).collect();
    Request::Pull(Pull { wait_millis, source: source.to_string(), epoch, remove_source: false, keys })
}

fn pulled(reply: Reply) -> Vec<PullOutcome> {
    match reply {
        Reply::Pulled(outcomes) => outcomes,
        other => panic!("{other:?}"),
    }
}

fn has_all(client: &Client, blocks: usize) {
    for number in 0..blocks {
        assert_eq!(client.get(&key(number)), Ok(content(&key(number), LEN)), "block {number}");
    }
}

/// Sends a request and waits until the node has begun with it: its connection has a thread of its own.
fn begin(client: &mut Client, request: &Request) -> u64 {
    let number = client.connection.send(request, &[], soon()).unwrap();
    eventually("the node reads the request", || !client.connection.socket().has_unread());
    number
}

fn end(client: &mut Client, number: u64) -> Vec<PullOutcome> {
    let (answered, reply) = client.connection.recv(soon()).unwrap();
    assert_eq!(answered, number);
    pulled(reply)
}

#[test]
fn pulls_from_one_source_share_its_connections() {
    let (source, target) = (source(200), start("target"));
    let mut client = target.unix(1);
    let (address, epoch) = (source.node.data_address(), source.node.epoch());
    let before = source.metric("tidepool_node_connections_total");
    let all = |blocks| pulled(target.unix(1).call(&pull(address, epoch, 5000, blocks)).unwrap());
    assert_eq!(all(0..100), [PullOutcome::Copied; 100]);
    // Streams of a transport are connected one after the other, also when the first has read all there was.
    let now = || source.metric("tidepool_node_connections_total") - before;
    let streams = tidepool_transfer::tcp::TcpConfig::default().streams as u64;
    eventually("one connection and the streams of one transport", || now() == 1 + streams);
    for blocks in (100..200).step_by(10) {
        assert_eq!(all(blocks..blocks + 10), [PullOutcome::Copied; 10]);
    }
    assert_eq!(now(), 1 + streams, "a pull made connections of its own");
    has_all(&client, 200);
    assert!(client.holds(&key(0)));
}

/// More than is read together, into a target that is full of other blocks.
#[test]
fn a_pull_of_more_than_one_batch_makes_room_and_brings_all() {
    let source = start_with("source", |config| config.capacity.0 = 192 << 20);
    let mut putter = source.unix(1);
    let blocks: Vec<Vec<u8>> = (0..20).map(|number| content(&key(number), 7 << 20)).collect();
    blocks.iter().enumerate().for_each(|(number, bytes)| putter.put(&key(number), bytes));
    let target = start_with("target", |config| config.capacity.0 = 160 << 20);
    let mut client = target.unix(1);
    (0..22).for_each(|number| client.put(format!("old {number}").as_bytes(), &[7; 7 << 20]));
    let request = pull(source.node.data_address(), source.node.epoch(), 20_000, 0..20);
    assert_eq!(pulled(client.call(&request).unwrap()), [PullOutcome::Copied; 20]);
    for (number, bytes) in blocks.iter().enumerate() {
        assert!(client.get(&key(number)).as_ref() == Ok(bytes), "block {number}");
    }
}

#[test]
fn a_block_that_two_pulls_want_travels_once() {
    let (source, target) = (source(40), start("target"));
    let (slow, fast) = (Break::Stall(8 * LEN as u64), Break::Never);
    let [slow, fast] = [slow, fast].map(|how| Proxy::start(source.node.data_address(), how));
    let epoch = source.node.epoch();
    let (mut one, mut two) = (target.unix(1), target.unix(2));
    // The first pull's blocks are on their way, and stay there.
    let first = begin(&mut one, &pull(slow.address(), epoch, 60_000, 0..30));
    eventually("blocks come in", || slow.passed() >= 8 * LEN as u64);
    let second = begin(&mut two, &pull(fast.address(), epoch, 60_000, 10..40));
    eventually("what the first does not bring comes in", || fast.passed() >= 10 * LEN as u64);
    slow.set(Break::Never);
    assert_eq!(end(&mut one, first), [PullOutcome::Copied; 30]);
    let outcomes = end(&mut two, second);
    assert_eq!(outcomes[..20], [PullOutcome::Joined; 20]);
    assert_eq!(outcomes[20..], [PullOutcome::Copied; 10]);
    assert!(fast.passed() < 11 * LEN as u64, "a block that was on its way was read once more");
    has_all(&one, 40);
}

#[test]
fn a_pull_that_waited_for_one_that_failed_brings_the_blocks_itself() {
    let (source, target) = (source(10), start("target"));
    let proxy = Proxy::start(source.node.data_address(), Break::Stall(2 * LEN as u64));
    let epoch = source.node.epoch();
    let (mut one, mut two) = (target.unix(1), target.unix(2));
    let first = begin(&mut one, &pull(proxy.address(), epoch, 500, 0..10));
    eventually("blocks come in", || proxy.passed() >= 2 * LEN as u64);
    let second = begin(&mut two, &pull(proxy.address(), epoch, 60_000, 0..10));
    let outcomes = end(&mut one, first);
    assert!(outcomes.contains(&PullOutcome::Unavailable), "{outcomes:?}");
    proxy.set(Break::Never);
    let outcomes = end(&mut two, second);
    let is_here =
        |outcome: &PullOutcome| matches!(outcome, PullOutcome::Copied | PullOutcome::Held | PullOutcome::Joined);
    assert!(outcomes.iter().all(is_here), "{outcomes:?}");
    has_all(&two, 10);
}

/// A source that is gone is not asked over what is left of its connections, and one that is back is.
#[test]
fn a_source_that_restarts_is_asked_again() {
    let (first, target) = (source(5), start("target"));
    let proxy = Proxy::start(first.node.data_address(), Break::Never);
    let mut client = target.unix(1);
    let epoch = first.node.epoch();
    assert_eq!(pulled(client.call(&pull(proxy.address(), epoch, 5000, 0..5)).unwrap()), [PullOutcome::Copied; 5]);
    drop(first);
    let second = source(10);
    proxy.redirect(second.node.data_address());
    let stale = client.call(&pull(proxy.address(), epoch, 5000, 5..10)).unwrap();
    assert_eq!(pulled(stale), [PullOutcome::Unavailable; 5], "of an incarnation that is gone");
    let request = pull(proxy.address(), second.node.epoch(), 5000, 5..10);
    assert_eq!(pulled(client.call(&request).unwrap()), [PullOutcome::Copied; 5]);
    has_all(&client, 10);
}

/// The source tells the keys, so that the copies are listed as its own are.
#[test]
fn blocks_are_pulled_by_id_and_keep_their_keys() {
    let (source, target) = (source(3), start("target"));
    let mut client = target.unix(1);
    let ids = [0, 1, 7].map(|number| id(&key(number))).to_vec();
    let (address, epoch) = (source.node.data_address().to_string(), source.node.epoch());
    let pull = PullIds { wait_millis: 5000, source: address, epoch, remove_source: true, ids };
    let outcomes = pulled(client.call(&Request::PullIds(pull)).unwrap());
    assert_eq!(outcomes, [PullOutcome::Copied, PullOutcome::Copied, PullOutcome::Missing]);
    has_all(&client, 2);
    let list = List { pattern: Pattern::All, cursor: 0, limit: 10 };
    let Reply::Keys(keys) = client.call(&Request::List(list)).unwrap() else { panic!("not keys") };
    let mut listed: Vec<Vec<u8>> = keys.entries.into_iter().map(|entry| entry.key).collect();
    listed.sort();
    assert_eq!(listed, [key(0), key(1)]);
    let mut at_source = source.unix(2);
    assert_eq!([0, 1, 2].map(|number| at_source.holds(&key(number))), [false, false, true], "a move leaves nothing");
}

/// Its blocks were every other pull's to wait for, until the deadline of the one that hung.
#[test]
fn a_pull_behind_one_that_hangs_brings_the_blocks_itself() {
    let (source, target) = (source(10), start("target"));
    let hanging = Proxy::start(source.node.data_address(), Break::Stall(2 * LEN as u64));
    let epoch = source.node.epoch();
    let (mut one, mut two) = (target.unix(1), target.unix(2));
    begin(&mut one, &pull(hanging.address(), epoch, 3_600_000, 0..10));
    eventually("blocks come in", || hanging.passed() >= 2 * LEN as u64);
    let outcomes = pulled(two.call(&pull(source.node.data_address(), epoch, 3_600_000, 0..10)).unwrap());
    let is_here = |outcome: &PullOutcome| matches!(outcome, PullOutcome::Copied | PullOutcome::Joined);
    assert!(outcomes.iter().all(is_here), "{outcomes:?}");
    has_all(&two, 10);
}

/// The kernel of a stopped process goes on taking what is sent: a request over a kept connection had no answer until the
/// pull's deadline, an hour here.
#[test]
fn a_source_that_hangs_behind_a_kept_connection_is_found_out() {
    let (source, target) = (source(10), start("target"));
    let proxy = Proxy::start(source.node.data_address(), Break::Never);
    let mut client = target.unix(1);
    let pull = |blocks| pull(proxy.address(), source.node.epoch(), 3_600_000, blocks);
    assert_eq!(pulled(client.call(&pull(0..5)).unwrap()), [PullOutcome::Copied; 5]);
    proxy.set(Break::Stall(0));
    assert_eq!(pulled(client.call(&pull(5..10)).unwrap()), [PullOutcome::Unavailable; 5]);
    proxy.set(Break::Never);
    assert_eq!(pulled(client.call(&pull(5..10)).unwrap()), [PullOutcome::Copied; 5]);
}

#[test]
fn a_block_that_is_named_twice_travels_once() {
    let (source, target) = (source(1), start("target"));
    let proxy = Proxy::start(source.node.data_address(), Break::Never);
    let keys = vec![key(0), key(7), key(0), key(0), key(7)];
    let (address, epoch) = (proxy.address().to_string(), source.node.epoch());
    let pull = Pull { wait_millis: 5000, source: address, epoch, remove_source: false, keys };
    let (copied, held, missing) = (PullOutcome::Copied, PullOutcome::Held, PullOutcome::Missing);
    let outcomes = pulled(target.unix(1).call(&Request::Pull(pull)).unwrap());
    assert_eq!(outcomes, [copied, missing, held, held, missing]);
    assert!(proxy.passed() < 2 * LEN as u64, "the block travelled more than once");
}

#[test]
fn a_client_that_hangs_up_ends_its_pull() {
    let (source, target) = (source(10), start("target"));
    let hanging = Proxy::start(source.node.data_address(), Break::Stall(2 * LEN as u64));
    let mut client = target.unix(1);
    begin(&mut client, &pull(hanging.address(), source.node.epoch(), 3_600_000, 0..10));
    eventually("blocks come in", || hanging.passed() >= 2 * LEN as u64);
    drop(client);
    eventually("the pull lets go of its space", || target.node.memory().stats().reserved == 0);
}

/// Two pulls that waited for room at the target had both turns at the source, and every other pull from there waited for them.
#[test]
fn a_pull_that_waits_for_room_leaves_its_source_to_others() {
    let (source, target) = (source(10), start("target"));
    let mut holder = target.unix(9);
    let names: Vec<Vec<u8>> = (0..14).map(|number| format!("held {number}").into_bytes()).collect();
    names.iter().for_each(|name| holder.put(name, &[7; 1 << 20]));
    let ids: Vec<_> = names.iter().map(|name| id(name)).collect();
    let Reply::Views(views) = holder.call(&Request::View(ids.into())).unwrap() else { panic!("not views") };
    assert!(views.iter().all(|view| matches!(view, ViewOutcome::Pinned { .. })), "{views:?}");
    // What room there is left goes to a block that nobody gives up either.
    let rest = (0..).take_while(|number: &u64| {
        let name = format!("rest {number}").into_bytes();
        matches!(holder.reserve(&name, LEN as u64), ReserveOutcome::Taken { .. })
    });
    assert!(rest.count() > 0);
    let (address, epoch) = (source.node.data_address(), source.node.epoch());
    let mut waiting = [target.unix(1), target.unix(2)];
    for (number, client) in waiting.iter_mut().enumerate() {
        begin(client, &pull(address, epoch, 3_600_000, number..number + 1));
    }
    eventually("both wait for room", || target.node.memory().stats().waiting == 2);
    let keys = vec![key(5)];
    let moved = Pull { wait_millis: 3_600_000, source: address.to_string(), epoch, remove_source: true, keys };
    assert_eq!(pulled(target.unix(3).call(&Request::Pull(moved)).unwrap()), [PullOutcome::NoSpace]);
}
