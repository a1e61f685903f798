//! `tidepool replay`: plays a trace against a running pool, with real bytes, from emulated engines.

use super::Usage;
use super::client::{ClientArgs, Outcome, PARTIAL};
use super::engines::{EnginesArgs, above_zero};
use super::html::HtmlArgs;
use super::input::InputArgs;
use super::reports;
use super::traces::{Read, positive};
use crate::daemon::stop_flag;
use crate::page::Page;
use crate::{Status, output, progress};
use clap::Args;
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidepool_client::ClientConfig;
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
    #[arg(long, value_name = "SIZE", default_value = "64B", value_parser = positive)]
    token_bytes: ByteSize,
    /// How much faster than in the trace time passes: pauses, computing, decoding. Bytes take the time that they take
    #[arg(long, value_name = "NUMBER", default_value_t = 20.0, value_parser = above_zero)]
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
    args.html.check()?;
    let mut input = args.input.open(&Arc::default())?;
    let settings = settings(args, input.block_tokens)?;
    let (progress, closed) = (Progress::until(stop_flag()?), args.of_engines.closed_loop);
    let played = progress::waiting("replaying", || tidepool_replay::run(&settings, input.source(closed), &progress));
    let played = played.map_err(blame)?;
    let read = if played.partial.is_some() { input.read() } else { input.finish()? };
    let counts = Counts::of(&progress);
    match args.client.json {
        true => output::line(&json_of(args, &played, &counts, &read))?,
        false => output::text(&format!("{}{}", reports::text(&played.report), counts.text(&played)))?,
    };
    args.html.write(|| page(args, &played, &counts, &read))?;
    status(&played, &counts, read.status())
}

/// Settings that are not allowed are the command line's fault.
fn blame(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error> {
    if error.is::<InvalidSettings>() { Usage(error.to_string()).into() } else { error }
}

fn settings(args: &ReplayArgs, block_tokens: u32) -> Result<Settings, Box<dyn Error>> {
    let block_bytes = args.token_bytes.0.saturating_mul(block_tokens.into());
    let cluster = args.of_engines.cluster(args.engines, args.input.seed, block_tokens, block_bytes);
    let pool = if args.no_pool { None } else { Some(find_pool(&args.client)?) };
    let name = args.name.clone().unwrap_or_else(|| format!("replay-{}-{}", std::process::id(), now_millis()));
    Ok(Settings { cluster, pool, pace: args.pace, name })
}

/// How engines connect to the pool, which must be there.
fn find_pool(args: &ClientArgs) -> Result<ClientConfig, Box<dyn Error>> {
    let session = args.connect()?;
    session.expect_nodes()?;
    Ok(session.settings)
}

/// Milliseconds that the clock shows: names that differ between runs.
fn now_millis() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis())
}

/// What was not as it should be.
struct Counts {
    wrong: u64,
    lost: u64,
    failed: u64,
    put: u64,
}

impl Counts {
    fn of(progress: &Progress) -> Self {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Progress { wrong_blocks, lost_blocks, failed_puts, put_blocks, .. } = progress;
        Self { wrong: read(wrong_blocks), lost: read(lost_blocks), failed: read(failed_puts), put: read(put_blocks) }
    }

    fn text(&self, played: &Replay) -> String {
        let Self { wrong, lost, failed, put } = self;
        let late = played.latest.as_secs_f64();
        let text = format!(
            "blocks        {put} put, {failed} not taken, {lost} gone before they were read, {wrong} wrong\nlate          {late:.3} s at most\n"
        );
        played.partial.map_or(text.clone(), |partial| format!("{text}PARTIAL       {}\n", why(partial)))
    }
}

fn json_of(args: &ReplayArgs, played: &Replay, counts: &Counts, read: &Read) -> Value {
    let mut value = reports::json(&played.report, read);
    let Counts { wrong, lost, failed, put } = counts;
    value["replay"] = json!({
        "wrong_blocks": wrong,
        "lost_blocks": lost,
        "failed_puts": failed,
        "put_blocks": put,
        "latest_seconds": played.latest.as_secs_f64(),
        "partial": played.partial.is_some() || !read.is_whole(),
        "ended_early": played.partial.map(why),
        "pace": args.pace,
    });
    value
}

/// Why a run ended early, and what that means.
const fn why(partial: Partial) -> &'static str {
    match partial {
        Partial::Stopped => "it was stopped: this is about the requests that were answered before",
        Partial::PoolGone => {
            "the pool took nothing any more: this is about the requests that were answered while it did"
        }
    }
}

fn status(played: &Replay, counts: &Counts, read: Status) -> Outcome {
    if counts.wrong > 0 {
        return Err(format!("{} blocks came with wrong bytes", counts.wrong).into());
    }
    if let Some(partial) = played.partial {
        output::complain(why(partial));
        return Ok(Status(PARTIAL));
    }
    Ok(read)
}

fn page(args: &ReplayArgs, played: &Replay, counts: &Counts, read: &Read) -> Page {
    let engines = format!(
        "{} emulated engines on {}, {} times as fast as in the trace, {} the pool.",
        args.engines,
        args.input.name(),
        args.pace,
        if args.no_pool { "without" } else { "with" }
    );
    reports::page("Tidepool: replay", &read.with_remarks(&engines), &played.report, &counts.text(played))
}
