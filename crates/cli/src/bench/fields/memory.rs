//! Shared memory against memcpy.

use super::pool::Pool;
use crate::bench::baselines::{memcpy, memcpy_4kib};
use crate::bench::compare::{Lane, alternate};
use crate::bench::sides::{ONE_BY_ONE, Order, PutPlan, SourceKind};
use crate::bench::{BenchError, Plan, Report};
use tidepool_types::ByteSize;

const LARGE: ByteSize = ByteSize(2 << 20);
const SMALL: ByteSize = ByteSize(4 << 10);

fn lane(name: &str, side: usize, variant: u64) -> Lane {
    Lane { name: name.to_owned(), side, variant }
}

/// Gets and puts of 2 MiB blocks.
pub(super) fn large(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    step("setting up 2 MiB blocks");
    let full = Pool::start(plan, Pool::room_for(plan.footprint))?;
    full.fill(plan, LARGE)?;
    let empty = Pool::start(plan, Pool::room_for(plan.footprint))?;
    let put = PutPlan { remove: true, ..empty.put_plan(plan, plan.footprint, LARGE) };
    let mut sides =
        [memcpy(plan, SourceKind::Private)?, full.getter(plan, LARGE, 32, Order::Ascending, true)?, empty.putter(put)?];
    let lanes = [lane("memcpy", 0, 0), lane("get", 1, 0), lane("put", 2, 0)];
    let samples = alternate(&mut sides, &lanes, plan.samples, plan.deadline, step)?;
    report.set("shm_get_vs_memcpy", None, samples[1].median_per_s / samples[0].median_per_s);
    report.set("put_vs_memcpy", None, samples[2].median_per_s / samples[0].median_per_s);
    report.keep("shm, 2 MiB blocks", samples);
    Ok(())
}

/// Gets of 4 KiB blocks.
pub(super) fn small(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    step("setting up 4 KiB blocks");
    let pool = Pool::start(plan, Pool::room_for(plan.footprint))?;
    pool.fill(plan, SMALL)?;
    let mut sides = [memcpy_4kib(plan)?, pool.getter(plan, SMALL, 32, Order::Random, true)?];
    let lanes = [lane("memcpy", 0, 0), lane("get", 1, 0), lane("one get", 1, ONE_BY_ONE)];
    let samples = alternate(&mut sides, &lanes, plan.samples, plan.deadline, step)?;
    let get = samples[1].median_per_s;
    report.set("shm_get_4KiB_keys_per_s", None, get / SMALL.0 as f64);
    report.set("shm_get_4KiB_vs_memcpy", None, get / samples[0].median_per_s);
    report.set("shm_get_4KiB_us", None, 1e6 / samples[2].median_per_s);
    report.keep("shm, 4 KiB blocks", samples);
    Ok(())
}
