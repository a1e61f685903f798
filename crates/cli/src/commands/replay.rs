//! `tidepool replay`: plays a trace against a running pool, with real bytes, from emulated engines.

use super::Usage;
use super::client::{ClientArgs, Outcome, PARTIAL};
use super::engines::{EnginesArgs, pace};
use super::html::HtmlArgs;
use super::input::InputArgs;
use super::reports;
use super::traces::{Read, counted, rounded, token};
use super::troubles::{Troubles, wrong_bytes};
use crate::daemon::stop_flag;
use crate::page::Page;
use crate::{Status, output, progress};
use clap::Args;
use serde_json::{Value, json};
use std::error::Error;
use tidepool_client::{ClientConfig, catalogs::NodeState};
use tidepool_replay::{InvalidSettings, Partial, Progress, Replay, Settings};
use tidepool_types::ByteSize;

/// What to play, and on what.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Engines to emulate
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    engines: u32,
    /// Without a pool: engines have their own caches only
    #[arg(long)]
    no_pool: bool,
    /// Bytes that a token has in the pool and in the engines' caches. Real ones have 128KiB or so; less is faster to play
    #[arg(long, value_name = "SIZE", default_value = "64B", value_parser = token)]
    token_bytes: ByteSize,
    /// How much faster than in the trace time passes: pauses, computing, decoding. Bytes take the time that they take
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, value_parser = pace)]
    pace: f64,
    /// What the names of this run's blocks begin with; runs of one name share blocks [default: a new one]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    html: HtmlArgs,
    #[command(flatten)]
    of_engines: EnginesArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
pub(super) fn run(args: &ReplayArgs) -> Outcome {
    args.html.check(args.input.path())?;
    let stop = stop_flag()?;
    let mut input = args.input.open(&stop)?;
    let settings = settings(args, input.block_tokens)?;
    let progress = Progress::until(stop);
    let source = input.source(&args.of_engines);
    let played = progress::waiting("replaying", || tidepool_replay::run(&settings, source, &progress));
    let mut played = played.map_err(blame)?;
    // A stop between two requests ends the source, and the run has no requests left.
    if input.is_stopped() {
        played.partial.get_or_insert(Partial::Stopped);
    }
    let read = match played.partial {
        Some(_) => input.cut_at(played.report.tally.requests),
        None => input.finish()?,
    };
    let troubles = Troubles::of(&settings, &progress, &played);
    match args.client.json {
        true => output::line(&json_of(&played, &troubles, &read))?,
        false => output::text(&format!("{}{}", reports::text(&played.report), troubles.text()))?,
    };
    args.html.write(|| page(args, &played, &troubles, &read))?;
    status(&troubles, read.status())
}

/// Invalid settings are a mistake on the command line.
fn blame(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error> {
    if error.is::<InvalidSettings>() { Usage(error.to_string()).into() } else { error }
}

fn settings(args: &ReplayArgs, block_tokens: u32) -> Result<Settings, Box<dyn Error>> {
    let block_bytes = args.token_bytes.0.saturating_mul(block_tokens.into());
    let cluster = args.of_engines.cluster(args.engines, args.input.seed, block_tokens, block_bytes);
    let pool = if args.no_pool { None } else { Some(find_pool(&args.client, block_bytes)?) };
    let name = args.name.clone().unwrap_or_else(|| format!("replay-{}-{}", std::process::id(), now_millis()));
    Ok(Settings { cluster, pool, pace: args.pace, name })
}

/// The settings of the engines' clients. The pool must be there and have room for a block of `block_bytes`.
fn find_pool(args: &ClientArgs, block_bytes: u64) -> Result<ClientConfig, Box<dyn Error>> {
    let session = args.connect()?;
    let nodes = session.expect_nodes()?;
    let takers = || nodes.iter().filter(|node| node.state != Some(NodeState::Dead));
    let largest = takers().map(|node| node.capacity_bytes).max().unwrap_or(0);
    // The size of a node is known only if a catalog knows the node.
    if largest < block_bytes && takers().all(|node| node.capacity_bytes > 0) {
        let (block, largest) = (rounded(block_bytes), rounded(largest));
        let why = "no node of the pool can hold a block (--token-bytes times the tokens of a block)";
        return Err(format!("{why}: it has {block}, the largest node {largest}").into());
    }
    Ok(session.settings)
}

/// The clock's milliseconds: names that differ between runs.
fn now_millis() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis())
}

fn json_of(played: &Replay, troubles: &Troubles<'_>, read: &Read) -> Value {
    let mut value = reports::json(&played.report, read);
    value["replay"] = troubles.json();
    value["replay"]["partial"] = json!(troubles.why_partial().is_some() || !read.is_whole());
    value
}

/// Prints what went wrong. Returns the status that follows.
fn status(troubles: &Troubles<'_>, read: Status) -> Outcome {
    troubles.remarks().iter().for_each(|remark| output::complain(remark));
    if troubles.wrong() > 0 {
        return Err(wrong_bytes(troubles.wrong()).into());
    }
    let Some(why) = troubles.why_partial() else { return Ok(read) };
    output::complain(why);
    Ok(Status(PARTIAL))
}

fn page(args: &ReplayArgs, played: &Replay, troubles: &Troubles<'_>, read: &Read) -> Page {
    let engines = format!(
        "{} on {}, {} times as fast as in the trace, {} the pool.",
        counted(args.engines.into(), "emulated engine", "emulated engines"),
        args.input.name(),
        args.pace,
        if args.no_pool { "without" } else { "with" }
    );
    reports::page("Tidepool: replay", &read.with_remarks(&engines), &played.report, &troubles.text())
}
