//! The library of shared text: system prompts and skills, and how a session chooses among them.

use fastrand::Rng;

use crate::config::{Agents, Tool};
use crate::context::{Context, Text, mix};

/// Tells the names of shared texts from each other and from those of sessions.
const SYSTEM: u64 = 0x5359_5354;
const SKILL: u64 = 0x534b_494c;

/// Draws from choices of different weights.
#[derive(Debug)]
pub(crate) struct Wheel(Vec<f64>);

impl Wheel {
    fn new(weights: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        Self(
            weights
                .map(|weight| {
                    sum += weight;
                    sum
                })
                .collect(),
        )
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.f64() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|&sum| sum <= at).min(self.0.len().saturating_sub(1))
    }
}

/// The choices for every session or turn.
#[derive(Debug)]
pub(crate) struct Library {
    skills: Wheel,
    pub(crate) tools: Wheel,
}

impl Library {
    pub(crate) fn new(agents: &Agents) -> Self {
        Self {
            skills: Wheel::new((1..=agents.skills.kinds).map(|rank| 1.0 / f64::from(rank))),
            tools: Wheel::new(agents.tools.iter().map(|Tool { weight, .. }| *weight)),
        }
    }

    /// A session's first context. Skills stand in a fixed order, so that sessions with the same skills share them.
    pub(crate) fn begin(&self, agents: &Agents, rng: &mut Rng) -> Context {
        let mut context = Context::new(agents.block_tokens);
        let kind = rng.u32(..agents.system.kinds);
        context.push(Text(mix(mix(agents.seed, SYSTEM), u64::from(kind))), agents.system.tokens);
        let mut chosen: Vec<_> = (0..agents.skills.each).map(|_| self.skills.draw(rng)).collect();
        chosen.sort_unstable();
        for skill in chosen {
            context.push(Text(mix(mix(agents.seed, SKILL), skill as u64)), agents.skills.tokens);
        }
        context
    }
}
