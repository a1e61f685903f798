//! Bad input gets a clear error, and costs nobody else anything.

mod common;

use common::{content, soon, start, start_with};
use std::io::{IoSlice, Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use tidepool_node::{Node, NodeConfig};
use tidepool_testing::eventually;
use tidepool_transfer::conn::{ConnError, Connection};
use tidepool_types::{ClientId, Generation};
use tidepool_wire::frame::{HEADER_LEN, encode_request};
use tidepool_wire::message::{Hello, Reason, Request, Reserve, ReserveItem, SlotName, Touch, Write};

/// Sends raw bytes and returns what comes back until the node closes.
fn raw(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The node may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_request(1, &Request::Hello(Hello { client: ClientId(1), wants_memory: false }), 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn broken_frames_end_their_own_connection_only() {
    let node = start("broken");
    let mut good = node.unix(1);
    good.put(b"k", b"bytes");
    let address = node.node.data_address();
    let mut cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".repeat(4),
        vec![0; 4096],
        vec![0xff; 4096],
        hello()[..HEADER_LEN - 1].to_vec(),
        hello()[..HEADER_LEN + 1].to_vec(),
    ];
    for (at, value) in [(4, 99), (5, 250), (16, 0xff), (19, 0xff), (24, 0xff), (28, 0x55)] {
        let mut bytes = hello();
        bytes[at] = value;
        cases.push(bytes.clone());
        // The same after a good handshake.
        cases.push([hello(), bytes].concat());
    }
    for case in &cases {
        let _ = raw(address, case);
        assert_eq!(good.get(b"k"), Ok(b"bytes".to_vec()));
        assert!(good.holds(b"k"), "the other connection is served");
    }
    eventually("every broken connection is gone", || node.metric("tidepool_node_connections") == 1);
    assert_eq!(node.metric("tidepool_node_blocks"), 1);
    assert_eq!(node.metric("tidepool_node_reserved"), 0);
}

#[test]
fn impossible_requests_are_refused_and_the_connection_lives() {
    let node = start("refused");
    let mut client = node.tcp(1);
    let refusal = |error: ConnError| match error {
        ConnError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    };
    let slot = SlotName { slot: u32::MAX, generation: Generation(5) };
    let write = Request::Write(Write { slot, offset: 0 });
    let payload = content(b"k", 300_000);
    let refused = refusal(client.connection.call(&write, &[IoSlice::new(&payload)], soon()).unwrap_err());
    assert_eq!(refused.reason, Reason::Invalid);
    let items = vec![ReserveItem { key: b"k".to_vec(), len: 1 }];
    let mapped = Request::Reserve(Reserve { wait_millis: 1, mapped: true, items, ..Reserve::default() });
    assert_eq!(refusal(client.call(&mapped).unwrap_err()).reason, Reason::NotHere);
    assert_eq!(refusal(client.call(&Request::View(vec![].into())).unwrap_err()).reason, Reason::NotHere);
    client.put(b"k", &payload);
    assert!(client.holds(b"k"));
}

/// A report of uses with large numbers, from anybody, turned counters over: they went back, and every rate computed from
/// them was nonsense. Now nobody but a reader of the memory is believed, no more than is plausible, and no counter turns over.
#[test]
fn reports_of_uses_never_turn_a_counter_back() {
    let node = start("touch");
    let names = ["tidepool_node_hits_total{transport=\"shm\"}", "tidepool_node_foreign_hits_total"];
    let (hits, most) = (u64::MAX, u64::MAX);
    let touch = Touch { hits, foreign_hits: most, bytes: most, lost_races: most, ..Touch::default() };
    let report = |mut client: common::Client| {
        assert!(client.connection.send_one_way(&Request::Touch(touch.clone())).unwrap());
        // Answered after the report is in.
        client.call(&Request::Stat).unwrap();
        names.map(|name| node.metric(name))
    };
    assert_eq!(report(node.tcp(1)), [0, 0], "whoever has no memory mapped has read nothing in it");
    let mut before = [0, 0];
    for _ in 0..3 {
        let now = report(node.unix(1));
        assert!(
            now.iter().zip(before).all(|(now, before)| *now > before && *now < 1 << 40),
            "{now:?} after {before:?}"
        );
        before = now;
    }
}

#[test]
fn connections_past_the_limit_are_told_so() {
    let node = start_with("limit", |config| config.max_connections = 2);
    let (_one, _two) = (node.unix(1), node.tcp(2));
    let hello = Hello { client: ClientId(3), wants_memory: true };
    let error = Connection::connect_unix(node.node.socket_path(), hello, soon()).unwrap_err();
    assert!(error.to_string().contains("2 connections"), "{error}");
    drop(_one);
    eventually("there is room again", || node.metric("tidepool_node_connections") == 1);
    let _three = node.unix(3);
    assert_eq!(node.metric("tidepool_node_connections_refused_total"), 1);
}

/// Sockets that were opened and kept silent held every place of the node for five seconds, and every client was refused for
/// as long. A place is now only kept by a connection that has said hello; the oldest silent one makes room.
#[test]
fn silent_connections_lock_nobody_out() {
    let node = start_with("silent", |config| config.max_connections = 4);
    let mut client = node.tcp(1);
    let dial = || TcpStream::connect(node.node.data_address()).unwrap();
    let mut silent: Vec<TcpStream> = (0..20).map(|_| dial()).collect();
    client.put(b"k", &[1; 100]);
    let mut others = [node.tcp(2), node.unix(3), node.tcp(4)];
    assert!(others.iter_mut().all(|other| other.holds(b"k")), "all places but one were silent");
    assert!(client.holds(b"k"), "a client that has said hello keeps its place");
    let hung_up = |socket: &mut TcpStream| matches!(socket.read(&mut [0]), Ok(0) | Err(_));
    assert!(silent.iter_mut().all(hung_up), "the silent ones have been closed");
}

/// Load balancers probe the data port by connecting and closing: each probe was counted as a malformed frame, and an alert on
/// that number rang all night. Now only bytes that make no sense count, before a handshake and after it.
#[test]
fn a_port_probe_is_no_malformed_frame() {
    let node = start("probed");
    let address = node.node.data_address();
    for _ in 0..10 {
        drop(TcpStream::connect(address).unwrap());
    }
    assert_eq!(raw(address, b""), b"");
    eventually("every probe was served", || node.metric("tidepool_node_connections_total") == 11);
    eventually("every probe is gone", || node.metric("tidepool_node_connections") == 0);
    assert_eq!(node.metric("tidepool_node_malformed_total"), 0);
    raw(address, &[0xff; 4096]);
    eventually("noise is counted", || node.metric("tidepool_node_malformed_total") == 1);
    raw(address, &[hello(), vec![0xff; 4096]].concat());
    eventually("noise after a hello is counted", || node.metric("tidepool_node_malformed_total") == 2);
}

/// A node removed whatever had the name of its socket. Now it removes a socket that a dead node left, and nothing else.
#[test]
fn a_file_with_the_name_of_the_socket_stays_and_is_named() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("here.sock");
    let config = NodeConfig { dir: dir.path().to_owned(), ..NodeConfig::small("here") };
    std::fs::write(&path, "theirs").unwrap();
    let Err(error) = Node::start(config.clone()) else { panic!("started over another program's file") };
    assert!(error.to_string().contains("here.sock") && error.to_string().contains("is no socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    std::fs::remove_file(&path).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(Node::start(config).is_ok(), "a dead node's socket is no obstacle");
}
