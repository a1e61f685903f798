//! Replies that nobody reads: what they promised is taken back, and space and pins return.

mod common;

use common::{Client, TestNode, content, id, soon, start};
use tidepool_testing::eventually;
use tidepool_wire::message::{Reply, Request, Reserve, ReserveItem, ReserveOutcome, ViewOutcome};

fn reserve(key: &[u8], len: u64, mapped: bool) -> Request {
    let items = vec![ReserveItem { key: key.to_vec(), len }];
    Request::Reserve(Reserve { wait_millis: 10_000, mapped, items, ..Reserve::default() })
}

/// Sends a request and does not wait for its reply.
fn ask(client: &mut Client, request: &Request) {
    client.connection.send(request, &[], soon()).unwrap();
}

fn free(node: &TestNode) -> bool {
    node.metric("tidepool_node_reserved") == 0
        && node.metric("tidepool_node_free_bytes") == node.metric("tidepool_node_capacity_bytes")
}

#[test]
fn a_view_whose_reply_was_never_read_is_let_go() {
    // A client that gave up waiting closed its connection just after the node had answered. Nobody knew of that view any
    // more, and it kept its block in place for as long as the process lived. Now a reply that was not read pins nothing.
    let node = start("unread");
    let mut writer = node.unix(1);
    writer.put(b"k", &content(b"k", 5000));
    for round in 0..60 {
        let mut viewer = node.unix(2);
        ask(&mut viewer, &Request::View(vec![id(b"k")].into()));
        match round % 3 {
            // At once: the request may not even have been read.
            0 => {}
            1 => eventually("the block is pinned", || node.metric("tidepool_node_views") == 1),
            // The way a client does it: it ends the connection first, and lets the socket go later.
            _ => {
                eventually("the block is pinned", || node.metric("tidepool_node_views") == 1);
                viewer.connection.socket().close();
                eventually("the connection ends", || node.metric("tidepool_node_connections") == 1);
            }
        }
        drop(viewer);
        eventually("the connection ends", || node.metric("tidepool_node_connections") == 1);
        eventually("the view is let go", || node.metric("tidepool_node_views") == 0);
        assert_eq!(node.metric("tidepool_node_holds"), 0, "round {round}");
    }
}

/// A client that had asked on before it closed its connection left the views of the reply before pinned for as long as it
/// lived: each request made the node forget what the last reply had named. Now the node answers on only once they are read.
#[test]
fn a_view_is_let_go_though_its_client_had_asked_on() {
    let node = start("pipelined");
    let mut writer = node.unix(1);
    writer.put(b"k", &content(b"k", 5000));
    for round in 0..20 {
        let mut viewer = node.unix(2);
        for _ in 0..3 {
            ask(&mut viewer, &Request::View(vec![id(b"k")].into()));
            ask(&mut viewer, &Request::Confirm(vec![id(b"k")].into()));
        }
        if round % 2 == 0 {
            eventually("the block is pinned", || node.metric("tidepool_node_views") == 1);
        }
        drop(viewer);
        eventually("the connection ends", || node.metric("tidepool_node_connections") == 1);
        eventually("the views are let go", || node.metric("tidepool_node_views") == 0);
    }
    // Whoever asks on and then reads has its views, and may let go of them and hang up in one breath.
    let mut viewer = node.unix(2);
    ask(&mut viewer, &Request::View(vec![id(b"k")].into()));
    ask(&mut viewer, &Request::Confirm(vec![id(b"k")].into()));
    let (_, Reply::Views(views)) = viewer.connection.recv(soon()).unwrap() else { panic!("not views") };
    let [ViewOutcome::Pinned { slot, .. }] = views[..] else { panic!("{views:?}") };
    assert!(matches!(viewer.connection.recv(soon()).unwrap(), (_, Reply::Found(_))));
    assert_eq!(node.metric("tidepool_node_views"), 1);
    assert!(viewer.connection.send_one_way(&Request::Unview(vec![slot])).unwrap());
    drop(viewer);
    eventually("the view is let go", || node.metric("tidepool_node_views") == 0);
}

#[test]
fn a_view_whose_reply_was_read_outlives_its_connection() {
    let node = start("read");
    let mut writer = node.unix(1);
    writer.put(b"k", &content(b"k", 5000));
    let mut viewer = node.unix(2);
    let Reply::Views(views) = viewer.call(&Request::View(vec![id(b"k")].into())).unwrap() else { panic!("not views") };
    let [ViewOutcome::Pinned { slot, .. }] = views[..] else { panic!("{views:?}") };
    drop(viewer);
    eventually("the connection ends", || node.metric("tidepool_node_connections") == 1);
    assert_eq!(node.metric("tidepool_node_views"), 1);
    let mut again = node.unix(2);
    assert!(again.connection.send_one_way(&Request::Unview(vec![slot])).unwrap());
    eventually("the view is let go", || node.metric("tidepool_node_holds") == 0);
}

#[test]
fn space_whose_reply_was_never_read_comes_back_from_a_remote_writer() {
    let node = start("remote");
    for round in 0..20 {
        let mut writer = node.tcp(1);
        ask(&mut writer, &reserve(b"k", 1 << 20, false));
        if round % 2 == 0 {
            eventually("space is taken", || node.metric("tidepool_node_reserved") == 1);
        }
        drop(writer);
        eventually("the connection ends", || node.metric("tidepool_node_connections") == 0);
        eventually("the space is back", || free(&node));
    }
}

#[test]
fn space_whose_reply_was_never_read_comes_back_when_a_mapped_writer_says_that_it_writes_no_more() {
    let node = start("mapped");
    let mut writer = node.unix(1);
    ask(&mut writer, &reserve(b"k", 1 << 20, true));
    eventually("space is taken", || node.metric("tidepool_node_reserved") == 1);
    drop(writer);
    // This process lives and has the slab mapped: only its word makes the space safe to use again.
    eventually("it is in quarantine", || node.metric("tidepool_node_quarantined_bytes") == 1 << 20);
    let mut again = node.unix(1);
    assert_eq!(again.call(&Request::Abort(Vec::new())).unwrap(), Reply::Done);
    assert_eq!(node.metric("tidepool_node_quarantined_bytes"), 0);
    assert!(free(&node));
}

#[test]
fn a_writer_that_dies_while_it_waits_for_space_takes_none() {
    let node = start("waiting");
    let capacity = node.metric("tidepool_node_capacity_bytes");
    let mut holder = node.tcp(1);
    let all = capacity - (1 << 20);
    let ReserveOutcome::Taken { .. } = holder.reserve(b"all", all) else { panic!("the pool is empty") };
    let mut waiting = node.tcp(2);
    ask(&mut waiting, &reserve(b"more", all, false));
    eventually("it waits", || node.metric("tidepool_node_space_queue") == 1);
    drop(waiting);
    eventually("nobody waits", || node.metric("tidepool_node_space_queue") == 0);
    drop(holder);
    eventually("all space is back", || free(&node));
    let mut last = node.tcp(3);
    assert!(matches!(last.reserve(b"last", all), ReserveOutcome::Taken { .. }), "and can be used");
}
