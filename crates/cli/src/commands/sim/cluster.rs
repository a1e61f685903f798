//! `tidepool sim --engines N`: a cluster in virtual time.

use super::{Order, SimArgs, capacity};
use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::engines::above_zero;
use crate::commands::reports;
use crate::commands::traces::{Read, counted, positive};
use crate::daemon::stop_flag;
use crate::page::Page;
use crate::{output, progress};
use clap::Args;
use tidepool_policy::eviction::Policy;
use tidepool_sim::Blocks;
use tidepool_sim::cluster::{self, Cluster, Report, Speed};
use tidepool_types::ByteSize;

/// What a cluster is like. Rates are measured or published: docs/evaluation.md says where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters")]
pub(super) struct ClusterArgs {
    /// Engines that share a host, its NIC and its pool node
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    engines_per_host: u32,
    /// Without a pool: engines have their own caches only
    #[arg(long, conflicts_with_all = ["capacity", "capacity_blocks", "disk"])]
    no_pool: bool,
    /// Disk behind the pool's memory, of the whole cluster
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    disk: ByteSize,
    /// Bytes a second through a host's NIC, each way
    #[arg(long, value_name = "SIZE", default_value = "23800MiB", value_parser = positive)]
    nic_rate: ByteSize,
    /// Bytes a second between an engine's GPU and its host
    #[arg(long, value_name = "SIZE", default_value = "52000MiB", value_parser = positive)]
    pcie_rate: ByteSize,
    /// Bytes a second that a host's memory reads and writes
    #[arg(long, value_name = "SIZE", default_value = "292000MiB", value_parser = positive)]
    memory_rate: ByteSize,
    /// Bytes a second of a host's disk
    #[arg(long, value_name = "SIZE", default_value = "3300MiB", value_parser = positive)]
    disk_rate: ByteSize,
    /// Keys a second that all catalogs together look up
    #[arg(long, value_name = "N", default_value_t = 5e6, value_parser = above_zero)]
    catalog_rate: f64,
}

pub(super) fn run(args: &SimArgs, engines: u32) -> Outcome {
    let Order::Plain(policy) = args.policy else {
        return Err(Usage(format!("--policy {}: allowed without --engines", args.policy)).into());
    };
    let mut input = args.input.open(&stop_flag()?)?;
    let cluster = describe(args, engines, policy, input.block_tokens)?;
    let report = progress::waiting("simulating", || cluster::run(&cluster, &mut input.source(&args.of_engines)));
    input.answered(report.tally.requests);
    let read = input.finish()?;
    match args.json {
        true => output::line(&reports::json(&report, &read))?,
        false => output::text(&reports::text(&report))?,
    };
    args.html.write(|| page(args, engines, &report, &read))?;
    Ok(read.status())
}

fn page(args: &SimArgs, engines: u32, report: &Report, read: &Read) -> Page {
    let pool = if args.cluster.no_pool { "without a pool" } else { "with a pool" };
    let what = format!(
        "{} on {} {pool}, {} a host.",
        args.input.name(),
        counted(engines.into(), "simulated engine", "simulated engines"),
        args.cluster.engines_per_host
    );
    reports::page("Tidepool: a simulated cluster", &read.with_remarks(&what), report, "")
}

fn describe(args: &SimArgs, engines: u32, policy: Policy, block_tokens: u32) -> Result<Cluster, Usage> {
    let of = &args.cluster;
    let block_bytes = args.size.block_bytes(block_tokens).max(1);
    let cluster = args.of_engines.cluster(engines, args.input.seed, block_tokens, block_bytes);
    let hosts = u64::from(engines.div_ceil(of.engines_per_host));
    let Blocks(all) = capacity(args, block_tokens, hosts)?;
    // Without a limit for the pool, no node has one.
    let node = if all == Blocks::UNLIMITED.0 { all } else { all / hosts };
    Ok(Cluster {
        engines_per_host: of.engines_per_host,
        node_blocks: Blocks(if of.no_pool { 0 } else { node }),
        disk_blocks: Blocks(of.disk.0 / block_bytes / hosts),
        policy,
        admission: args.admission,
        speed: of.speed(cluster.speed),
        ..cluster
    })
}

impl ClusterArgs {
    fn speed(&self, engines: Speed) -> Speed {
        Speed {
            nic: self.nic_rate.0 as f64,
            pcie: self.pcie_rate.0 as f64,
            memory: self.memory_rate.0 as f64,
            disk: self.disk_rate.0 as f64,
            catalog: self.catalog_rate,
            ..engines
        }
    }
}
