//! Settings of generated traffic. Times are in seconds, sizes in tokens, chances from 0 to 1.

use crate::spread::Spread;

/// Settings of a generator of agents' traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    /// The seed of everything random.
    pub seed: u64,
    /// Tokens in a block.
    pub block_tokens: u32,
    /// Number of sessions that arrive, without sub-agents; none for sessions without end.
    pub sessions: Option<u64>,
    /// How sessions arrive.
    pub arrivals: Arrivals,
    /// The nominal time of an answer, where the caller does not report its end.
    pub service: Service,
    /// System prompts; every session begins with one.
    pub system: Shared,
    /// Skills, which a session loads behind its system prompt.
    pub skills: Skills,
    /// Tokens of a session's own task.
    pub task: Spread,
    /// Turns of a session.
    pub turns: Spread,
    /// Tokens of an answer.
    pub answer: Spread,
    /// The tools that answers call.
    pub tools: Vec<Tool>,
    /// Sub-agents, if sessions start any.
    pub sub_agents: Option<SubAgents>,
    /// The treatment of a context that is too long.
    pub compaction: Compaction,
    /// Chance that a turn changes text that was sent earlier, as where old tool results are cut; everything behind it
    /// is new to a cache.
    pub rewrite_chance: f64,
    /// Requests that come again because their answers failed.
    pub retries: Retries,
}

/// How sessions arrive: at random and independently (Poisson).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Sessions in a second, regardless of earlier sessions.
    PerSecond(f64),
    /// Sessions at the rate that keeps this many alive on average, with answers of nominal time.
    Live(f64),
    /// This many sessions at once: they begin over one session's time, and a new session follows each that ends.
    Fixed(u32),
}

/// The nominal time of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Seconds to the first token.
    pub first_token: f64,
    /// Tokens in a second from then on.
    pub tokens_per_second: f64,
}

/// Text that several sessions share; each session has one kind, all kinds being equally likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// Number of different texts.
    pub kinds: u32,
    /// Tokens of each text.
    pub tokens: u32,
}

/// Skills: the n-th most popular one is loaded 1/n as often as the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skills {
    /// Number of different skills.
    pub kinds: u32,
    /// Tokens of each skill.
    pub tokens: u32,
    /// Number of skills that a session loads.
    pub each: u32,
}

/// A tool that answers call; the next turn brings its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The tool's name, for people.
    pub name: &'static str,
    /// The tool's share of calls, relative to the sum over all tools.
    pub weight: f64,
    /// Seconds that a call takes.
    pub pause: Spread,
    /// Tokens of a result.
    pub result: Spread,
}

/// Sessions that a session starts and waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct SubAgents {
    /// Chance that an answer starts sub-agents instead of calling a tool.
    pub chance: f64,
    /// The most sub-agents started at once.
    pub together: u32,
    /// Turns of each.
    pub turns: Spread,
    /// Tokens of the task that each is given.
    pub task: Spread,
    /// Tokens of each report.
    pub report: Spread,
}

/// Compaction: a summary replaces a context that is too long, except for system prompt and skills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compaction {
    /// Tokens of the longest input.
    pub limit: u32,
    /// Tokens of the summary.
    pub summary: u32,
}

/// Requests that come again because their answers failed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retries {
    /// Chance that an answer fails.
    pub chance: f64,
    /// Seconds until the same request comes again.
    pub pause: Spread,
}
