//! Presets of agents' traffic, for the commands that generate it.

use clap::{Args, ValueEnum};
use std::fmt;
use tidepool_workload::{Agents, Arrivals};

/// What agents are like.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Preset {
    /// Coding agents as published: 33 turns, 12,000 to 80,000 tokens, a tool call between turns
    Codex,
    /// Teams of agents that begin sub-agents and compact their contexts often; not published anywhere
    Fleet,
    /// The published scaling workload: 20,000 shared tokens, 30 turns of 2,048 tokens in and 900 out
    Scaling,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Codex => "codex",
            Self::Fleet => "fleet",
            Self::Scaling => "scaling",
        })
    }
}

/// How many of them.
#[derive(Debug, Clone, Args)]
pub(super) struct AgentsArgs {
    /// Sessions that arrive in all, without those of sub-agents [default: 100, or as many as --requests takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sessions: Option<u64>,
    /// Sessions that are under way at a time: on average, or exactly with the scaling workload [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    live: Option<u32>,
}

impl AgentsArgs {
    /// Whether the number of sessions was given.
    pub(super) const fn are_given(&self) -> bool {
        self.sessions.is_some() || self.live.is_some()
    }

    /// The agents' settings; `endless` applies if no number of sessions was given.
    pub(super) fn agents(&self, preset: Preset, endless: bool, block_tokens: u32, seed: u64) -> Agents {
        let live = self.live.unwrap_or(8);
        let (agents, arrivals) = match preset {
            Preset::Codex => (Agents::codex(), Arrivals::Live(live.into())),
            Preset::Fleet => (Agents::fleet(), Arrivals::Live(live.into())),
            Preset::Scaling => (Agents::scaling(live), Arrivals::Fixed(live)),
        };
        let sessions = self.sessions.or((!endless).then_some(100));
        Agents { sessions, arrivals, block_tokens, seed, ..agents }
    }
}
