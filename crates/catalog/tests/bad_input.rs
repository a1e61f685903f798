//! Bad input gets a clear error and costs nobody else anything.

mod common;

use common::{Asker, HandNode, quick};
use tidepool_catalog::{CatalogConfig, Server, StartError};
use tidepool_schema::inventory_up::Message;
use tidepool_schema::{Deltas, Hello, LookupRequest, MatchPrefixRequest, SnapshotPage, StatRequest, Want};
use tonic::Code;

#[test]
fn ids_of_a_bad_length_are_rejected() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let request = LookupRequest { ids: vec![0; 17].into(), want: Want::Exists.into(), lease: false, vouch: false };
    let status = asker.run(asker.client.clone().lookup(request)).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("16 bytes each"), "{status}");
    let request = MatchPrefixRequest { ids: vec![0; 32].into(), lengths: vec![3], want: Want::Exists.into() };
    let status = asker.run(asker.client.clone().match_prefix(request)).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let stat = asker.run(asker.client.clone().stat(StatRequest {})).unwrap().into_inner();
    let rejected = stat.numbers.iter().find(|number| number.name == "tidepool_catalog_rejected_requests_total");
    assert_eq!(rejected.map(|number| number.value), Some(2));
}

#[test]
fn a_message_above_the_limit_is_refused_and_the_connection_goes_on() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let raw = asker.client.clone().max_encoding_message_size(usize::MAX);
    let request =
        LookupRequest { ids: vec![0; 17 << 20].into(), want: Want::Exists.into(), lease: false, vouch: false };
    assert!(asker.run({ raw }.lookup(request)).is_err());
    assert!(asker.run(asker.client.clone().stat(StatRequest {})).is_ok());
}

#[test]
fn a_bad_stream_is_ended_and_others_go_on() {
    let server = Server::start(quick()).unwrap();
    let asker = Asker::new(&server);
    let mut good = HandNode::connect(&server, "good", 1).unwrap();
    good.snapshot(1, 0, 0..10);
    let bad = [
        Message::Hello(Hello { node: None, ack_bound_millis: 0 }),
        Message::Page(SnapshotPage { snapshot: 1, ids: vec![0; 15].into(), ..SnapshotPage::default() }),
        Message::Page(SnapshotPage { ids: vec![0; 16].into(), tiers: vec![9].into(), ..SnapshotPage::default() }),
        Message::Deltas(Deltas { first: 1, ids: vec![0; 16].into(), kinds: Vec::new().into() }),
    ];
    for message in bad {
        let mut node = HandNode::connect(&server, "bad", 1).unwrap();
        assert_eq!(node.say(message).unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(HandNode::connect(&server, "../etc", 1).err().map(|status| status.code()), Some(Code::InvalidArgument));
    good.heartbeat(0, 0).unwrap();
    assert!(asker.holders(0..10).iter().all(|holders| holders == &["good"]));
}

#[test]
fn a_port_in_use_is_named() {
    let server = Server::start(quick()).unwrap();
    let second = Server::start(CatalogConfig { listen: server.address(), ..quick() });
    let Err(error @ StartError::Listen { .. }) = second else { panic!("the port is in use") };
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
}

#[test]
fn connections_past_the_bound_are_closed_at_once_and_the_others_go_on() {
    let server = Server::start(CatalogConfig { max_connections: 2, ..quick() }).unwrap();
    let asker = Asker::new(&server);
    asker.holders(0..1);
    let mut sockets: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(server.address()).unwrap()).collect();
    let closed = |socket: &mut std::net::TcpStream| {
        socket.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut buffer = [0; 64];
        loop {
            match std::io::Read::read(socket, &mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    assert_eq!(sockets.iter_mut().filter_map(|socket| closed(socket).then_some(())).count(), 7);
    asker.holders(0..1);
}
