//! Writers and viewers that lose their socket, stop or die: their space is never reused while they could still touch it,
//! and always comes back. The writers are processes of their own: this test program, run again.

mod common;

use common::{TestNode, content, id, soon, start, start_with};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tidepool_store::Mapping;
use tidepool_testing::eventually;
use tidepool_transfer::conn::Connection;
use tidepool_types::ClientId;
use tidepool_wire::message::{Hello, Reply, Request, Reserve, ReserveItem, ReserveOutcome, ViewOutcome};

const CHILD: &str = "TIDEPOOL_TEST_SOCKET";

/// Not a test of its own: what the child processes run. Obeys lines on its standard input.
#[test]
fn child_process() {
    let Some(socket) = std::env::var_os(CHILD) else { return };
    let connect = || {
        let hello = Hello { client: ClientId(77), wants_memory: true };
        let (connection, welcome, fds) = Connection::connect_unix(Path::new(&socket), hello, soon()).unwrap();
        let mapping = Some(Arc::new(Mapping::open(&fds[0], &fds[1], fds.get(2)).unwrap()));
        common::Client { connection, welcome, mapping }
    };
    let mut client = connect();
    let mut taken = None;
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "reserve" => {
                let outcome = client.reserve(b"late", 1 << 20);
                if let ReserveOutcome::Taken { slot, offset } = outcome {
                    taken = Some((slot, offset));
                }
                println!("{}", if outcome == ReserveOutcome::UseSocket { "use socket" } else { "taken" });
            }
            // Asks for space and never reads the answer.
            "ask" => {
                let items = vec![ReserveItem { key: b"asked".to_vec(), len: 1 << 20 }];
                let reserve = Reserve { wait_millis: 50, mapped: true, items, ..Reserve::default() };
                client.connection.send(&Request::Reserve(reserve), &[], soon()).unwrap();
                println!("asked");
            }
            // Fills the reservation through the mapping, whatever the node thinks of the connection by now.
            "fill" => {
                let (slot, offset) = taken.unwrap();
                client.fill(b"late", slot, offset, &[0xee; 1 << 20]);
                println!("filled");
            }
            "view" => {
                let Reply::Views(views) = client.call(&Request::View(vec![id(b"k")].into())).unwrap() else { panic!() };
                println!("{}", matches!(views[0], ViewOutcome::Pinned { .. }));
            }
            "reconnect" => {
                client = connect();
                println!("connected");
            }
            _ => return,
        }
    }
}

struct Process {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--nocapture", "--test-threads=1"])
            .env(CHILD, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, answers }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let known = ["taken", "use socket", "asked", "filled", "true", "false", "connected"];
        loop {
            let answer = self.answers.next().expect("the child answers").unwrap();
            // The test harness of the child prints lines of its own, without an end before our first answer.
            if let Some(known) = known.iter().find(|known| answer.ends_with(**known)) {
                return (*known).to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// Waits until the node has looked once more for processes that have ended.
fn wait_for_a_look(node: &TestNode) {
    let mut late = Process::start(node.node.socket_path());
    assert_eq!(late.ask("reserve"), "taken");
    assert_eq!(late.ask("reconnect"), "connected");
    eventually("its reservation is late", || node.metric("tidepool_node_quarantined_reservations") == 1);
    late.signal(Signal::KILL);
    eventually("its end is noticed", || node.metric("tidepool_node_quarantined_reservations") == 0);
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_writer_gives_its_space_back() {
    let node = start("killed");
    let mut writer = Process::start(node.node.socket_path());
    assert_eq!(writer.ask("reserve"), "taken");
    assert_eq!(node.metric("tidepool_node_reserved"), 1);
    writer.signal(Signal::KILL);
    eventually("the reservation is gone", || node.metric("tidepool_node_reserved") == 0);
    assert_eq!(node.metric("tidepool_node_free_bytes"), node.metric("tidepool_node_capacity_bytes"));
}

#[test]
fn a_writer_killed_before_it_read_its_reply_gives_its_space_back() {
    let node = start("unread");
    let mut writer = Process::start(node.node.socket_path());
    assert_eq!(writer.ask("ask"), "asked");
    eventually("space is taken", || node.metric("tidepool_node_reserved") == 1);
    writer.signal(Signal::KILL);
    eventually("the reservation is gone", || node.metric("tidepool_node_reserved") == 0);
    eventually("nothing is in quarantine", || node.metric("tidepool_node_quarantined_bytes") == 0);
    assert_eq!(node.metric("tidepool_node_free_bytes"), node.metric("tidepool_node_capacity_bytes"));
}

#[test]
fn a_late_writer_never_writes_into_anothers_block() {
    let node = start_with("late", |config| config.capacity.0 = 4 << 20);
    let mut writer = Process::start(node.node.socket_path());
    assert_eq!(writer.ask("reserve"), "taken");
    // Its connection closes, but the process lives and still has the slab mapped.
    assert_eq!(writer.ask("reconnect"), "connected");
    eventually("the reservation is in quarantine", || node.metric("tidepool_node_quarantined_reservations") == 1);
    let mut other = node.unix(1);
    let keys: Vec<[u8; 4]> = (0..12u32).map(u32::to_le_bytes).collect();
    keys.iter().for_each(|key| other.put(key, &content(key, 1 << 20)));
    assert_eq!(writer.ask("fill"), "filled");
    let hits = keys.iter().filter(|key| other.get(*key).is_ok_and(|bytes| bytes == content(*key, 1 << 20))).count();
    let reads = keys.iter().filter(|key| other.get(*key).is_ok()).count();
    assert_eq!(hits, reads, "every block that is read has its own bytes");
    assert!(hits >= 2, "the rest of the pool is in use");
    writer.signal(Signal::KILL);
    eventually("the quarantine is empty", || node.metric("tidepool_node_quarantined_bytes") == 0);
    assert_eq!(node.metric("tidepool_node_reserved"), 0);
}

#[test]
fn a_stopped_writer_keeps_its_space_until_it_ends() {
    let node = start("stopped");
    let mut writer = Process::start(node.node.socket_path());
    assert_eq!(writer.ask("reserve"), "taken");
    writer.signal(Signal::STOP);
    wait_for_a_look(&node);
    assert_eq!(node.metric("tidepool_node_reserved"), 1, "a stopped process may still write");
    writer.signal(Signal::CONT);
    assert_eq!(writer.ask("fill"), "filled");
    writer.signal(Signal::KILL);
    eventually("the reservation is gone", || node.metric("tidepool_node_reserved") == 0);
}

#[test]
fn quarantine_is_bounded_and_past_it_puts_go_through_the_socket() {
    let node = start_with("bounded", |config| config.quarantine_limit.0 = (2 << 20) + 1);
    let mut writer = Process::start(node.node.socket_path());
    for _ in 0..2 {
        assert_eq!(writer.ask("reserve"), "taken");
        assert_eq!(writer.ask("reconnect"), "connected");
    }
    eventually("two are in quarantine", || node.metric("tidepool_node_quarantined_reservations") == 2);
    assert_eq!(writer.ask("reserve"), "use socket");
}

/// Only reservations that were late already counted: a client could open as many as it liked and lose its socket, and all of
/// them, the whole pool if need be, were in quarantine at once. Now those that are open count too.
#[test]
fn what_becomes_late_all_at_once_is_bounded() {
    let node = start_with("at-once", |config| config.quarantine_limit.0 = 1 << 20);
    let bound = node.metric("tidepool_node_capacity_bytes") / 4;
    let mut writer = node.unix(1);
    let outcomes: Vec<ReserveOutcome> = (0..16u32).map(|n| writer.reserve(&n.to_le_bytes(), 1 << 20)).collect();
    let mapped = outcomes.iter().filter(|outcome| matches!(outcome, ReserveOutcome::Taken { .. })).count() as u64;
    assert_eq!(mapped, bound >> 20, "a quarter of the pool: {outcomes:?}");
    assert!(outcomes[mapped as usize..].iter().all(|outcome| *outcome == ReserveOutcome::UseSocket));
    drop(writer);
    eventually("they are late", || node.metric("tidepool_node_quarantined_reservations") == mapped);
    assert!(node.metric("tidepool_node_quarantined_bytes") <= bound);
    // Those that were sealed or given up count no more.
    let mut other = node.unix(2);
    (0..8u32).for_each(|n| other.put(&[&b"put"[..], &n.to_le_bytes()].concat(), &content(b"put", 1 << 20)));
}

#[test]
fn a_killed_viewer_lets_its_views_go() {
    let node = start("viewer");
    let mut client = node.unix(1);
    client.put(b"k", &[5; 5000]);
    let mut viewer = Process::start(node.node.socket_path());
    assert_eq!(viewer.ask("view"), "true");
    assert_eq!(viewer.ask("reconnect"), "connected");
    eventually("its first connection is over", || node.metric("tidepool_node_connections") == 2);
    wait_for_a_look(&node);
    assert_eq!(node.metric("tidepool_node_views"), 1, "a closed socket does not unpin");
    viewer.signal(Signal::KILL);
    eventually("the view is gone", || node.metric("tidepool_node_views") == 0);
    // The scrubber may be reading the block.
    eventually("nothing holds the block", || node.metric("tidepool_node_holds") == 0);
}
