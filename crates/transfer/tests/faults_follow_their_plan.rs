//! The fault-injecting wrapper does what its plan says, the same way for the same seed.

use std::time::Duration;
use tidepool_transfer::conformance::read;
use tidepool_transfer::fault::{FaultPlan, Faulty};
use tidepool_transfer::memory::{MemoryNode, MemoryTransport};
use tidepool_transfer::ops::{Destination, Failure, Op, Refused};
use tidepool_transfer::testing::{block_bytes, block_id};
use tidepool_transfer::transport::{Health, Transport};
use tidepool_types::{Deadline, Epoch};

const OPS: u64 = 400;

fn outcomes(plan: FaultPlan) -> Vec<Option<Failure>> {
    let node = MemoryNode::new(Epoch(1));
    let mut transport = Faulty::new(MemoryTransport::new(node.clone()), plan);
    let deadline = Deadline::after(Duration::from_millis(200));
    let submit = |number| {
        node.put(block_id(number), block_bytes(number, 10));
        Op::Read(read(number, Destination::Allocate))
    };
    let ops: Vec<Op> = (0..OPS).map(submit).collect();
    let accepted = transport.submit(ops, deadline).iter().filter(|answer| answer.is_ok()).count();
    let mut done = Vec::new();
    while done.len() < accepted {
        assert!(transport.poll(&mut done, Deadline::after(Duration::from_secs(20))) > 0);
    }
    done.sort_by_key(|completion| completion.token);
    done.into_iter().map(|completion| completion.outcome.err()).collect()
}

#[test]
fn each_fault_strikes_about_as_often_as_planned_and_repeatably() {
    let delay = Duration::from_millis(5);
    let plan = FaultPlan { seed: 77, lost: 100, delayed: 100, delay, failed: 100, corrupt: 100, close_after: None };
    let first = outcomes(plan.clone());
    assert_eq!(first, outcomes(plan));
    let count = |which: fn(&Failure) -> bool| first.iter().flatten().filter(|failure| which(failure)).count();
    for struck in [
        count(|failure| *failure == Failure::TimedOut),
        count(|failure| *failure == Failure::Unavailable),
        count(|failure| matches!(failure, Failure::Corrupt(_))),
    ] {
        assert!((15..=80).contains(&struck), "{struck} of {OPS} at a rate of a tenth");
    }
}

#[test]
fn a_plan_that_closes_refuses_what_comes_after() {
    let node = MemoryNode::new(Epoch(1));
    let mut transport =
        Faulty::new(MemoryTransport::new(node), FaultPlan { close_after: Some(2), ..FaultPlan::default() });
    assert_eq!(transport.health(), Health::Up);
    let ops = (0..3).map(|number| Op::Read(read(number, Destination::Allocate))).collect();
    let answers = transport.submit(ops, Deadline::after(Duration::from_secs(1)));
    assert_eq!(answers, [Ok(()), Ok(()), Err(Refused::Closed)]);
    assert_eq!(transport.health(), Health::Down);
}
