//! Connections that say nothing cost nobody else anything.
//!
//! Whoever opened as many connections as a catalog takes and kept them silent locked every node and client out of it for as long
//! as it liked: nothing ended a connection that never began to speak. Now a connection that has asked nothing makes way for a
//! new one, and one that does not even begin is closed after a few seconds.

mod common;

use common::{Asker, quick};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use tidepool_catalog::{CatalogConfig, Server};
use tidepool_schema::StatRequest;

const LIMIT: usize = 8;

fn server() -> Server {
    Server::start(CatalogConfig { max_connections: LIMIT, ..quick() }).unwrap()
}

fn refused(server: &Server) -> u64 {
    let metrics = server.metrics();
    let refused = metrics.iter().find(|metric| metric.name == "tidepool_catalog_connections_refused_total").unwrap();
    match refused.value {
        tidepool_types::Value::Counter(count) => count,
        _ => panic!("not a counter"),
    }
}

/// Whether the other side has closed it, waiting for that as long as a slow machine may need.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn silent_connections_make_way_for_those_that_ask() {
    let server = server();
    let asked = Asker::new(&server);
    asked.run(asked.client.clone().stat(StatRequest {})).unwrap();
    // Three times as many as there are places: half say nothing, half that they speak HTTP/2 and then nothing.
    let silent: Vec<TcpStream> = (0..3 * LIMIT)
        .map(|n| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            if n % 2 == 0 {
                let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
            }
            stream
        })
        .collect();
    let newcomers: Vec<Asker> = (0..LIMIT - 1)
        .map(|_| {
            let asker = Asker::new(&server);
            asker.run(asker.client.clone().stat(StatRequest {})).unwrap();
            asker
        })
        .collect();
    assert!(silent.iter().all(is_closed), "every place belongs to somebody who asked");
    assert!(refused(&server) >= 3 * LIMIT as u64);
    for asker in newcomers.iter().chain([&asked]) {
        asker.run(asker.client.clone().stat(StatRequest {})).unwrap();
    }
}

#[test]
fn a_connection_that_never_begins_is_closed() {
    let server = server();
    let silent = TcpStream::connect(server.address()).unwrap();
    let mut half = TcpStream::connect(server.address()).unwrap();
    half.write_all(b"PRI * HTTP").unwrap();
    assert!(is_closed(&silent));
    assert!(is_closed(&half));
}
