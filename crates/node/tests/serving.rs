//! What a node serves over its two sockets.

mod common;

use common::{content, id, read, soon, start, start_with};
use std::time::Instant;
use tidepool_node::{Node, NodeConfig};
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_testing::eventually;
use tidepool_transfer::conn::ConnError;
use tidepool_transfer::tcp::{TcpConfig, TcpTransport};
use tidepool_types::ClientId;
use tidepool_wire::message::{
    List, Pattern, Pin, Pull, PullOutcome, Reason, Reply, Request, Reserve, ReserveAs, ReserveItem, ReserveOutcome,
    SealOutcome, Terms, Touch, ViewOutcome,
};

#[test]
fn what_is_put_through_one_door_is_read_through_the_other() {
    let node = start("doors");
    let (mut local, mut remote) = (node.unix(1), node.tcp(2));
    for len in [1, 4096, 131_072, 1 << 20] {
        let (one, other) = (format!("local-{len}").into_bytes(), format!("remote-{len}").into_bytes());
        local.put(&one, &content(&one, len));
        remote.put(&other, &content(&other, len));
        let mut tcp = TcpTransport::connect(
            node.node.data_address(),
            node.node.epoch(),
            ClientId(3),
            TcpConfig::default(),
            soon(),
        )
        .unwrap();
        for key in [&one, &other] {
            assert_eq!(local.get(key), Ok(content(key, len)), "{len} through shared memory");
            assert_eq!(read(&mut tcp, key), Ok(content(key, len)), "{len} through TCP");
        }
    }
    assert_eq!(node.metric("tidepool_node_blocks"), 8);
}

#[test]
fn a_key_that_is_held_is_not_reserved_again() {
    let node = start("held");
    let mut client = node.unix(1);
    client.put(b"k", b"bytes");
    assert!(matches!(client.reserve(b"k", 5), ReserveOutcome::Held(_)));
    assert_eq!(client.reserve(b"too large", 1 << 29), ReserveOutcome::TooLarge);
}

#[test]
fn bytes_that_do_not_match_their_checksums_are_never_sealed() {
    let node = start("corrupt");
    let mut remote = node.tcp(1);
    let ReserveOutcome::Taken { slot, offset } = remote.reserve(b"k", 1000) else { panic!("there is space") };
    let mut checksums = remote.fill(b"k", slot, offset, &[7; 1000]);
    checksums[0] ^= 1;
    assert_eq!(remote.seal(slot, checksums), SealOutcome::Corrupt);
    assert!(!remote.holds(b"k"));
    assert_eq!(node.metric("tidepool_node_corrupt_writes_total"), 1);
    assert_eq!(node.metric("tidepool_node_reserved"), 0, "and the space is back");
}

/// A block that was used once, then nearly twice as many blocks as there is room for that never are: LRU loses the first, S3-FIFO keeps it.
#[test]
fn a_node_evicts_by_the_policy_that_it_was_given() {
    for (policy, is_kept) in [(Policy::Lru, false), (Policy::S3Fifo, true), (Policy::Sieve, true)] {
        let node = start_with("policies", |config| (config.capacity.0, config.eviction) = (1 << 20, policy));
        let mut client = node.tcp(1);
        client.put(b"used", &[1; 10_000]);
        assert!(client.holds(b"used"));
        (0..200_u32).for_each(|n| client.put(&n.to_le_bytes(), &[2; 10_000]));
        assert!(node.metric("tidepool_node_evictions_total") > 50);
        assert_eq!(client.holds(b"used"), is_kept, "{policy}");
    }
}

/// A reader that was served elsewhere, as from its engine's own memory, tells of uses by id.
#[test]
fn blocks_touched_by_id_are_evicted_after_others() {
    let node = start_with("touched", |config| config.capacity.0 = 1 << 20);
    let mut client = node.tcp(1);
    (0..100_u32).for_each(|n| client.put(&n.to_le_bytes(), &[1; 10_000]));
    let ids = [0, 100, 1].map(|n: u32| id(&n.to_le_bytes())).to_vec();
    assert!(client.connection.send_one_way(&Request::Touch(Touch { ids, ..Touch::default() })).unwrap());
    (200..250_u32).for_each(|n| client.put(&n.to_le_bytes(), &[2; 10_000]));
    assert!(node.metric("tidepool_node_evictions_total") > 40);
    let held = [0, 1, 2, 3].map(|n: u32| client.holds(&n.to_le_bytes()));
    assert_eq!(held, [true, true, false, false]);
}

/// Blocks that come once do not push out those that are there; what comes again does. Pinned ones come in at once.
#[test]
fn a_full_node_may_want_to_see_a_block_twice() {
    let node = start_with("admission", |config| (config.capacity.0, config.admission) = (1 << 20, Rule::SecondSight));
    let mut client = node.tcp(1);
    (0..100_u32).for_each(|n| client.put(&n.to_le_bytes(), &[1; 10_000]));
    assert_eq!(node.metric("tidepool_node_evictions_total"), 0, "there is room for all");
    let outcomes: Vec<_> = (100..200_u32).map(|n| client.reserve(&n.to_le_bytes(), 10_000)).collect();
    let declined = outcomes.iter().filter(|outcome| **outcome == ReserveOutcome::Declined).count();
    assert!(declined >= 95, "{declined}");
    assert_eq!(node.metric("tidepool_node_declined_total"), declined as u64);
    assert!((0..100_u32).all(|n| client.holds(&n.to_le_bytes())), "and nothing went");
    client.put(&199_u32.to_le_bytes(), &[1; 10_000]);
    assert!(client.holds(&199_u32.to_le_bytes()), "the second time it comes in");
    assert_eq!(node.metric("tidepool_node_evictions_total"), 1);
    let terms = Terms { pin: Pin::Hard, ..Terms::default() };
    let items = vec![ReserveItem { key: b"pinned".to_vec(), len: 10_000 }];
    let reserve = Reserve { wait_millis: 50, mapped: false, items, ..Reserve::default() };
    let reply = client.call(&Request::ReserveAs(ReserveAs { terms, reserve })).unwrap();
    assert!(matches!(reply, Reply::Reserved(outcomes) if matches!(outcomes[0], ReserveOutcome::Taken { .. })));
}

/// Space was taken for a whole batch before it was asked whether its first block may be pinned: a batch that may not cost
/// others as many blocks as it had. Now space that a pin is refused for is the next block's.
#[test]
fn a_batch_that_may_not_be_pinned_costs_others_one_block_at_most() {
    let node = start_with("pinned-batch", |config| config.capacity.0 = 1 << 20);
    let mut client = node.tcp(1);
    let pin = |client: &mut common::Client, keys: std::ops::Range<u32>| {
        let terms = Terms { pin: Pin::Hard, ..Terms::default() };
        let items = keys.map(|n| ReserveItem { key: n.to_le_bytes().to_vec(), len: 10_000 }).collect();
        let reserve = Reserve { wait_millis: 50, mapped: false, items, ..Reserve::default() };
        match client.call(&Request::ReserveAs(ReserveAs { terms, reserve })).unwrap() {
            Reply::Reserved(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    };
    let outcomes = pin(&mut client, 0..60);
    assert!(matches!(outcomes[0], ReserveOutcome::Taken { .. }));
    assert_eq!(outcomes[59], ReserveOutcome::NoSpace, "half of a pool may be pinned");
    (1000..1100_u32).for_each(|n| client.put(&n.to_le_bytes(), &[1; 10_000]));
    let before = node.metric("tidepool_node_evictions_total");
    assert!(before > 0, "the pool is full");
    assert!(pin(&mut client, 100..140).iter().all(|outcome| *outcome == ReserveOutcome::NoSpace));
    assert!(node.metric("tidepool_node_evictions_total") <= before + 1);
}

/// Every slice of a large block counted as a hit on a block of another client: ten reads of 30 MiB were 80 such hits, and what
/// sharing buys looked eight times as large as it was. A block that is read counts once, however many slices it takes.
#[test]
fn a_block_that_another_client_wrote_is_one_foreign_hit_however_many_slices_it_takes() {
    let node = start("slices");
    let bytes = content(b"k", 1 << 20);
    node.tcp(1).put(b"k", &bytes);
    let config = TcpConfig { slice_bytes: 128 << 10, ..TcpConfig::default() };
    let (address, epoch) = (node.node.data_address(), node.node.epoch());
    for (reader, foreign) in [(1, 0), (2, 1), (2, 2)] {
        let mut tcp = TcpTransport::connect(address, epoch, ClientId(reader), config.clone(), soon()).unwrap();
        assert_eq!(read(&mut tcp, b"k").as_ref(), Ok(&bytes));
        // The last slice is counted when it has been sent, which may be after it has been read.
        drop(tcp);
        eventually("no connection", || node.metric("tidepool_node_connections") == 0);
        assert_eq!(node.metric("tidepool_node_foreign_hits_total"), foreign);
    }
    assert_eq!(node.metric("tidepool_node_hits_total{transport=\"tcp\"}"), 3);
}

#[test]
fn a_view_pins_within_its_limit_and_is_let_go() {
    let node = start_with("views", |config| config.view_limit.0 = 1500);
    let mut client = node.unix(1);
    client.put(b"a", &[1; 1000]);
    client.put(b"b", &[2; 1000]);
    let view = Request::View(vec![id(b"a"), id(b"b"), id(b"absent")].into());
    let Reply::Views(views) = client.call(&view).unwrap() else { panic!("not views") };
    let ViewOutcome::Pinned { slot, len: 1000, .. } = views[0] else { panic!("{views:?}") };
    assert_eq!(views[1..], [ViewOutcome::OverLimit, ViewOutcome::Miss]);
    assert_eq!(node.metric("tidepool_node_view_bytes"), 1000);
    assert!(client.connection.send_one_way(&Request::Unview(vec![slot])).unwrap());
    eventually("the view is let go", || node.metric("tidepool_node_views") == 0);
    assert_eq!(node.metric("tidepool_node_holds"), 0);
}

#[test]
fn keys_are_listed_in_pages_and_removed_by_expression() {
    let node = start("list");
    let mut client = node.unix(1);
    (0..25).for_each(|n| client.put(format!("key-{n:02}").as_bytes(), b"x"));
    let (mut keys, mut cursor) = (Vec::new(), 0);
    loop {
        let list = List { pattern: Pattern::Regex("[02468]$".to_owned()), cursor, limit: 4 };
        let Reply::Keys(page) = client.call(&Request::List(list)).unwrap() else { panic!("not keys") };
        assert!(page.entries.len() <= 4);
        keys.extend(page.entries.into_iter().map(|entry| String::from_utf8(entry.key).unwrap()));
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    keys.sort();
    let even: Vec<_> = (0..25).step_by(2).map(|n| format!("key-{n:02}")).collect();
    assert_eq!(keys, even);
    let remove = |pattern| Request::RemoveMatching(pattern);
    assert_eq!(client.call(&remove(Pattern::Regex("-1".to_owned()))).unwrap(), Reply::Count(10));
    let bad = client.call(&remove(Pattern::Regex("(".to_owned()))).unwrap_err();
    assert!(matches!(&bad, ConnError::Refused(refusal) if refusal.reason == Reason::Invalid), "{bad}");
    assert_eq!(client.call(&remove(Pattern::All)).unwrap(), Reply::Count(15));
}

#[test]
fn a_node_pulls_blocks_from_another_and_moves_them() {
    let (source, target) = (start("source"), start("target"));
    let mut client = source.unix(1);
    let bytes = content(b"k", 3 << 20);
    client.put(b"k", &bytes);
    let pull = |remove_source, epoch| {
        let keys = vec![b"k".to_vec(), b"absent".to_vec()];
        let source = source.node.data_address().to_string();
        Request::Pull(Pull { wait_millis: 5000, source, epoch, remove_source, keys })
    };
    let mut other = target.unix(1);
    let wrong = pull(false, tidepool_types::Epoch(1));
    assert_eq!(other.call(&wrong).unwrap(), Reply::Pulled(vec![PullOutcome::Unavailable; 2]));
    let copy = pull(false, source.node.epoch());
    let outcome = Reply::Pulled(vec![PullOutcome::Copied, PullOutcome::Missing]);
    assert_eq!(other.call(&copy).unwrap(), outcome);
    assert_eq!(other.get(b"k"), Ok(bytes.clone()));
    assert!(client.holds(b"k"));
    let outcome = Reply::Pulled(vec![PullOutcome::Held, PullOutcome::Missing]);
    assert_eq!(other.call(&pull(true, source.node.epoch())).unwrap(), outcome);
    assert!(!client.holds(b"k"), "a move leaves nothing at the source");
    assert_eq!(other.get(b"k"), Ok(bytes));
}

#[test]
fn the_scrubber_finds_a_flipped_byte_without_a_reader() {
    let node = start_with("scrub", |config| config.scrub_rate.0 = 1 << 30);
    let mut client = node.unix(1);
    client.put(b"k", &[0xab; 50_000]);
    let slab = node.dir.path().join("scrub.slab");
    let bytes = std::fs::read(&slab).unwrap();
    let at = bytes.windows(64).position(|window| window == [0xab; 64]).unwrap() + 30_000;
    use std::os::unix::fs::FileExt;
    std::fs::OpenOptions::new().write(true).open(&slab).unwrap().write_at(&[0xaa], at as u64).unwrap();
    eventually("the block is quarantined", || node.metric("tidepool_node_damaged_total") == 1);
    assert!(!client.holds(b"k"));
}

/// The writer that lost the race to seal was told that its own copy had been sealed, and counted bytes as moved that were
/// thrown away. Now it is told whose copy stays.
#[test]
fn the_second_of_two_writers_is_told_that_the_first_has_sealed() {
    let node = start("race");
    let (mut first, mut second) = (node.tcp(1), node.tcp(2));
    let bytes = content(b"k", 5000);
    let write = |writer: &mut common::Client| match writer.reserve(b"k", 5000) {
        ReserveOutcome::Taken { slot, offset } => (slot, writer.fill(b"k", slot, offset, &bytes)),
        other => panic!("{other:?}"),
    };
    let ((early, sums), (late, same_sums)) = (write(&mut first), write(&mut second));
    let SealOutcome::Sealed(copy) = first.seal(early, sums) else { panic!("the first seal wins") };
    assert_eq!(second.seal(late, same_sums), SealOutcome::Held(copy));
    assert_eq!(node.metric("tidepool_node_sealed_total"), 1);
}

/// A byte flipped in a stored key was never found: `ls` showed a key that nobody had put, and `rm --matching` removed a block
/// under another's name. Now a key that does not hash to its block's id is damage: no listing acts on it, and the scrubber
/// finds it too.
#[test]
fn a_byte_flipped_in_a_stored_key_is_damage() {
    use std::os::unix::fs::FileExt;
    for (name, scrub_rate) in [("listed", 0), ("described", 0), ("removed", 0), ("scrubbed", 1 << 30)] {
        let node = start_with(name, |config| config.scrub_rate.0 = scrub_rate);
        let mut client = node.unix(1);
        client.put(b"this key is kept", b"bytes");
        client.put(b"this key is flipped", b"bytes");
        let slab = node.dir.path().join(format!("{name}.slab"));
        let at = std::fs::read(&slab).unwrap().windows(19).position(|window| window == b"this key is flipped").unwrap();
        std::fs::OpenOptions::new().write(true).open(&slab).unwrap().write_at(b"F", at as u64 + 12).unwrap();
        let pattern = Pattern::Regex("Flipped".to_owned());
        match name {
            "listed" => {
                let list = Request::List(List { pattern: Pattern::All, cursor: 0, limit: 10 });
                let Reply::Keys(keys) = client.call(&list).unwrap() else { panic!("a list was asked for") };
                assert_eq!(keys.entries.iter().map(|entry| &entry.key[..]).collect::<Vec<_>>(), [b"this key is kept"]);
            }
            "described" => {
                let Reply::Keys(keys) = client.call(&Request::Describe(id(b"this key is flipped"))).unwrap() else {
                    panic!("a description was asked for")
                };
                assert_eq!(keys.entries, []);
            }
            "removed" => assert_eq!(client.call(&Request::RemoveMatching(pattern)).unwrap(), Reply::Count(0)),
            _ => {}
        }
        eventually("the block is quarantined", || node.metric("tidepool_node_damaged_total") == 1);
        assert!(client.holds(b"this key is kept") && !client.holds(b"this key is flipped"));
    }
}

/// The scrubber paused for as long as the bytes it had found were worth: a nearly empty pool was read, and all its slots were
/// scanned, thousands of times a second, on a whole core. Now a pass has a shortest time. (A slow machine makes fewer passes
/// than this allows, never more.)
#[test]
fn a_nearly_empty_pool_is_not_scrubbed_without_a_pause() {
    let started = Instant::now();
    let node = start_with("idle", |config| config.scrub_rate.0 = 128 << 20);
    let shortest_pass = node.node.memory().capacity() as f64 / f64::from(128 << 20);
    node.unix(1).put(b"k", &content(b"k", 4096));
    let scrubbed = || node.metric("tidepool_node_scrubbed_bytes_total");
    eventually("three passes", || scrubbed() >= 3 * 4096);
    let (passes, most) = (scrubbed() / 4096, started.elapsed().as_secs_f64() / shortest_pass + 1.0);
    assert!(passes as f64 <= most, "{passes} passes, {most} at most");
}

#[test]
fn what_cannot_be_listened_on_is_a_clear_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let config = |listen: &str| NodeConfig {
        dir: dir.path().to_owned(),
        data_listen: listen.to_owned(),
        ..NodeConfig::small("port")
    };
    let error = Node::start(config(&address)).err().expect("the port is in use").to_string();
    assert!(error.contains("data-listen") && error.contains(&address) && error.contains("in use"), "{error}");
    assert!(Node::start(config("nonsense")).is_err());
    assert!(Node::start(config("127.0.0.1:0")).is_ok(), "a failed start leaves nothing in the way");
}
