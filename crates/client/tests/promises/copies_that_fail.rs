//! A copy or a move that fails says whose fault it was: the network's or the node's, never the caller's.

use crate::cluster::{BOTH, Cluster, Over, content, eventually, name, prefer};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::Duration;
use tidepool_catalog::CatalogConfig;
use tidepool_client::NodeError;
use tidepool_client::catalogs::NodeState;
use tidepool_transfer::fault::FaultPlan;
use tidepool_transfer::testing::{Break, Proxy};

fn is_unreachable(error: &NodeError) -> bool {
    matches!(error, NodeError::Unreachable(node) | NodeError::Dead { node, .. } if *node == name("far"))
}

#[test]
fn a_target_that_is_stopped_does_not_answer_whether_catalogs_have_noticed_or_not() {
    let config = CatalogConfig {
        settle: Duration::ZERO,
        suspect_after: Duration::from_millis(200),
        dead_after: Duration::from_millis(600),
        ..CatalogConfig::default()
    };
    for over in BOTH {
        let mut cluster = Cluster::with_catalogs(1, &config);
        cluster.add_node("near", |_| {});
        let far = cluster.spawn_node("far");
        let client = cluster.client_and(over, 1).within(Duration::from_millis(300));
        client.put("key", b"bytes", &prefer("near")).unwrap();
        far.signal(Signal::STOP);
        let mut is_dead = false;
        while !is_dead {
            is_dead = client.members().iter().any(|node| node.state == Some(NodeState::Dead));
            for outcome in [client.copy_to("key", &name("far")), client.move_to("key", None, &name("far"))] {
                assert!(outcome.as_ref().is_err_and(is_unreachable), "{over:?}: {outcome:?}");
            }
        }
        far.signal(Signal::CONT);
    }
}

/// A bit that was flipped on the way to the target made the node refuse the request, and that was reported as a mistake in the
/// arguments. A request that was damaged on its way is made again.
#[test]
fn a_bit_that_is_flipped_on_the_way_to_the_target_costs_no_copy_and_blames_no_argument() {
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let proxy = Proxy::start(nowhere, Break::Never);
    let mut cluster = Cluster::new(1);
    cluster.add_node("far", |config| config.data_advertise = Some(proxy.address().to_string()));
    proxy.redirect(cluster.nodes[1].data_address());
    let client = cluster.client(Over::Tcp).within(Duration::from_secs(1));
    client.put("key", b"bytes", &prefer("n0")).unwrap();
    let mut unanswered = 0;
    for byte in (0..100).step_by(3) {
        eventually("a connection to the target is open", || client.node_stat(&name("far")).is_ok());
        proxy.set(Break::FlipRequest(proxy.requested() + byte));
        match client.copy_to("key", &name("far")) {
            Ok(()) => {}
            // In the length of a frame's body: the node waits for more than was sent.
            Err(NodeError::Unreachable(_)) => unanswered += 1,
            other => panic!("byte {byte} of the request was flipped: {other:?}"),
        }
        // What is flipped on the way back, the client sees itself.
        proxy.set(Break::Flip(proxy.passed() + byte));
        match client.move_to("key", None, &name("far")) {
            Ok(()) | Err(NodeError::Unreachable(_)) => {}
            other => panic!("byte {byte} of the answer was flipped: {other:?}"),
        }
        proxy.set(Break::Never);
        client.put("key", b"bytes", &prefer("n0")).unwrap();
    }
    assert!(unanswered <= 5, "{unanswered} of 34 copies were not made");
}

/// A node copied blocks over a transport of its own kind, into which no fault could be brought.
#[test]
fn a_copy_over_a_failing_transport_is_whole_or_not_made() {
    let seed = tidepool_types::drawn();
    eprintln!("seed {seed:#x}");
    let faults = FaultPlan { seed, failed: 250, corrupt: 250, delayed: 100, ..FaultPlan::default() };
    let mut cluster = Cluster::new(1);
    cluster.add_node("far", |config| config.faults = faults);
    let client = cluster.client(Over::Tcp);
    let (mut made, mut failed) = (0, 0);
    for number in 0..60 {
        let (key, bytes) = (format!("{number}"), content(number, 200_000));
        client.put(&key, &bytes[..], &prefer("n0")).unwrap();
        let is_made = match client.copy_to(&key, &name("far")) {
            Ok(()) => true,
            Err(NodeError::Unreachable(_)) => false,
            Err(other) => panic!("seed {seed:#x}: {other:?}"),
        };
        *if is_made { &mut made } else { &mut failed } += 1;
        let copies = crate::upserts::copies(&cluster, &key);
        assert_eq!(copies.len(), 1 + usize::from(is_made), "seed {seed:#x}, block {number}");
        assert!(copies.iter().all(|copy| *copy == bytes), "seed {seed:#x}: other bytes");
    }
    assert!(made > 0 && failed > 0, "seed {seed:#x}: {made} copies, {failed} failures");
}
