//! Settings of engines, for the commands that simulate or emulate them.

use clap::Args;
use tidepool_replay::Settings;
use tidepool_sim::cluster::{Cluster, Routing, Speed};
use tidepool_sim::{Blocks, Prefill};
use tidepool_types::{ByteSize, Span};

/// Tokens in an engine's own cache, by default.
const LOCAL_TOKENS: u64 = 524_288;

/// What engines are like, how requests get to them, and what is expected of them.
#[derive(Debug, Args)]
pub(super) struct EnginesArgs {
    /// Cache that every engine has of its own [default: for 524,288 tokens, which is 64GiB at 128KiB each]
    #[arg(long, value_name = "SIZE")]
    local: Option<ByteSize>,
    /// Which engine gets a request: random, round-robin, sticky (by session) or prefix (the longest, unless that engine has got
    /// 1.25 times as many as others)
    #[arg(long, default_value_t = Routing::RoundRobin)]
    routing: Routing,
    /// Sessions wait for their answers: a request does not come before the pause after its session's previous answer is over
    #[arg(long)]
    pub(super) closed_loop: bool,
    /// Requests that an engine loads, computes or decodes at a time; others wait
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens of a prompt that an engine computes in a second, attention apart
    #[arg(long, value_name = "N", default_value_t = 45_000.0, value_parser = above_zero)]
    prefill_rate: f64,
    /// Pairs of tokens whose attention it computes in a second
    #[arg(long, value_name = "N", default_value_t = 1.18e9, value_parser = above_zero)]
    attention_rate: f64,
    /// Time for a token of an answer that is decoded alone
    #[arg(long, value_name = "TIME", default_value = "8ms")]
    decode: Span,
    /// What every other answer that is decoded at the same time adds to that
    #[arg(long, value_name = "TIME", default_value = "100us")]
    decode_each: Span,
    /// Time to first token that requests should meet
    #[arg(long, value_name = "TIME", default_value = "2s")]
    first_token_limit: Span,
    /// Time between tokens that they should meet
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    token_limit: Span,
}

impl EnginesArgs {
    /// The given options that matter only for requests with sessions.
    pub(super) fn needs_sessions(&self) -> Option<&'static str> {
        match (self.closed_loop, self.routing == Routing::Sticky) {
            (true, true) => Some("--closed-loop and --routing sticky change"),
            (true, false) => Some("--closed-loop changes"),
            (false, true) => Some("--routing sticky changes"),
            (false, false) => None,
        }
    }

    /// A cluster of `engines` engines, with blocks of this many tokens and bytes, and without a pool.
    pub(super) fn cluster(&self, engines: u32, seed: u64, block_tokens: u32, block_bytes: u64) -> Cluster {
        Cluster {
            engines,
            local_blocks: Blocks(
                self.local.map_or(LOCAL_TOKENS / u64::from(block_tokens), |size| size.0 / block_bytes),
            ),
            node_blocks: Blocks(0),
            routing: self.routing,
            seed,
            block_tokens,
            block_bytes,
            batch: self.batch,
            speed: Speed {
                prefill: Prefill { token: 1.0 / self.prefill_rate, pair: 1.0 / self.attention_rate },
                decode: self.decode.0.as_secs_f64(),
                decode_each: self.decode_each.0.as_secs_f64(),
                ..Speed::default()
            },
            first_token_limit: self.first_token_limit.0.as_secs_f64(),
            token_limit: self.token_limit.0.as_secs_f64(),
            ..Cluster::default()
        }
    }
}

/// A number above zero.
pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "allowed is a number above 0".to_owned())
}

/// A factor of the trace's time over real time.
pub(super) fn pace(text: &str) -> Result<f64, String> {
    let pace = text.parse().ok().filter(|pace| Settings::PACES.contains(pace));
    pace.ok_or_else(|| format!("allowed is a number from {} to {}", Settings::PACES.start(), Settings::PACES.end()))
}
