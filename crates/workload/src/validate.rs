//! Validation of a generator's settings.

use crate::config::{Agents, Arrivals};
use crate::spread::Spread;

/// A setting that is out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}: it must be from {least} to {most}")]
pub struct ConfigError {
    /// The setting's name.
    pub field: String,
    /// The setting's value.
    pub value: f64,
    /// The least value allowed.
    pub least: f64,
    /// The largest value allowed.
    pub most: f64,
}

/// Longest context, and the bound of every number of tokens.
const TOKENS: f64 = 4_194_304.0;
/// A week, the longest pause; also the bound of rates and counts that are not tokens.
const MANY: f64 = 604_800.0;

fn within(field: &str, value: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError { field: field.to_owned(), value, least, most })
}

impl Spread {
    fn check(&self, field: &str, least: f64, most: f64) -> Result<(), ConfigError> {
        within(&format!("{field}.median"), self.median, least, most)?;
        within(&format!("{field}.sigma"), self.sigma, 0.0, 4.0)?;
        within(&format!("{field}.most"), self.most, self.median, most)
    }
}

impl Agents {
    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("block_tokens", f64::from(self.block_tokens), 1.0, 65_536.0)?;
        match self.arrivals {
            Arrivals::PerSecond(rate) => within("arrivals.per_second", rate, 1e-6, MANY)?,
            Arrivals::Live(sessions) => within("arrivals.live", sessions, 0.1, 1e7)?,
            Arrivals::Fixed(sessions) => within("arrivals.fixed", f64::from(sessions), 1.0, 1e7)?,
        }
        within("service.first_token", self.service.first_token, 0.0, MANY)?;
        within("service.tokens_per_second", self.service.tokens_per_second, 1e-3, 1e9)?;
        self.task.check("task", 1.0, TOKENS)?;
        self.turns.check("turns", 1.0, MANY)?;
        self.answer.check("answer", 1.0, TOKENS)?;
        within("rewrite_chance", self.rewrite_chance, 0.0, 1.0)?;
        within("retries.chance", self.retries.chance, 0.0, 0.9)?;
        self.retries.pause.check("retries.pause", 0.0, MANY)?;
        self.validate_shared()?;
        self.validate_tools()?;
        self.validate_sub_agents()
    }

    /// A session's shared text, a summary, a task and a turn must fit into the limit, or compaction would not end.
    fn validate_shared(&self) -> Result<(), ConfigError> {
        within("system.kinds", f64::from(self.system.kinds), 1.0, 1e6)?;
        within("system.tokens", f64::from(self.system.tokens), 0.0, TOKENS)?;
        within("skills.kinds", f64::from(self.skills.kinds), 1.0, 1e6)?;
        within("skills.each", f64::from(self.skills.each), 0.0, 64.0)?;
        within("skills.tokens", f64::from(self.skills.tokens), 0.0, TOKENS / 64.0)?;
        within("compaction.limit", f64::from(self.compaction.limit), 2.0, TOKENS)?;
        let room = f64::from(self.compaction.limit) - self.begin();
        within("compaction.summary", f64::from(self.compaction.summary), 1.0, room - 1.0)?;
        within("task.most", self.task.most, 1.0, room - 1.0)
    }

    fn begin(&self) -> f64 {
        f64::from(self.system.tokens) + f64::from(self.skills.each) * f64::from(self.skills.tokens)
    }

    fn validate_tools(&self) -> Result<(), ConfigError> {
        within("tools.len", self.tools.len() as f64, 1.0, 1000.0)?;
        for tool in &self.tools {
            let field = |name: &str| format!("tools.{}.{name}", tool.name);
            within(&field("weight"), tool.weight, 1e-9, 1e9)?;
            tool.pause.check(&field("pause"), 0.0, MANY)?;
            tool.result.check(&field("result"), 1.0, TOKENS)?;
        }
        Ok(())
    }

    fn validate_sub_agents(&self) -> Result<(), ConfigError> {
        let Some(sub) = &self.sub_agents else { return Ok(()) };
        within("sub_agents.chance", sub.chance, 0.0, 1.0)?;
        within("sub_agents.together", f64::from(sub.together), 1.0, 64.0)?;
        sub.turns.check("sub_agents.turns", 1.0, MANY)?;
        sub.task.check("sub_agents.task", 1.0, f64::from(self.compaction.limit) - self.begin() - 1.0)?;
        sub.report.check("sub_agents.report", 1.0, TOKENS)
    }
}
