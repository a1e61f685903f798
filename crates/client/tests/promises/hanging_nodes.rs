//! Nodes that accept a connection and then say nothing: they hide nobody, they are named, and nobody is kept waiting for them.

use crate::cluster::{Cluster, eventually, name, prefer};
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::time::Duration;
use tidepool_client::{Client, ClientConfig, NodeError};

/// Sockets were tried one after the other, a quarter of a second each, within one second: with a few nodes that hung, a
/// healthy one was not found, and commands, which look once, said that there was no node. Now all are tried at once, and
/// those that do not answer are known by name.
#[test]
fn nodes_that_hang_hide_no_healthy_one() {
    let cluster = Cluster::without_catalog(1);
    let mut hanging: Vec<String> = (0..12).map(|n| format!("a-{n}")).chain((0..3).map(|n| format!("z-{n}"))).collect();
    let _sockets: Vec<UnixListener> =
        hanging.iter().map(|name| UnixListener::bind(cluster.dir().join(format!("{name}.sock"))).unwrap()).collect();
    let dir = cluster.dir().to_owned();
    let client = Client::connect(ClientConfig { dir, catalogs: Vec::new(), ..ClientConfig::default() }).unwrap();
    assert_eq!(client.members().iter().map(|node| node.name.to_string()).collect::<Vec<_>>(), ["n0"]);
    let mut unheard: Vec<String> = client.unheard().iter().map(ToString::to_string).collect();
    unheard.sort();
    hanging.sort();
    assert_eq!(unheard, hanging);
    assert_eq!(client.node_stat(&name("a-3")).unwrap_err(), NodeError::Unreachable(name("a-3")));
}

#[test]
fn a_node_that_only_a_catalog_could_know_is_not_called_unknown_while_none_answers() {
    let cluster = Cluster::without_catalog(1);
    let (dir, catalogs) = (cluster.dir().to_owned(), vec!["127.0.0.1:1".to_owned()]);
    let client = Client::connect(ClientConfig { dir, catalogs, ..ClientConfig::default() }).unwrap();
    assert_eq!(client.node_stat(&name("far")).unwrap_err(), NodeError::NoCatalog(name("far")));
    let found = client.whereabouts("absent").unwrap();
    assert!(found.copies.is_empty() && !found.catalog_answered);
}

/// Whether nobody has closed it yet.
fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A client that ended waited for its probes, of which each gives a node a second: commands ran that much past their
/// deadline. Now probes end on their own.
#[test]
fn a_client_that_ends_does_not_wait_for_a_node_that_hangs() {
    let mut cluster = Cluster::new(0);
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = hanging.local_addr().unwrap().to_string();
    cluster.add_node("hanging", |config| config.data_advertise = Some(address));
    let client = cluster.client_with(1, |config| config.local = false);
    let hurried = client.within(Duration::from_millis(200));
    // Once it is down, a probe begins twice a second and takes a second.
    eventually("the node is passed by", || {
        let _ = hurried.put("key", b"bytes", &prefer("hanging"));
        client.stats().nodes_down > 0
    });
    hanging.set_nonblocking(true).unwrap();
    while hanging.accept().is_ok() {}
    let mut probe = None;
    eventually("a probe has begun", || {
        probe = hanging.accept().ok().map(|(stream, _)| stream);
        probe.is_some()
    });
    drop((client, hurried));
    assert!(is_open(&probe.unwrap()), "the probe was waited for");
}
