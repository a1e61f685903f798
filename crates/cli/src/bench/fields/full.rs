//! Puts into a pool that is full and evicts, against puts into one that is half full.

use super::pool::Pool;
use crate::bench::compare::{Lane, alternate};
use crate::bench::sides::PutPlan;
use crate::bench::{BenchError, Plan, Report};
use tidepool_types::ByteSize;

/// A run writes one `PART`th of the pool.
const PART: u64 = 4;

pub(super) fn measure(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let mut worst = f64::INFINITY;
    for block in [ByteSize(2 << 20), ByteSize(64 << 10)] {
        step("setting up a half full and a full pool");
        let (half, full) = (Pool::start(plan, plan.footprint)?, Pool::start(plan, plan.footprint)?);
        let run = ByteSize(plan.footprint.0 / PART);
        // A quarter stays. Every run fills up to a half, and is removed again.
        let half_plan = PutPlan { before: 1, remove: true, ..half.put_plan(plan, run, block) };
        let full_plan = PutPlan { before: PART + 1, ..full.put_plan(plan, run, block) };
        let mut sides = [half.putter(half_plan)?, full.putter(full_plan)?];
        let lanes = ["half full", "full"].map(str::to_owned).into_iter().enumerate();
        let lanes: Vec<Lane> = lanes.map(|(side, name)| Lane { name, side, variant: 0 }).collect();
        let samples = alternate(&mut sides, &lanes, plan.samples, plan.deadline, &mut *step)?;
        worst = worst.min(samples[1].median_per_s / samples[0].median_per_s);
        report.keep(format!("puts of {block} blocks"), samples);
    }
    report.set("put_full_vs_half", None, worst);
    Ok(())
}
