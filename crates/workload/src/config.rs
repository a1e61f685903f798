//! What generated traffic is like. Times are in seconds, sizes in tokens, chances from 0 to 1.

use crate::spread::Spread;

/// Settings of a generator of agents' traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Agents {
    /// Everything random follows from it.
    pub seed: u64,
    /// Tokens in a block.
    pub block_tokens: u32,
    /// How many sessions arrive, without sub-agents; none: they never end.
    pub sessions: Option<u64>,
    /// How sessions arrive.
    pub arrivals: Arrivals,
    /// How long an answer takes where nobody says.
    pub service: Service,
    /// System prompts: every session begins with one of them.
    pub system: Shared,
    /// Skills: what a session loads behind its system prompt.
    pub skills: Skills,
    /// Tokens of the task that a session is given, its own.
    pub task: Spread,
    /// Turns of a session.
    pub turns: Spread,
    /// Tokens of an answer.
    pub answer: Spread,
    /// The tools that answers call.
    pub tools: Vec<Tool>,
    /// Sub-agents, if sessions begin some.
    pub sub_agents: Option<SubAgents>,
    /// What happens to a context that is too long.
    pub compaction: Compaction,
    /// Chance that a turn changes something that was sent earlier, as where old tool results are cut; all behind it is new to a
    /// cache.
    pub rewrite_chance: f64,
    /// Requests whose answers fail and that come again.
    pub retries: Retries,
}

/// How sessions arrive: at random and independently (Poisson).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// So many in a second, whatever becomes of those before them.
    PerSecond(f64),
    /// As many as keep so many alive on average, with answers that take their nominal time.
    Live(f64),
    /// So many at once: they begin over the time that a session takes, and whenever one ends the next one comes.
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

/// Text that several sessions have in common; each session has one kind of it, all kinds being as likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shared {
    /// How many different ones there are.
    pub kinds: u32,
    /// Tokens of each.
    pub tokens: u32,
}

/// Skills: the n-th most popular one is loaded 1/n as often as the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skills {
    /// How many different ones there are.
    pub kinds: u32,
    /// Tokens of each.
    pub tokens: u32,
    /// How many a session loads.
    pub each: u32,
}

/// Something that an answer calls, and whose result the next turn brings.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// What people call it.
    pub name: &'static str,
    /// How often it is called, against the sum over all tools.
    pub weight: f64,
    /// Seconds that it takes.
    pub pause: Spread,
    /// Tokens of its result.
    pub result: Spread,
}

/// Sessions that a session begins, and waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct SubAgents {
    /// Chance that an answer begins some instead of calling a tool.
    pub chance: f64,
    /// At most so many at once.
    pub together: u32,
    /// Turns of each.
    pub turns: Spread,
    /// Tokens of the task that each is given.
    pub task: Spread,
    /// Tokens of what each reports.
    pub report: Spread,
}

/// What happens to a context that is too long: all behind system prompt and skills becomes a summary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compaction {
    /// No input is longer.
    pub limit: u32,
    /// Tokens of the summary.
    pub summary: u32,
}

/// Requests whose answers fail and that come again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retries {
    /// Chance that an answer fails.
    pub chance: f64,
    /// Seconds until the same request comes again.
    pub pause: Spread,
}
