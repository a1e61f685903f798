//! One process is killed or stopped: the cost, and the recovery.

use super::cluster::{Cluster, DEAD_SOON, client, content, eventually};
use rustix::process::Signal;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidepool_client::catalogs::NodeState::{Dead, Suspect};
use tidepool_client::{Client, ClientId, NodeName, PutOptions};

fn put(client: &Client, key: &str) {
    put_with(client, key, &PutOptions::default());
}

fn put_with(client: &Client, key: &str, options: &PutOptions) {
    client.put(key, &content(key.as_bytes()), options).unwrap();
}

fn prefer(node: &str) -> PutOptions {
    PutOptions { prefer: vec![NodeName::new(node).unwrap()], ..PutOptions::default() }
}

/// A hit with the right bytes; a miss is false.
fn hit(client: &Client, key: &str) -> bool {
    client.get(key).unwrap().is_some_and(|bytes| {
        assert!(bytes == content(key.as_bytes()), "wrong bytes");
        true
    })
}

/// In the place of a dead node: takes connections, says nothing, and remembers who called.
struct Knocks {
    address: SocketAddr,
    callers: Arc<Mutex<Vec<u64>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Knocks {
    fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).expect("the address of a dead node is free");
        let callers = Arc::new(Mutex::new(Vec::new()));
        let remember = Arc::clone(&callers);
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            for mut caller in listener.incoming().flatten() {
                // A hello: the header of 32 bytes, then who it is. Whoever is not a client ends this.
                let mut hello = [0; 40];
                if caller.read_exact(&mut hello).is_err() {
                    return;
                }
                remember.lock().unwrap().push(u64::from_le_bytes(hello[32..].try_into().unwrap()));
                open.push(caller);
            }
        });
        Self { address: address.parse().expect("an address"), callers, thread: Some(thread) }
    }

    fn heard(&self, client: ClientId) -> bool {
        self.callers.lock().unwrap().contains(&client.0)
    }
}

impl Drop for Knocks {
    fn drop(&mut self) {
        drop(TcpStream::connect(self.address));
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// How long puts and hits take, as the median of several rounds: each block is put, looked up through the catalogs, and read
/// over the network.
fn pace(writer: &Client, reader: &Client, what: &str) -> Duration {
    let round = |round: usize| {
        let keys: Vec<String> = (0..40).map(|n| format!("{what}-{round}-{n}")).collect();
        let blocks: Vec<Vec<u8>> = keys.iter().map(|key| key.repeat(20).into_bytes()).collect();
        let started = Instant::now();
        for (key, block) in keys.iter().zip(&blocks) {
            writer.put(key, block, &PutOptions::default()).unwrap();
            assert_eq!(reader.get(key).unwrap().as_ref(), Some(block), "{key}");
        }
        started.elapsed()
    };
    let mut rounds: Vec<Duration> = (0..9).map(round).collect();
    rounds.sort();
    rounds[rounds.len() / 2]
}

/// Nobody measured this: a client that asked the dead catalog first each time, or a node that waited for it each time, would
/// have been many times slower and not been noticed.
#[test]
fn puts_and_hits_go_on_at_full_speed_through_the_other_catalog() {
    let mut cluster = Cluster::start(2, "64MiB");
    let (writer, reader) = (cluster.client(Some(0)), cluster.client(None));
    let both = pace(&writer, &reader, "both");
    let once = |what: &str| {
        // What the loss costs, it costs once.
        put(&writer, what);
        assert!(hit(&reader, what));
    };
    cluster.catalogs[0].as_ref().unwrap().signal(Signal::STOP);
    once("stopped");
    let stopped = pace(&writer, &reader, "one-stopped");
    cluster.catalogs[0].take().unwrap().kill();
    once("killed");
    let killed = pace(&writer, &reader, "one-killed");
    println!(
        "forty puts and hits: {both:?} with both catalogs, {stopped:?} with one stopped, {killed:?} with one killed"
    );
    for one in [stopped, killed] {
        assert!(one < 3 * both + Duration::from_millis(20), "{one:?} with one catalog, {both:?} with both");
    }
}

/// Whether the reader's catalog knows of the block. It may say no only while it is not complete: on a busy machine a catalog
/// that did not acknowledge in time is healthy no more, and says so.
fn is_known(reader: &Client, key: &str) -> bool {
    let matches = reader.match_prefix(&[[key]]).unwrap();
    assert!(matches.shortest == 1 || !matches.complete, "{key}: a complete no to an answered put");
    matches.shortest == 1
}

#[test]
fn an_answered_put_is_found_through_each_healthy_catalog() {
    let cluster = Cluster::start(2, "16MiB");
    let writer = cluster.client(Some(0));
    let readers: Vec<Client> = cluster.addresses.iter().map(|one| client(std::slice::from_ref(one), None)).collect();
    let mut found = 0;
    for n in 0..200 {
        let key = format!("announced-{n}");
        put(&writer, &key);
        found += readers.iter().filter(|reader| is_known(reader, &key) && hit(reader, &key)).count();
    }
    assert!(found > 300, "{found} of 400 were found at once: catalogs are healthy most of the time");
}

#[test]
fn a_put_that_finds_its_block_held_is_announced_too() {
    // Two engines write the same prefix. The second was answered "held" as soon as the first had sealed, before any
    // catalog knew: a look-up after an answered put said no. Now such an answer waits for the catalogs as well.
    let cluster = Cluster::start(1, "16MiB");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let writer = cluster.client(Some(0));
                let readers = cluster.addresses.iter().map(|one| client(std::slice::from_ref(one), None));
                let readers: Vec<Client> = readers.collect();
                let mut found = 0;
                for n in 0..150 {
                    let key = format!("raced-{n}");
                    put(&writer, &key);
                    found += readers.iter().filter(|reader| is_known(reader, &key)).count();
                }
                assert!(found > 200, "{found} of 300 were found at once");
            });
        }
    });
}

#[test]
fn killing_a_catalog_is_a_non_event_and_restarted_it_is_exact() {
    let mut cluster = Cluster::start(2, "16MiB");
    let (writer, reader) = (cluster.client(Some(0)), cluster.client(None));
    let keys: Vec<String> = (0..100).map(|n| format!("before-{n}")).collect();
    keys.iter().for_each(|key| put(&writer, key));
    cluster.catalogs[0].take().unwrap().kill();
    let later: Vec<String> = (0..100).map(|n| format!("after-{n}")).collect();
    later.iter().for_each(|key| put(&writer, key));
    assert!(keys.iter().chain(&later).all(|key| hit(&reader, key)), "hits go on through the other catalog");
    cluster.restart_catalog(0);
    cluster.wait_until_known(2);
    let alone = client(&cluster.addresses[..1], None);
    let all: Vec<&String> = keys.iter().chain(&later).collect();
    assert!(alone.exists(&all).unwrap().iter().all(|found| *found), "it knows every block");
    assert_eq!(alone.exists(&["never put"]).unwrap(), [false]);
}

#[test]
fn a_stopped_catalog_costs_one_bounded_wait() {
    let cluster = Cluster::start(1, "16MiB");
    let writer = cluster.client(Some(0));
    put(&writer, "warm");
    let stopped = cluster.catalogs[1].as_ref().unwrap();
    stopped.signal(Signal::STOP);
    let started = Instant::now();
    put(&writer, "first");
    let first = started.elapsed();
    let started = Instant::now();
    (0..50).for_each(|n| put(&writer, &format!("later-{n}")));
    let later = started.elapsed();
    assert!(first < Duration::from_secs(2), "the first put after the stop took {first:?}");
    assert!(later < Duration::from_secs(2), "fifty later puts took {later:?}");
    stopped.signal(Signal::CONT);
    cluster.wait_until_known(1);
    let alone = client(&cluster.addresses[1..], None);
    assert_eq!(alone.exists(&["first", "later-49"]).unwrap(), [true, true], "it caught up by itself");
}

#[test]
fn a_killed_node_is_not_chosen_once_the_catalogs_have_seen_its_end_and_replicas_serve() {
    let mut cluster = Cluster::start(3, "16MiB");
    let writer = cluster.client(None);
    let options = PutOptions { replicas: 2, ..PutOptions::default() };
    let keys: Vec<String> = (0..60).map(|n| format!("twice-{n}")).collect();
    for key in &keys {
        assert_eq!(writer.put(key, &content(key.as_bytes()), &options).unwrap().replicas, 2, "{key}");
    }
    let killed = cluster.nodes[1].take().unwrap();
    let address = killed.ready["node"]["data-listen"].as_str().unwrap().to_owned();
    killed.kill();
    let knocks = Knocks::at(&address);
    assert!(keys.iter().all(|key| hit(&writer, key)), "every block has a replica that lives");
    cluster.wait_until_seen(1, &[Suspect, Dead]);
    // One that knows only what the catalogs say: had they still named the dead node, it would have called there.
    let newcomer = cluster.client(None);
    for n in 0..60 {
        put(&writer, &format!("survivor-{n}"));
        put(&newcomer, &format!("newcomer-{n}"));
    }
    assert!(keys.iter().all(|key| hit(&newcomer, key)));
    assert!(!knocks.heard(newcomer.id()), "the dead node was chosen");
    assert_eq!(newcomer.stats().nodes_down, 0);
    drop(knocks);
    // Restarted, it is a new incarnation with nothing in it, and serves again.
    cluster.nodes[1] = Some(cluster.start_node(1));
    cluster.wait_until_known(3);
    let options =
        PutOptions { prefer: vec![tidepool_types::NodeName::new("node-1").unwrap()], ..PutOptions::default() };
    eventually("the node takes blocks again", || {
        let key = format!("again-{}", cluster.metric(1, "tidepool_node_sealed_total"));
        let _ = writer.put(&key, &content(key.as_bytes()), &options);
        cluster.metric(1, "tidepool_node_sealed_total") > 0
    });
}

#[test]
fn a_stopped_node_costs_one_time_out_and_comes_back() {
    let cluster = Cluster::start_with(2, "16MiB", &DEAD_SOON);
    let writer = cluster.client(Some(1));
    let keys: Vec<String> = (0..40).map(|n| format!("stopped-{n}")).collect();
    keys.iter().for_each(|key| put_with(&writer, key, &prefer("node-1")));
    let reader = cluster.client(None);
    assert!(keys.iter().all(|key| hit(&reader, key)));
    cluster.nodes[1].as_ref().unwrap().signal(Signal::STOP);
    let started = Instant::now();
    let hits = keys.iter().filter(|key| hit(&reader, key)).count();
    let took = started.elapsed();
    assert_eq!(hits, 0);
    assert!(took < Duration::from_secs(8), "forty gets of a stopped node took {took:?}");
    // Stopped for longer than every limit, then continued.
    cluster.wait_until_seen(1, &[Dead]);
    cluster.nodes[1].as_ref().unwrap().signal(Signal::CONT);
    cluster.wait_until_known(2);
    eventually("its blocks are found again", || keys.iter().all(|key| hit(&reader, key)));
}

#[test]
fn same_host_gets_and_puts_go_on_without_any_catalog() {
    let mut cluster = Cluster::start(1, "16MiB");
    let local = cluster.client(Some(0));
    put(&local, "with");
    cluster.catalogs.iter_mut().for_each(|catalog| catalog.take().unwrap().kill());
    put(&local, "without");
    assert!(hit(&local, "with") && hit(&local, "without"));
}
