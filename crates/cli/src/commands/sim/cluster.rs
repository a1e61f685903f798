//! `tidepool sim --engines N`: a cluster in virtual time.

use super::{Order, SimArgs, capacity};
use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::traces::{Read, grouped, positive, rounded};
use crate::{output, progress};
use clap::Args;
use serde_json::{Map, Value, json};
use tidepool_policy::eviction::Policy;
use tidepool_sim::cluster::{self, ClosedLoop, Cluster, Load, OpenLoop, Report, Routing, Speed};
use tidepool_sim::{Blocks, Prefill, Quantiles};
use tidepool_types::{ByteSize, Span};

/// What a cluster is like. Rates are measured or published: docs/evaluation.md says where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters")]
pub(super) struct ClusterArgs {
    /// Simulate a cluster of this many engines in virtual time instead of one cache
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) engines: Option<u32>,
    /// Engines that share a host, its NIC and its pool node
    #[arg(long, value_name = "N", default_value_t = 1, requires = "engines",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    engines_per_host: u32,
    /// Cache that every engine has of its own
    #[arg(long, value_name = "SIZE", default_value = "64GiB", requires = "engines")]
    local: ByteSize,
    /// Without a pool: engines have their own caches only
    #[arg(long, requires = "engines", conflicts_with_all = ["capacity", "capacity_blocks", "disk"])]
    no_pool: bool,
    /// Disk behind the pool's memory, of the whole cluster
    #[arg(long, value_name = "SIZE", default_value = "0B", requires = "engines")]
    disk: ByteSize,
    /// Which engine gets a request: random, round-robin, sticky (by session) or prefix (the longest)
    #[arg(long, default_value_t = Routing::RoundRobin, requires = "engines")]
    routing: Routing,
    /// Sessions wait for their answers: a request does not come before the pause after its session's previous answer is over
    #[arg(long, requires = "engines")]
    closed_loop: bool,
    /// Decides what is random
    #[arg(long, default_value_t = 1, requires = "engines")]
    seed: u64,
    /// Requests that an engine decodes at a time
    #[arg(long, value_name = "N", default_value_t = 64, requires = "engines",
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens of a prompt that an engine computes in a second, attention apart
    #[arg(long, value_name = "N", default_value_t = 45_000.0, requires = "engines", value_parser = above_zero)]
    prefill_rate: f64,
    /// Pairs of tokens whose attention it computes in a second
    #[arg(long, value_name = "N", default_value_t = 1.18e9, requires = "engines", value_parser = above_zero)]
    attention_rate: f64,
    /// Time for a token of an answer that is decoded alone
    #[arg(long, value_name = "TIME", default_value = "8ms", requires = "engines")]
    decode: Span,
    /// What every other answer that is decoded at the same time adds to that
    #[arg(long, value_name = "TIME", default_value = "100us", requires = "engines")]
    decode_each: Span,
    /// Bytes a second through a host's NIC, each way
    #[arg(long, value_name = "SIZE", default_value = "25000MiB", requires = "engines", value_parser = positive)]
    nic_rate: ByteSize,
    /// Bytes a second between an engine's GPU and its host
    #[arg(long, value_name = "SIZE", default_value = "52000MiB", requires = "engines", value_parser = positive)]
    pcie_rate: ByteSize,
    /// Bytes a second of a host's disk
    #[arg(long, value_name = "SIZE", default_value = "3500MiB", requires = "engines", value_parser = positive)]
    disk_rate: ByteSize,
    /// Keys a second that all catalogs together look up
    #[arg(long, value_name = "N", default_value_t = 5e6, requires = "engines", value_parser = above_zero)]
    catalog_rate: f64,
    /// Time to first token that requests should meet
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "engines")]
    first_token_limit: Span,
    /// Time between tokens that they should meet
    #[arg(long, value_name = "TIME", default_value = "50ms", requires = "engines")]
    token_limit: Span,
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "allowed is a number above 0".to_owned())
}

pub(super) fn run(args: &SimArgs, engines: u32) -> Outcome {
    let Order::Plain(policy) = args.policy else {
        return Err(Usage(format!("--policy {}: nobody in a cluster knows the future", args.policy)).into());
    };
    let mut trace = args.trace.open()?;
    let cluster = describe(args, engines, policy, trace.block_tokens())?;
    let mut error = None;
    let requests = std::iter::from_fn(|| trace.next()?.map_err(|ended| error = Some(ended)).ok());
    let report = progress::waiting("simulating", || match args.cluster.closed_loop {
        true => cluster::run(&cluster, &mut ClosedLoop::new(requests)),
        false => cluster::run(&cluster, &mut OpenLoop::new(requests)),
    });
    let read = Read::of(&args.trace.path, &trace, error);
    args.trace.expect_some(report.tally.requests)?;
    match args.json {
        true => output::line(&json(&report, &read))?,
        false => output::text(&text(&report))?,
    };
    Ok(read.status())
}

fn describe(args: &SimArgs, engines: u32, policy: Policy, block_tokens: u32) -> Result<Cluster, Usage> {
    let of = &args.cluster;
    let block_bytes = args.size.block_bytes(block_tokens).max(1);
    let hosts = u64::from(engines.div_ceil(of.engines_per_host));
    let Blocks(all) = capacity(args, block_tokens, hosts)?;
    // Without a limit, each node has none.
    let node = if all == Blocks::UNLIMITED.0 { all } else { all / hosts };
    Ok(Cluster {
        engines,
        engines_per_host: of.engines_per_host,
        local_blocks: Blocks(of.local.0 / block_bytes),
        node_blocks: Blocks(if of.no_pool { 0 } else { node }),
        disk_blocks: Blocks(of.disk.0 / block_bytes / hosts),
        policy,
        routing: of.routing,
        seed: of.seed,
        block_tokens,
        block_bytes,
        batch: of.batch,
        speed: of.speed(),
        first_token_limit: of.first_token_limit.0.as_secs_f64(),
        token_limit: of.token_limit.0.as_secs_f64(),
    })
}

impl ClusterArgs {
    fn speed(&self) -> Speed {
        Speed {
            prefill: Prefill { token: 1.0 / self.prefill_rate, pair: 1.0 / self.attention_rate },
            decode: self.decode.0.as_secs_f64(),
            decode_each: self.decode_each.0.as_secs_f64(),
            nic: self.nic_rate.0 as f64,
            pcie: self.pcie_rate.0 as f64,
            disk: self.disk_rate.0 as f64,
            catalog: self.catalog_rate,
            ..Speed::default()
        }
    }
}

/// Of a part of all hits, the hit rate.
fn rate(report: &Report, blocks: u64) -> f64 {
    if report.tally.blocks == 0 { 0.0 } else { blocks as f64 / report.tally.blocks as f64 }
}

fn per_second(report: &Report, amount: u64) -> f64 {
    if report.seconds > 0.0 { amount as f64 / report.seconds } else { 0.0 }
}

fn saved(report: &Report) -> f64 {
    report.prefill_seconds - report.computed_seconds
}

fn json(report: &Report, read: &Read) -> Value {
    let millis = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1000.0;
        json!({ "mean": times.mean() / 1000.0, "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0) })
    };
    let load = |load: &Load| {
        let Load { count, mean, most, waited, .. } = *load;
        json!({ "count": count, "mean": mean, "most": most, "waited_seconds": waited })
    };
    let loads: Map<String, Value> = report.loads.iter().map(|of| (of.kind.name().to_owned(), load(of))).collect();
    json!({
        "hit_rate": report.tally.hit_rate(),
        "local_hit_rate": rate(report, report.local_hit_blocks),
        "disk_hit_rate": rate(report, report.disk_hit_blocks),
        "blocks": report.tally.blocks,
        "hit_blocks": report.tally.hit_blocks,
        "evicted_blocks": report.evicted_blocks,
        "loaded_bytes": report.loaded_bytes,
        "network_bytes": report.network_bytes,
        "first_token_ms": millis(&report.first_token),
        "end_to_end_ms": millis(&report.end_to_end),
        "between_tokens_ms": millis(&report.between_tokens),
        "seconds": report.seconds,
        "requests_per_second": report.requests_per_second(),
        "input_tokens_per_second": per_second(report, report.tally.input_tokens),
        "output_tokens_per_second": per_second(report, report.output_tokens),
        "within_limits": report.part_within_limits(),
        "effective_requests_per_second": report.part_within_limits() * report.requests_per_second(),
        "gpu_seconds_saved": saved(report),
        "gpu_seconds_computed": report.computed_seconds,
        "saturated": report.saturated().iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "loads": loads,
        "trace": read.describe(),
    })
}

fn text(report: &Report) -> String {
    let seconds = |times: &Quantiles| {
        let at = |part| times.at(part) as f64 / 1e6;
        format!("{:.3} s median, {:.3} s p99", at(0.5), at(0.99))
    };
    let saturated: Vec<&str> = report.saturated().iter().map(|kind| kind.name()).collect();
    let mut text = format!(
        "hit rate      {:.2} % ({:.2} % the engines' own, {:.2} % from disk)\nrequests      {} in {:.1} s\n\
         throughput    {:.2} requests, {:.0} tokens in, {:.0} tokens out a second\nfirst token   {}\nend to end    {}\n\
         in limits     {:.2} %\nGPU time      {:.0} s computed, {:.0} s saved\nloaded        {}, {} of it over the network\n\
         saturated     {}\n\n{:<10} {:>6} {:>8} {:>8} {:>12}\n",
        100.0 * report.tally.hit_rate(),
        100.0 * rate(report, report.local_hit_blocks),
        100.0 * rate(report, report.disk_hit_blocks),
        grouped(report.tally.requests),
        report.seconds,
        report.requests_per_second(),
        per_second(report, report.tally.input_tokens),
        per_second(report, report.output_tokens),
        seconds(&report.first_token),
        seconds(&report.end_to_end),
        100.0 * report.part_within_limits(),
        report.computed_seconds,
        saved(report),
        rounded(report.loaded_bytes),
        rounded(report.network_bytes),
        if saturated.is_empty() { "nothing".to_owned() } else { saturated.join(", ") },
        "LOAD",
        "COUNT",
        "MEAN",
        "MOST",
        "WAITED",
    );
    for load in &report.loads {
        let (name, mean, most) = (load.kind.name(), 100.0 * load.mean, 100.0 * load.most);
        text += &format!("{name:<10} {:>6} {mean:>6.1} % {most:>6.1} % {:>10.1} s\n", load.count, load.waited);
    }
    text
}
