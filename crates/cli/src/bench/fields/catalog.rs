//! Look-ups through one catalog, and the catalog's memory.

use crate::bench::compare::{Lane, Samples, alternate};
use crate::bench::side::Side;
use crate::bench::sides::{CatalogPlan, FleetPlan, KeyKind, LookupPlan, PoolPlan, SidePlan};
use crate::bench::{BenchError, Plan, Report};
use std::path::PathBuf;
use std::time::Duration;

/// Time to fill a catalog.
const SETUP: Duration = Duration::from_secs(120);
/// Made-up nodes that fill the catalog.
const NODES: u64 = 4;
/// Blocks that look-ups are made against.
const BLOCKS: u64 = 1_000_000;
/// Keys of a call.
const BATCH: u64 = 5_000;

/// A catalog and the made-up nodes that filled it.
struct Filled {
    // The nodes end before the catalog.
    _fleet: Side,
    catalog: Side,
}

fn start_catalog(plan: &Plan) -> Result<Side, BenchError> {
    Side::start("catalog", &SidePlan::Catalog(CatalogPlan {}), plan.deadline.capped(SETUP))
}

fn fill(plan: &Plan, catalog: Side, blocks: u64, keys: KeyKind) -> Result<Filled, BenchError> {
    let fleet = FleetPlan { catalog: catalog.detail().to_owned(), nodes: NODES, blocks, keys };
    let fleet = Side::start("fleet", &SidePlan::Fleet(fleet), plan.deadline.capped(SETUP))?;
    Ok(Filled { _fleet: fleet, catalog })
}

fn sample(plan: &Plan, keys: KeyKind, chains: bool, step: &mut dyn FnMut(&str)) -> Result<Samples, BenchError> {
    step("filling a catalog");
    let filled = fill(plan, start_catalog(plan)?, BLOCKS, keys)?;
    let catalogs = vec![filled.catalog.detail().to_owned()];
    // No node on this host: the catalog must answer for every key.
    let dir = PathBuf::from("/nonexistent");
    let pool = PoolPlan { dir, catalogs, local: false, streams: 1, planted_delay: plan.planted_delay };
    let lookup = LookupPlan { pool, blocks: BLOCKS, batch: BATCH, keys, chains };
    let mut sides = [Side::start("look-up", &SidePlan::Lookup(lookup), plan.deadline.capped(SETUP))?];
    let lanes = [Lane { name: if chains { "match_prefix" } else { "exists" }.to_owned(), side: 0, variant: 0 }];
    let mut samples = alternate(&mut sides, &lanes, plan.samples, plan.deadline, step)?;
    Ok(samples.remove(0))
}

/// Look-ups of single keys, half of them absent.
pub(super) fn lookup(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let samples = sample(plan, KeyKind::Text, false, step)?;
    report.set("lookup_keys_per_s", None, samples.median_per_s);
    report.keep("exists, keys a second", vec![samples]);
    Ok(())
}

/// Matches of one chain that is all present.
pub(super) fn match_prefix(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let samples = sample(plan, KeyKind::Hash, true, step)?;
    report.set("match_prefix_us_5000", None, 1e6 / samples.median_per_s);
    report.keep("match_prefix, calls a second", vec![samples]);
    Ok(())
}

/// Growth of a catalog's resident memory per block.
pub(super) fn bytes_per_block(plan: &Plan, report: &mut Report, step: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let mut worst: f64 = 0.0;
    for blocks in [7_500_000, 10_000_000] {
        step("filling a catalog");
        let catalog = start_catalog(plan)?;
        let before = resident_bytes(&catalog)?;
        let filled = fill(plan, catalog, blocks, KeyKind::Hash)?;
        let grown = resident_bytes(&filled.catalog)?.saturating_sub(before);
        let per_block = grown as f64 / blocks as f64;
        report.note(format!("{blocks} blocks take {per_block:.1} bytes each in the catalog"));
        worst = worst.max(per_block);
    }
    report.set("catalog_bytes_per_block", None, worst);
    Ok(())
}

fn resident_bytes(side: &Side) -> Result<u64, BenchError> {
    let io = |source| BenchError::Io { side: "catalog".into(), source };
    let text = std::fs::read_to_string(format!("/proc/{}/statm", side.pid())).map_err(io)?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io(std::io::Error::other(format!("statm says {text:?}"))))?;
    Ok(pages * rustix::param::page_size() as u64)
}
