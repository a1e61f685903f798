//! Ready-made settings of agents' traffic.

use crate::config::{Agents, Arrivals, Compaction, Retries, Service, Shared, Skills, SubAgents, Tool};
use crate::spread::Spread;

/// The spread of every tool's pauses: p90 is 3.25 times the median.
const SIGMA: f64 = 0.92;
/// The longest pause of any tool, in seconds.
const LONGEST_PAUSE: f64 = 900.0;

const SERVICE: Service = Service { first_token: 0.5, tokens_per_second: 100.0 };

fn tool(name: &'static str, weight: f64, pause: f64, result: f64) -> Tool {
    Tool {
        name,
        weight,
        pause: Spread::around(pause, SIGMA, LONGEST_PAUSE),
        result: Spread::around(result, 0.8, 20_000.0),
    }
}

/// Four tools whose pauses together have the published median (5.2 s) and p99 (81.4 s).
fn coding_tools() -> Vec<Tool> {
    vec![
        tool("read", 0.45, 3.0, 1500.0),
        tool("edit", 0.20, 5.0, 700.0),
        tool("run", 0.23, 9.0, 1300.0),
        tool("test", 0.12, 20.0, 1900.0),
    ]
}

impl Agents {
    /// Coding agents, fitted to what was published of 610 Codex sessions on SWE-bench Pro.
    #[must_use]
    pub fn codex() -> Self {
        Self {
            seed: 1,
            block_tokens: 512,
            sessions: Some(610),
            arrivals: Arrivals::Live(64.0),
            service: SERVICE,
            system: Shared { kinds: 1, tokens: 7000 },
            skills: Skills { kinds: 16, tokens: 1000, each: 1 },
            task: Spread::around(3700.0, 0.4, 40_000.0),
            turns: Spread::around(33.0, 0.4, 200.0),
            answer: Spread::around(342.0, 0.7, 8000.0),
            tools: coding_tools(),
            sub_agents: None,
            compaction: Compaction { limit: 190_000, summary: 4000 },
            rewrite_chance: 0.036,
            retries: Retries { chance: 0.01, pause: Spread::around(2.0, 0.5, 60.0) },
        }
    }

    /// The published scaling workload: 20,000 shared tokens, 10,000 of a first input, 2,048 in and 900 out a turn, 30 turns; 75
    /// to 375 sessions at once.
    #[must_use]
    pub fn scaling(live: u32) -> Self {
        let mut tools = coding_tools();
        for tool in &mut tools {
            tool.result = Spread::fixed(2048.0);
        }
        Self {
            sessions: None,
            arrivals: Arrivals::Fixed(live),
            system: Shared { kinds: 1, tokens: 20_000 },
            skills: Skills { kinds: 1, tokens: 0, each: 0 },
            task: Spread::fixed(10_000.0),
            turns: Spread::fixed(30.0),
            answer: Spread::fixed(900.0),
            tools,
            rewrite_chance: 0.0,
            retries: Retries { chance: 0.0, pause: Spread::fixed(0.0) },
            ..Self::codex()
        }
    }

    /// Agents that start sub-agents, compact often and come from several teams. Fitted to no data: it exercises what
    /// the published traffic has little of.
    #[must_use]
    pub fn fleet() -> Self {
        Self {
            sessions: None,
            system: Shared { kinds: 6, tokens: 9000 },
            skills: Skills { kinds: 40, tokens: 1500, each: 2 },
            turns: Spread::around(24.0, 0.7, 300.0),
            sub_agents: Some(SubAgents {
                chance: 0.06,
                together: 3,
                turns: Spread::around(8.0, 0.6, 60.0),
                task: Spread::around(1500.0, 0.6, 10_000.0),
                report: Spread::around(900.0, 0.6, 8000.0),
            }),
            compaction: Compaction { limit: 60_000, summary: 3000 },
            retries: Retries { chance: 0.03, pause: Spread::around(2.0, 0.5, 60.0) },
            ..Self::codex()
        }
    }
}
