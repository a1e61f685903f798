//! Connections come and go, by processes that let go of what they took, or just end; what they took goes with them.
//!
//! This was one process that never viewed a block or mapped a reservation: it could not have told whether pins of processes
//! that end come back. Now each of twenty processes opens five hundred connections; this test program, run again.

mod common;

use common::{Client, TestNode, id, soon, start};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidepool_testing::eventually;
use tidepool_transfer::conn::{Connection, TcpOptions};
use tidepool_types::ClientId;
use tidepool_wire::message::{Hello, Reply, Request, Reserve, ReserveItem, ReserveOutcome, SlotName, ViewOutcome};

const CHILD: &str = "TIDEPOOL_TEST_CONNECTIONS";
const PROCESSES: usize = 20;
const CONNECTIONS: u64 = 500;

/// Not a test of its own: what the child processes run.
#[test]
fn child_process() {
    let Ok(plan) = std::env::var(CHILD) else { return };
    let [socket, address, end] = plan.split(' ').collect::<Vec<_>>()[..] else { panic!("{plan}") };
    let mut taken = Taken::default();
    let client = ClientId(std::process::id().into());
    for n in 0..CONNECTIONS {
        let hello = Hello { client, wants_memory: n % 2 == 0 };
        let (connection, welcome) = if n % 2 == 0 {
            let (connection, welcome, fds) = Connection::connect_unix(Path::new(socket), hello, soon()).unwrap();
            assert_eq!(fds.len(), 3, "a writable mapping");
            (connection, welcome)
        } else {
            Connection::connect_tcp(address.parse().unwrap(), &TcpOptions::default(), hello, soon()).unwrap()
        };
        taken.take(Client { connection, welcome, mapping: None }, n);
    }
    match end {
        "let-go" => taken.let_go(socket, client),
        // With views, reservations and connections in its hands.
        _ => rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap(),
    }
}

/// What a child has in its hands.
#[derive(Default)]
struct Taken {
    views: Vec<SlotName>,
    open: Vec<Client>,
}

impl Taken {
    /// Uses a connection in one of the ways there are, and drops it, or not.
    fn take(&mut self, mut client: Client, n: u64) {
        let key = [&std::process::id().to_le_bytes()[..], &n.to_le_bytes()].concat();
        let mapped = n.is_multiple_of(2);
        let reserve =
            Reserve { wait_millis: 50, mapped, items: vec![ReserveItem { key, len: 1000 }], ..Reserve::default() };
        match n % 10 {
            // A view whose connection closes; every other one is let go of before.
            0 | 4 => {
                let Reply::Views(views) = client.call(&Request::View(vec![id(b"k")].into())).unwrap() else { panic!() };
                let [ViewOutcome::Pinned { slot, .. }] = views[..] else { panic!("{views:?}") };
                match n % 10 {
                    0 => self.views.push(slot),
                    _ => assert!(client.connection.send_one_way(&Request::Unview(vec![slot])).unwrap()),
                }
            }
            // A reservation, mapped or not, whose connection closes.
            2 | 3 => {
                let Reply::Reserved(outcomes) = client.call(&Request::Reserve(reserve)).unwrap() else { panic!() };
                assert!(matches!(outcomes[0], ReserveOutcome::Taken { .. }), "{outcomes:?}");
            }
            // Requests without their answers.
            1 => drop(client.connection.send(&Request::Confirm(vec![id(b"k")].into()), &[], soon()).unwrap()),
            6 => drop(client.connection.send(&Request::View(vec![id(b"k")].into()), &[], soon()).unwrap()),
            8 => drop(client.connection.send(&Request::Reserve(reserve), &[], soon()).unwrap()),
            // A few stay open.
            7 if self.open.len() < 10 => self.open.push(client),
            _ => {}
        }
    }

    fn let_go(self, socket: &str, client: ClientId) {
        let hello = Hello { client, wants_memory: true };
        let (connection, welcome, _) = Connection::connect_unix(Path::new(socket), hello, soon()).unwrap();
        let mut last = Client { connection, welcome, mapping: None };
        assert!(last.connection.send_one_way(&Request::Unview(self.views)).unwrap());
        // Connections that closed a moment ago may not have been noticed yet: the end of the process gives those back.
        assert_eq!(last.call(&Request::Abort(Vec::new())).unwrap(), Reply::Done);
    }
}

fn spawn(node: &TestNode, end: &str) -> Child {
    let plan = format!("{} {} {end}", node.node.socket_path().display(), node.node.data_address());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--test-threads=1"])
        .env(CHILD, plan)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets `processes` processes loose, a few at a time, and waits until nothing is left of them.
fn round(node: &TestNode, processes: usize) {
    let ends: Vec<&str> = (0..processes).map(|n| if n % 2 == 0 { "let-go" } else { "killed" }).collect();
    for batch in ends.chunks(4) {
        let children: Vec<(Child, &str)> = batch.iter().map(|end| (spawn(node, end), *end)).collect();
        for (mut child, end) in children {
            let status = child.wait().unwrap();
            assert_eq!(status.success(), end == "let-go", "a process that was to end as {end}: {status}");
        }
    }
    let rest =
        ["connections", "views", "view_bytes", "holds", "reserved", "quarantined_reservations", "quarantined_bytes"];
    for name in rest.map(|name| format!("tidepool_node_{name}")) {
        eventually(&format!("{name} is zero"), || node.metric(&name) == 0);
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    let node = start("many");
    node.unix(1).put(b"k", &[1; 100]);
    round(&node, 2);
    let (memory, fds) = (resident_kib(), descriptors());
    let (before, free) = (node.metric("tidepool_node_connections_total"), node.metric("tidepool_node_free_bytes"));
    round(&node, PROCESSES);
    let connections = node.metric("tidepool_node_connections_total") - before;
    assert!(connections >= PROCESSES as u64 * CONNECTIONS, "{connections} connections");
    eventually("no descriptor stays behind", || descriptors() <= fds);
    let grown = resident_kib().saturating_sub(memory);
    assert!(grown < 4 << 10, "memory grew by {grown} KiB");
    assert_eq!(node.metric("tidepool_node_free_bytes"), free, "all space is back");
}
