//! `tidepool trace generate`: agents' traffic, as like the published one as is known.

use super::make::WriteArgs;
use crate::commands::Usage;
use crate::commands::client::Outcome;
use clap::{Args, ValueEnum};
use tidepool_workload::{Agents, Arrivals};

/// What to generate.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What the agents are like
    #[arg(value_enum)]
    preset: Preset,
    /// Sessions that arrive in all, without those of sub-agents
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    sessions: u64,
    /// Sessions that are under way at a time, on average
    #[arg(long, value_name = "N", default_value_t = 8.0)]
    live: f64,
    /// Tokens of a block
    #[arg(long, value_name = "N", default_value_t = 512)]
    block_tokens: u32,
    /// Decides what is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Preset {
    /// Coding agents as published: 33 turns, 12,000 to 80,000 tokens, a tool call between turns
    Codex,
    /// Teams of agents that begin sub-agents and compact their contexts often; not published anywhere
    Fleet,
    /// The published scaling workload: 20,000 shared tokens, 30 turns of 2,048 tokens in and 900 out
    Scaling,
}

pub(super) fn run(args: &GenerateArgs) -> Outcome {
    let agents = match args.preset {
        Preset::Codex => Agents::codex(),
        Preset::Fleet => Agents::fleet(),
        Preset::Scaling => Agents::scaling(1),
    };
    let agents = Agents {
        sessions: Some(args.sessions),
        arrivals: Arrivals::Live(args.live),
        block_tokens: args.block_tokens,
        seed: args.seed,
        ..agents
    };
    let requests = agents.requests().map_err(|error| Usage(error.to_string()))?;
    args.write.tell(&args.write.write(args.block_tokens, requests.map(Ok))?)
}
