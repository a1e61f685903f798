//! Settings of a simulated cluster.

use super::Prefill;
use crate::Blocks;
use std::{fmt, str::FromStr};
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_trace::Request;

/// A cluster.
#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    /// Engines, one a GPU.
    pub engines: u32,
    /// Engines that share a host, its NIC and its pool node.
    pub engines_per_host: u32,
    /// Blocks in an engine's own cache.
    pub local_blocks: Blocks,
    /// Blocks in memory on each host's node; zero for a cluster without a pool.
    pub node_blocks: Blocks,
    /// Blocks on disk on each node, behind its memory.
    pub disk_blocks: Blocks,
    /// The order in which nodes evict.
    pub policy: Policy,
    /// Which blocks nodes admit once they are full.
    pub admission: Rule,
    /// How requests are assigned to engines.
    pub routing: Routing,
    /// The seed of all random choices.
    pub seed: u64,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Requests that an engine loads, computes or decodes at a time; others wait.
    pub batch: u32,
    /// Rates and times of the cluster's parts.
    pub speed: Speed,
    /// Time to first token that a request should meet, in seconds.
    pub first_token_limit: f64,
    /// Time between tokens that it should meet, in seconds.
    pub token_limit: f64,
}

/// Rates and times.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// The time that an engine takes to compute a prompt.
    pub prefill: Prefill,
    /// Seconds for a token of an answer, if it is decoded alone.
    pub decode: f64,
    /// Seconds that every other answer decoded at the same time adds to each token.
    pub decode_each: f64,
    /// Bytes a second through a host's NIC, each way.
    pub nic: f64,
    /// Bytes a second between an engine and its host.
    pub pcie: f64,
    /// Bytes a second that a host's memory reads and writes.
    pub memory: f64,
    /// Bytes a second that a node's disk reads and writes.
    pub disk: f64,
    /// Keys a second that the catalogs look up together.
    pub catalog: f64,
    /// Seconds that a look-up takes if nothing else is going on.
    pub look_up: f64,
}

impl Speed {
    /// Seconds between two tokens of an answer, with `others` decoded beside it.
    #[must_use]
    pub fn token_seconds(&self, others: u32) -> f64 {
        self.decode + self.decode_each * f64::from(others)
    }
}

impl Cluster {
    /// Seconds to compute the rest of a prompt of which `hits` blocks are there.
    #[must_use]
    pub fn prefill_seconds(&self, request: &Request, hits: Blocks) -> f64 {
        let tokens = f64::from(request.input_tokens);
        // At least the last token is computed: it says what comes next.
        let cached = (hits.0 as f64 * f64::from(self.block_tokens)).min(tokens - 1.0).max(0.0);
        self.speed.prefill.seconds(cached, tokens - cached)
    }
}

impl Default for Speed {
    /// One H200 an engine, as measured (docs/evaluation.md), with a 200 Gbit/s NIC and eight channels of DDR5-4800 a host.
    fn default() -> Self {
        Self {
            prefill: Prefill::default(),
            decode: 0.008,
            decode_each: 0.000_1,
            nic: 25e9,
            pcie: 55e9,
            memory: 307e9,
            disk: 3.5e9,
            catalog: 5e6,
            look_up: 0.000_5,
        }
    }
}

impl Default for Cluster {
    /// One engine with a pool of a terabyte.
    fn default() -> Self {
        Self {
            engines: 1,
            engines_per_host: 1,
            local_blocks: Blocks(1024),
            node_blocks: Blocks(16 << 10),
            disk_blocks: Blocks(0),
            policy: Policy::Lru,
            admission: Rule::All,
            routing: Routing::RoundRobin,
            seed: 1,
            block_tokens: tidepool_trace::BLOCK_TOKENS,
            block_bytes: 64 << 20,
            batch: 64,
            speed: Speed::default(),
            first_token_limit: 2.0,
            token_limit: 0.05,
        }
    }
}

/// The rule by which an engine gets a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// Any engine.
    Random,
    /// Each engine in turn.
    RoundRobin,
    /// The engine of the session's other requests; any engine for a request without a session.
    Sticky,
    /// The engine that lately had the longest part of the request's prefix; where none had any, the engine with the
    /// fewest requests.
    LongestPrefix,
}

impl Routing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Random, Self::RoundRobin, Self::Sticky, Self::LongestPrefix];

    const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::Sticky => "sticky",
            Self::LongestPrefix => "prefix",
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Routing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|routing| routing.name() == text);
        found.ok_or_else(|| "allowed is random, round-robin, sticky or prefix".to_owned())
    }
}
