//! A catalog's memory after many connections at once.

mod common;

use common::Daemon;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write as _;
use std::net::TcpStream;
use tidepool_testing::eventually;

const CONNECTIONS: usize = 1000;
/// The daemon keeps a third of its descriptors for connections.
const DESCRIPTORS: u64 = 4 * CONNECTIONS as u64;

fn resident(daemon: &Daemon) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", daemon.id())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn open_files(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap().count()
}

/// A catalog kept 145 MB for good after bursts of 5,000 connections: the C library keeps what its threads have freed. Most of what a
/// burst took is given back once it is over.
#[test]
fn a_catalog_gives_back_what_a_burst_of_connections_took() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < DESCRIPTORS) {
        eprintln!("SKIPPED: processes may open fewer than {DESCRIPTORS} files (ulimit -Hn)");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..limit }).unwrap();
    let catalog = Daemon::catalog();
    let before = resident(&catalog);
    let connect = |_| {
        let mut stream = TcpStream::connect(catalog.address("catalog", "listen")).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        stream
    };
    let burst: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    eventually("all accepted", || open_files(&catalog) >= CONNECTIONS);
    // They take more than twice as much, of which more than half stayed.
    eventually("memory for them", || resident(&catalog) > before + CONNECTIONS as u64 * 8192);
    drop(burst);
    eventually("memory given back", || resident(&catalog) < before + CONNECTIONS as u64 * 4096);
}
