//! The machine's own speed: memcpy and raw sockets, the sides that the pool is compared with.

use super::{
    BenchError, Plan,
    compare::{Lane, Samples, alternate},
    side::Side,
    sides::{CopyPlan, Order, ReceivePlan, SendPlan, SidePlan, SourceKind},
};
use std::{net::SocketAddr, time::Duration};
use tidepool_types::ByteSize;

/// Time to set a side up: to allocate and touch its memory, which is slow on virtual machines.
const SETUP: Duration = Duration::from_secs(60);

/// Bytes per call for raw sockets; the fastest counts.
pub const SOCKET_CALLS: [ByteSize; 3] = [ByteSize(64 << 10), ByteSize(256 << 10), ByteSize(1 << 20)];

/// Starts memcpy in 2 MiB calls.
pub fn memcpy(plan: &Plan, source: SourceKind) -> Result<Side, BenchError> {
    let copy = CopyPlan {
        footprint: plan.footprint,
        piece: ByteSize(2 << 20),
        order: Order::Ascending,
        source,
        seed: plan.seed,
    };
    Side::start("memcpy", &SidePlan::Copy(copy), plan.deadline.capped(SETUP))
}

/// Starts memcpy of 4 KiB pieces out of shared memory, in the random order of the plan's seed.
pub fn memcpy_4kib(plan: &Plan) -> Result<Side, BenchError> {
    let copy = CopyPlan {
        footprint: plan.footprint,
        piece: ByteSize(4 << 10),
        order: Order::Random,
        source: SourceKind::Shared,
        seed: plan.seed,
    };
    Side::start("memcpy of 4 KiB pieces", &SidePlan::Copy(copy), plan.deadline.capped(SETUP))
}

/// Starts the two ends of raw sockets: the sender, which only has to be kept, and the receiver, which is sampled.
pub fn raw_socket(plan: &Plan) -> Result<(Side, Side), BenchError> {
    let (footprint, socket_buffer, seed) = (plan.footprint, plan.socket_buffer, plan.seed);
    let send = SidePlan::SocketSend(SendPlan { footprint, socket_buffer, seed });
    let sender = Side::start("socket sender", &send, plan.deadline.capped(SETUP))?;
    let address: SocketAddr = sender.detail().parse().map_err(|_| BenchError::Side {
        side: "socket sender".into(),
        message: format!("named {:?} as its address", sender.detail()),
    })?;
    let streams = plan.streams;
    let receive = SidePlan::SocketReceive(ReceivePlan { address, footprint, streams, socket_buffer, seed });
    let receiver = Side::start("socket receiver", &receive, plan.deadline.capped(SETUP))?;
    Ok((sender, receiver))
}

/// Measures all baselines in turn. Calls `step` for every sample.
pub fn measure(plan: &Plan, mut step: impl FnMut(&str)) -> Result<Vec<Samples>, BenchError> {
    step("setting up");
    let (_sender, receiver) = raw_socket(plan)?;
    let mut sides =
        [memcpy(plan, SourceKind::Private)?, memcpy(plan, SourceKind::Shared)?, memcpy_4kib(plan)?, receiver];
    let lane = |name: &str, side, variant| Lane { name: name.to_owned(), side, variant };
    let mut lanes = vec![
        lane("memcpy, 2 MiB calls", 0, 0),
        lane("memcpy, 2 MiB calls, from shared memory", 1, 0),
        lane("memcpy, 4 KiB pieces at random, from shared memory", 2, 0),
    ];
    lanes.extend(SOCKET_CALLS.map(|call| lane(&format!("raw socket, {call} calls"), 3, call.0)));
    alternate(&mut sides, &lanes, plan.samples, plan.deadline, step)
}

/// Number of calls of `step` in [`measure`].
pub fn steps(plan: &Plan) -> u64 {
    1 + (plan.samples as u64 + 1) * (3 + SOCKET_CALLS.len() as u64)
}

/// A line for each baseline, in GB/s.
pub fn table(samples: &[Samples]) -> String {
    let line = |one: &Samples| {
        let each: Vec<_> = one.per_s.iter().map(|rate| format!("{:.2}", rate / 1e9)).collect();
        format!("{:<52} {:>7.2} GB/s  ({})\n", one.name, one.median_per_s / 1e9, each.join(" "))
    };
    samples.iter().map(line).collect()
}
