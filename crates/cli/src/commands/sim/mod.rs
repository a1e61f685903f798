//! `tidepool sim`: simulates a cache, or a cluster of engines with a pool, on a trace.

mod cluster;

use super::Usage;
use super::client::Outcome;
use super::engines::EnginesArgs;
use super::html::{HtmlArgs, rows};
use super::input::InputArgs;
use super::reports;
use super::traces::{Read, SizeArgs, counted, grouped, positive, rounded};
use crate::daemon::stop_flag;
use crate::output;
use crate::page::Page;
use clap::Args;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{error::Error, fmt, str::FromStr};
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::{Eviction, Policy};
use tidepool_sim::{Blocks, Clairvoyant, Future, OverTime, Pool, Tally, Ties};
use tidepool_types::ByteSize;

/// Which cache on which trace.
#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Size of the cache, or of all the cluster's memory for the pool, in blocks [default: no limit]
    #[arg(long, value_name = "N", conflicts_with = "capacity", value_parser = clap::value_parser!(u64).range(1..))]
    capacity_blocks: Option<u64>,
    /// The same in bytes, as 512GiB; --token-bytes says how many blocks that is
    #[arg(long, value_name = "SIZE", value_parser = positive)]
    capacity: Option<ByteSize>,
    /// What is evicted first: lru, s3fifo, sieve, agents, clairvoyant (knows the future; as published figures count it) or optimal (no
    /// order has more hits)
    #[arg(long, default_value_t = Order::Plain(Policy::Lru))]
    policy: Order,
    /// What comes in once the cache is full: all, or second-sight (what came before and is still remembered)
    #[arg(long, value_name = "RULE", default_value_t = Rule::All)]
    admission: Rule,
    #[command(flatten)]
    size: SizeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    html: HtmlArgs,
    /// Simulate a cluster of this many engines in virtual time instead of one cache
    #[arg(long, value_name = "N", help_heading = "Clusters", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    engines: Option<u32>,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
    #[command(flatten, next_help_heading = "Clusters")]
    of_engines: EnginesArgs,
}

/// An order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// An order that a pool can have.
    Plain(Policy),
    /// An order that has read the trace before.
    Clairvoyant(Ties),
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("clairvoyant", _) => Ok(Self::Clairvoyant(Ties::Shallowest)),
            ("optimal", _) => Ok(Self::Clairvoyant(Ties::Deepest)),
            (_, Ok(policy)) => Ok(Self::Plain(policy)),
            _ => {
                let plain = Policy::ALL.map(|policy| policy.to_string()).join(", ");
                Err(format!("allowed are {plain}, clairvoyant and optimal"))
            }
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(policy) => policy.fmt(f),
            Self::Clairvoyant(Ties::Shallowest) => f.write_str("clairvoyant"),
            Self::Clairvoyant(Ties::Deepest) => f.write_str("optimal"),
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &SimArgs) -> Outcome {
    args.html.check(args.input.path())?;
    if let Some(engines) = args.engines {
        return cluster::run(args, engines);
    }
    let stop = stop_flag()?;
    let (order, known) = order(args, &stop)?;
    let input = args.input.open(&stop)?.until(known);
    let block_tokens = input.block_tokens;
    let capacity = capacity(args, block_tokens, 1)?;
    let mut pool = Pool::new(capacity, order).admitting(args.admission.build(capacity.0));
    let (mut tally, mut over_time) = (Tally::default(), OverTime::default());
    let read = input.each(|request| {
        let served = Tally::of(request, pool.serve(request), block_tokens);
        tally += served;
        over_time.add(request.at, served);
    })?;
    let text = text(args, &read, capacity, &tally, pool.evicted());
    match args.json {
        true => output::line(&json(args, &read, capacity, &tally, pool.evicted()))?,
        false => output::text(&text)?,
    };
    args.html.write(|| {
        let page = Page::new("Tidepool: a simulated cache").text(&read.with_remarks(&args.input.name()));
        page.heading("What was found").table(&["", ""], &rows(&text)).plot(&reports::hits(&over_time))
    })?;
    Ok(read.status())
}

/// An order, and the number of requests whose future it knows, if memory was too small for all.
type Known = (Box<dyn Eviction>, Option<u64>);

fn order(args: &SimArgs, stop: &Arc<AtomicBool>) -> Result<Known, Box<dyn Error>> {
    let ties = match args.policy {
        Order::Plain(policy) => return Ok((policy.build(), None)),
        Order::Clairvoyant(ties) => ties,
    };
    if args.admission != Rule::All {
        let what = format!(
            "--policy {}: allowed with --admission all; it knows what comes back, not what is let in",
            args.policy
        );
        return Err(Usage(what).into());
    }
    if !args.input.is_lasting() {
        let what = format!("--policy {} reads the trace twice: allowed is a file", args.policy);
        return Err(Usage(what).into());
    }
    let (mut future, mut input) = (Future::default(), args.input.open(stop)?);
    // An early end of the trace is reported by the second pass.
    input.by_ref().for_each(|request| future.learn(&request));
    Ok((Box::new(Clairvoyant::new(future, ties)), input.memory_ended_at()))
}

/// The capacity; each of `parts` must get a block.
fn capacity(args: &SimArgs, block_tokens: u32, parts: u64) -> Result<Blocks, Usage> {
    let block = args.size.block_bytes(block_tokens);
    let of_bytes = args.capacity.map(|bytes| bytes.0 / block);
    let blocks = args.capacity_blocks.or(of_bytes).map_or(Blocks::UNLIMITED, Blocks);
    if blocks < Blocks(parts) {
        let (flag, least) = match args.capacity_blocks {
            Some(_) => ("--capacity-blocks", parts.to_string()),
            None => ("--capacity", rounded(block.saturating_mul(parts))),
        };
        return Err(Usage(format!("{flag}: allowed is a block or more for each node, {least} in all")));
    }
    Ok(blocks)
}

fn json(args: &SimArgs, read: &Read, capacity: Blocks, tally: &Tally, evicted: Blocks) -> Value {
    let capacity = Some(capacity.0).filter(|size| *size != Blocks::UNLIMITED.0);
    json!({
        "hit_rate": tally.hit_rate(),
        "policy": args.policy.to_string(),
        "admission": args.admission.to_string(),
        "capacity_blocks": capacity,
        "blocks": tally.blocks,
        "hit_blocks": tally.hit_blocks,
        "evicted_blocks": evicted.0,
        "input_tokens": tally.input_tokens,
        "hit_tokens": tally.hit_tokens,
        "trace": read.describe(),
    })
}

fn text(args: &SimArgs, read: &Read, Blocks(capacity): Blocks, tally: &Tally, evicted: Blocks) -> String {
    let bytes = capacity.saturating_mul(args.size.block_bytes(read.block_tokens));
    let size = match Blocks(capacity) {
        Blocks::UNLIMITED => "no limit".to_owned(),
        _ => format!("{} ({})", counted(capacity, "block", "blocks"), rounded(bytes)),
    };
    let admission = if args.admission == Rule::All { String::new() } else { format!(", {}", args.admission) };
    format!(
        "hit rate   {:.2} %\nhits       {} of {}\ncache      {size}, {}{admission}\nevicted    {}\n",
        100.0 * tally.hit_rate(),
        grouped(tally.hit_blocks),
        counted(tally.blocks, "block", "blocks"),
        args.policy,
        counted(evicted.0, "block", "blocks"),
    )
}
