//! Connections come and go; what they took goes with them.

mod common;

use common::{eventually, id, start};
use tidepool_wire::message::{Request, ReserveOutcome};

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
    let round = |connections: u64| {
        for n in 0..connections {
            // Every other one with the memory mapped; some leave a reservation, some a request without its answer.
            let mut client = if n % 2 == 0 { node.unix(n + 2) } else { node.tcp(n + 2) };
            if n % 10 == 1 {
                assert!(matches!(client.reserve(&n.to_le_bytes(), 1000), ReserveOutcome::Taken { .. }));
            }
            if n % 10 == 2 {
                client.connection.send(&Request::Confirm(vec![id(b"k")]), &[], common::soon()).unwrap();
            }
        }
        eventually("every connection is closed", || node.metric("tidepool_node_connections") == 0);
    };
    round(500);
    let (memory, fds) = (resident_kib(), descriptors());
    round(10_000);
    eventually("no descriptor stays behind", || descriptors() <= fds);
    let grown = resident_kib().saturating_sub(memory);
    assert!(grown < 4 << 10, "memory grew by {grown} KiB");
    assert_eq!(node.metric("tidepool_node_reserved"), 0);
    assert_eq!(node.metric("tidepool_node_holds"), 0);
}
