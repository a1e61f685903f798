//! `tidepool trace generate`: generates agents' traffic that resembles the published traffic.

use super::write::WriteArgs;
use crate::commands::Usage;
use crate::commands::client::Outcome;
use crate::commands::presets::{AgentsArgs, Preset};
use crate::daemon::stop_flag;
use clap::Args;

/// What to generate.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What the agents are like
    #[arg(value_enum)]
    preset: Preset,
    #[command(flatten)]
    agents: AgentsArgs,
    /// Write no more than this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Tokens of a block
    #[arg(long, value_name = "N", default_value_t = 512)]
    block_tokens: u32,
    /// Decides what is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    write: WriteArgs,
}

pub(super) fn run(args: &GenerateArgs) -> Outcome {
    let agents = args.agents.agents(args.preset, args.requests.is_some(), args.block_tokens, args.seed);
    let requests = agents.requests().map_err(|error| Usage(error.to_string()))?;
    let most = args.requests.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    args.write.tell(args.write.write(&*stop_flag()?, args.block_tokens, requests.take(most).map(Ok))?)
}
