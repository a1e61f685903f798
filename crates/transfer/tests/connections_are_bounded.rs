//! A peer can waste its own connection and nothing else: every wait ends, every length is checked, nothing is reused after
//! a failure.

use rustix::fd::{AsFd, OwnedFd};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use tidepool_transfer::conn::{ConnError, Connection, TcpOptions};
use tidepool_types::{ClientId, Deadline, Epoch, MAX_BLOCK_LEN};
use tidepool_wire::frame::{FrameError, HEADER_LEN, MAX_BODY, encode_reply, encode_request};
use tidepool_wire::message::{Hello, Reason, Reply, Request, Touch, Welcome};

fn pair() -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Connection::from_socket(ours.into()).unwrap(), theirs)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(100))
}

fn late() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn hello() -> Hello {
    Hello { client: ClientId(5), wants_memory: true }
}

fn request(number: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_request(number, &Request::Stat, 0, &mut frame).unwrap();
    frame
}

/// Longer than a megabyte, as a frame.
fn long_answer() -> Reply {
    Reply::Stat((0..60_000).map(|at| (format!("name-{at}"), at)).collect())
}

#[test]
fn a_silent_peer_times_out_and_the_connection_stays_good() {
    let (mut connection, mut peer) = pair();
    assert!(matches!(connection.recv_request(soon()), Err(ConnError::TimedOut)));
    peer.write_all(&request(1)).unwrap();
    assert_eq!(connection.recv_request(late()).unwrap().message, Ok(Request::Stat));
}

#[test]
fn a_peer_that_stops_in_a_frame_ends_the_connection() {
    let frame = request(1);
    for sent in 1..frame.len() {
        let (mut connection, mut peer) = pair();
        peer.write_all(&frame[..sent]).unwrap();
        assert!(matches!(connection.recv_request(Deadline::after(Duration::from_millis(5))), Err(ConnError::TimedOut)));
        peer.write_all(&frame[sent..]).unwrap_or(());
        assert!(matches!(connection.recv_request(late()), Err(ConnError::Closed)), "reused after {sent} bytes");
    }
}

#[test]
fn a_trickling_peer_does_not_extend_the_deadline() {
    let (mut connection, mut peer) = pair();
    let line = Connection::from_socket(peer.try_clone().unwrap().into()).unwrap();
    let trickle = std::thread::spawn(move || {
        let (socket, mut frame) = (line.socket(), Vec::new());
        encode_reply(1, &long_answer(), &mut frame).unwrap();
        // Each byte when the one before was read, for as long as anybody reads.
        for byte in frame {
            if peer.write_all(&[byte]).is_err() {
                return;
            }
            while socket.has_unread() && !socket.has_hung_up() {
                std::thread::yield_now();
            }
        }
        panic!("the answer was read to its end");
    });
    assert!(matches!(connection.call(&Request::Stat, &[], soon()), Err(ConnError::TimedOut)));
    assert!(matches!(connection.call(&Request::Stat, &[], late()), Err(ConnError::Closed)), "reused");
    drop(connection);
    trickle.join().unwrap();
}

#[test]
fn a_started_frame_has_its_own_budget() {
    let (mut connection, mut peer) = pair();
    connection.set_frame_budget(Duration::from_millis(50));
    peer.write_all(&request(1)[..10]).unwrap();
    assert!(matches!(connection.recv_request(Deadline::after(Duration::from_secs(3600))), Err(ConnError::TimedOut)));
}

#[test]
fn a_reader_that_stops_times_out_the_sender() {
    let (mut connection, peer) = pair();
    let payload = vec![0; 16 << 20];
    let write = Request::Write(tidepool_wire::message::Write {
        slot: tidepool_wire::message::SlotName { slot: 1, generation: tidepool_types::Generation(1) },
        offset: 0,
    });
    let sent = connection.send(&write, &[std::io::IoSlice::new(&payload)], soon());
    assert!(matches!(sent, Err(ConnError::TimedOut)), "{sent:?}");
    assert!(matches!(connection.send(&Request::Stat, &[], late()), Err(ConnError::Closed)), "reused");
    drop(peer);
}

#[test]
fn oversized_lengths_are_refused_before_memory_is_taken() {
    let oversized_body = (16..20, (MAX_BODY + 1).to_le_bytes().to_vec());
    let oversized_payload = (20..28, (MAX_BLOCK_LEN + 1).to_le_bytes().to_vec());
    for (place, bytes) in [oversized_body, oversized_payload, (0..4, vec![0; 4]), (4..5, vec![9])] {
        let (mut connection, mut peer) = pair();
        let mut frame = request(1);
        frame.resize(HEADER_LEN, 0);
        frame[place].copy_from_slice(&bytes);
        peer.write_all(&frame).unwrap();
        assert!(matches!(connection.recv_request(late()), Err(ConnError::Frame(_))));
        assert!(matches!(connection.recv_request(late()), Err(ConnError::Closed)), "reused");
    }
}

#[test]
fn a_wrong_checksum_ends_the_connection() {
    let (mut connection, mut peer) = pair();
    let mut frame = request(1);
    frame[9] ^= 1;
    peer.write_all(&frame).unwrap();
    let received = connection.recv_request(late());
    assert!(matches!(received, Err(ConnError::Frame(FrameError::Checksum { .. }))), "{received:?}");
    assert!(matches!(connection.recv_request(late()), Err(ConnError::Closed)), "reused");
}

#[test]
fn a_one_way_frame_is_dropped_whole_or_sent_whole() {
    let (mut connection, mut peer) = pair();
    let touch = Request::Touch(Touch { hits: 3, ..Touch::default() });
    let mut sent = 0;
    while connection.send_one_way(&touch).unwrap() {
        sent += 1;
    }
    peer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut node = Connection::from_socket(peer.try_clone().unwrap().into()).unwrap();
    for _ in 0..sent {
        assert_eq!(node.recv_request(late()).unwrap().message, Ok(touch.clone()));
    }
    assert!(peer.read(&mut [0; 1]).is_err(), "part of a dropped frame was sent");
    assert!(connection.send_one_way(&touch).unwrap(), "there is room again");
}

#[test]
fn a_connection_starts_with_hello() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&request(4)).unwrap();
    let accepted = Connection::accept(ours.into(), late());
    assert!(matches!(accepted, Err(ConnError::Unexpected(_))), "{accepted:?}");
    let mut client = Connection::from_socket(theirs.into()).unwrap();
    let (number, reply) = client.recv(late()).unwrap();
    assert!(number == 4 && matches!(reply, Reply::Refused(_)), "{reply:?}");
}

#[test]
fn a_peer_of_another_version_is_told() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut frame = request(4);
    frame[4] = 99;
    theirs.write_all(&frame).unwrap();
    assert!(matches!(Connection::accept(ours.into(), late()), Err(ConnError::Frame(FrameError::Version(99)))));
    let (_, reply) = Connection::from_socket(theirs.into()).unwrap().recv(late()).unwrap();
    assert!(matches!(&reply, Reply::Refused(refusal) if refusal.reason == Reason::Version), "{reply:?}");
}

#[test]
fn descriptors_travel_with_the_welcome() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let node = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let (mut connection, hello) = Connection::accept(stream.into(), late()).unwrap();
        let mut files = [(); 3].map(|()| tempfile::tempfile().unwrap());
        for (number, file) in (0u8..).zip(&mut files) {
            file.write_all(&[number]).unwrap();
        }
        let welcome =
            Welcome { node: "n".to_owned(), epoch: Epoch(8), memory: true, writable: true, build: String::new() };
        connection.welcome(welcome, &files.each_ref().map(AsFd::as_fd), late()).unwrap();
        let incoming = connection.recv_request(late()).unwrap();
        connection.send_reply(incoming.number, &Reply::Done, &[], &[], late()).unwrap();
        hello
    });
    let (mut connection, welcome, fds) = Connection::connect_unix(&path, hello(), late()).unwrap();
    assert_eq!(welcome.epoch, Epoch(8));
    assert_eq!(connection.call(&Request::Stat, &[], late()).unwrap(), Reply::Done);
    assert_eq!(node.join().unwrap(), hello());
    let first_byte = |fd: &OwnedFd| {
        let mut byte = [9];
        rustix::io::pread(fd, &mut byte, 0).unwrap();
        byte[0]
    };
    assert_eq!(fds.iter().map(first_byte).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn connecting_to_nobody_fails_and_to_a_silent_listener_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.sock");
    assert!(matches!(Connection::connect_unix(&path, hello(), late()), Err(ConnError::Io(_))));
    let _listener = UnixListener::bind(&path).unwrap();
    assert!(matches!(Connection::connect_unix(&path, hello(), soon()), Err(ConnError::TimedOut)));
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let options = tidepool_transfer::conn::TcpOptions::default();
    let silent = Connection::connect_tcp(address, &options, hello(), soon());
    assert!(matches!(silent, Err(ConnError::TimedOut)), "{silent:?}");
    drop(tcp);
    assert!(matches!(Connection::connect_tcp(address, &options, hello(), late()), Err(ConnError::Io(_))));
}

#[test]
fn a_payload_left_behind_is_skipped_and_a_body_in_many_pieces_is_whole() {
    let (mut connection, mut peer) = pair();
    let writer = std::thread::spawn(move || {
        let mut frame = Vec::new();
        encode_reply(1, &long_answer(), &mut frame).unwrap();
        encode_reply(2, &Reply::Done, &mut frame).unwrap();
        peer.write_all(&frame).unwrap();
    });
    let (_, reply) = connection.recv(late()).unwrap();
    assert_eq!(reply, long_answer());
    writer.join().unwrap();
    assert_eq!(connection.recv(late()).unwrap(), (2, Reply::Done));
}

/// Dropping a transport waited for as long as one of its streams was being connected, up to a second, because nobody could
/// end an attempt. Closing the socket now does, whatever the attempt waits for.
#[test]
fn closing_the_socket_ends_an_attempt_to_connect() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hello = Hello { client: ClientId(1), wants_memory: false };
    let address = silent.local_addr().unwrap();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let dial = move || {
        let until = Deadline::after(Duration::from_secs(600));
        let told = |socket: &std::sync::Arc<_>| tell.send(std::sync::Arc::clone(socket)).unwrap();
        Connection::connect_tcp_watched(address, &TcpOptions::default(), hello, until, told).map(|_| ())
    };
    let dialling = std::thread::spawn(dial);
    let socket = told.recv().unwrap();
    let accepted = silent.accept().unwrap();
    socket.close();
    assert!(dialling.join().unwrap().is_err());
    drop(accepted);
}
