//! Gets over TCP on loopback, verified on arrival, against raw sockets.

use super::pool::Pool;
use crate::bench::baselines::{SOCKET_CALLS, raw_socket};
use crate::bench::compare::{Lane, alternate};
use crate::bench::sides::Order;
use crate::bench::{BenchError, Plan, Report};
use tidepool_types::ByteSize;

/// Key of the field, bytes of a block, blocks per call.
const SIZES: [(&str, ByteSize, usize); 3] =
    [("2MiB", ByteSize(2 << 20), 32), ("64KiB", ByteSize(64 << 10), 128), ("4KiB", ByteSize(4 << 10), 512)];

pub(super) fn measure(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    for (part, block, batch) in SIZES {
        step("setting up a pool to be read over TCP");
        let pool = Pool::start(plan, Pool::room_for(plan.footprint))?;
        pool.fill(plan, block)?;
        let (_sender, receiver) = raw_socket(plan)?;
        let mut sides = [pool.getter(plan, block, batch, Order::Ascending, false)?, receiver];
        let mut lanes = vec![Lane { name: format!("get, {block} blocks"), side: 0, variant: 0 }];
        let raw = |call: ByteSize| Lane { name: format!("raw socket, {call} calls"), side: 1, variant: call.0 };
        lanes.extend(SOCKET_CALLS.map(raw));
        let samples = alternate(&mut sides, &lanes, plan.samples, plan.deadline, &mut *step)?;
        let best = samples[1..].iter().map(|raw| raw.median_per_s).fold(0.0, f64::max);
        report.set("tcp_get_vs_socket", Some(part), samples[0].median_per_s / best);
        report.keep(format!("tcp, {block} blocks"), samples);
    }
    Ok(())
}
