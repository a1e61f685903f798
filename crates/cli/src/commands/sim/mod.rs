//! `tidepool sim`: what a cache, or a cluster of engines with a pool, would do for a trace.

mod cluster;

use super::client::Outcome;
use super::traces::{Read, SizeArgs, TraceArgs, grouped, positive, rounded};
use crate::output;
use clap::Args;
use serde_json::json;
use std::{error::Error, fmt, str::FromStr};
use tidepool_policy::eviction::Policy;
use tidepool_sim::{Blocks, Clairvoyant, Future, Pool, Tally, Ties};
use tidepool_types::ByteSize;

/// Which cache on which trace.
#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(flatten)]
    trace: TraceArgs,
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
    #[command(flatten)]
    size: SizeArgs,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// An order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// One that a pool can have.
    Plain(Policy),
    /// One that has read the trace before.
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
    if let Some(engines) = args.cluster.engines {
        return cluster::run(args, engines);
    }
    let (mut pool, mut tally, mut future) = (None, Tally::default(), learn(args)?);
    let read = args.trace.each(|request, block_tokens| {
        let pool = pool.get_or_insert_with(|| pool_of(args, block_tokens, future.take()));
        tally.add(&request, pool.serve(&request), block_tokens);
    })?;
    let Some(pool) = pool else {
        return Err(format!("{}: no requests in this trace", args.trace.path.display()).into());
    };
    print(args, &read, &tally, pool.evicted())?;
    Ok(read.status())
}

/// The future, for orders that know it.
fn learn(args: &SimArgs) -> Result<Option<Future>, Box<dyn Error>> {
    let Order::Clairvoyant(_) = args.policy else { return Ok(None) };
    let (mut future, mut trace) = (Future::default(), args.trace.read.open(&args.trace.path)?);
    // What ends the trace early is told when it is read again.
    trace.by_ref().map_while(Result::ok).for_each(|request| future.learn(&request));
    Ok(Some(future))
}

fn capacity(args: &SimArgs, block_tokens: u32) -> Blocks {
    let of_bytes = args.capacity.map(|bytes| bytes.0 / args.size.block_bytes(block_tokens));
    args.capacity_blocks.or(of_bytes).map_or(Blocks::UNLIMITED, Blocks)
}

fn pool_of(args: &SimArgs, block_tokens: u32, future: Option<Future>) -> Pool {
    let order = match args.policy {
        Order::Plain(policy) => policy.build(),
        Order::Clairvoyant(ties) => Box::new(Clairvoyant::new(future.unwrap_or_default(), ties)),
    };
    Pool::new(capacity(args, block_tokens), order)
}

fn print(args: &SimArgs, read: &Read, tally: &Tally, evicted: Blocks) -> std::io::Result<bool> {
    let capacity = Some(capacity(args, read.block_tokens)).filter(|size| *size != Blocks::UNLIMITED);
    if args.json {
        return output::line(&json!({
            "hit_rate": tally.hit_rate(),
            "policy": args.policy.to_string(),
            "capacity_blocks": capacity.map(|blocks| blocks.0),
            "blocks": tally.blocks,
            "hit_blocks": tally.hit_blocks,
            "evicted_blocks": evicted.0,
            "input_tokens": tally.input_tokens,
            "hit_tokens": tally.hit_tokens,
            "trace": read.describe(),
        }));
    }
    let size = capacity.map_or_else(
        || "no limit".to_owned(),
        |Blocks(blocks)| {
            let bytes = blocks.saturating_mul(args.size.block_bytes(read.block_tokens));
            format!("{} blocks ({})", grouped(blocks), rounded(bytes))
        },
    );
    output::text(&format!(
        "hit rate   {:.2} %\nhits       {} of {} blocks\ncache      {size}, {}\nevicted    {} blocks\n",
        100.0 * tally.hit_rate(),
        grouped(tally.hit_blocks),
        grouped(tally.blocks),
        args.policy,
        grouped(evicted.0),
    ))
}
