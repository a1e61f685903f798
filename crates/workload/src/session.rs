//! One session: what it asks next, and what becomes of it when the answer has come.
//!
//! A session draws from a source of its own, made from the seed and its number, so that what it says does not depend on how
//! fast answers are.

use fastrand::Rng;
use tidepool_trace::{Millis, Origin, Request, SessionId, ToolId};

use crate::config::Agents;
use crate::context::{Context, Text, mix};
use crate::library::Library;
use crate::spread::Spread;

/// What an answer leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// It failed: the same request again.
    Retry,
    /// A tool runs.
    Tool(usize),
    /// Sub-agents run.
    SubAgents(u32),
    /// It was the last one.
    End,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) parent: Option<SessionId>,
    rng: Rng,
    context: Context,
    /// Pieces that the session shares with others: what compaction keeps.
    begin: usize,
    texts: u64,
    turn: u32,
    turns: u32,
    pause: Millis,
    answer: u32,
    step: Step,
    /// Sub-agents that have not ended, and tokens of their reports.
    pub(crate) running: u32,
    reports: u32,
    /// When the last answer ended.
    answered: Millis,
}

impl Session {
    pub(crate) fn new(agents: &Agents, library: &Library, id: SessionId, parent: Option<SessionId>) -> Self {
        let mut rng = Rng::with_seed(mix(agents.seed, id.0));
        let context = library.begin(agents, &mut rng);
        let (turns, task) = match (&agents.sub_agents, parent) {
            (Some(sub), Some(_)) => (sub.turns, sub.task),
            _ => (agents.turns, agents.task),
        };
        let turns = turns.count(&mut rng);
        let mut session = Self {
            id,
            parent,
            begin: context.pieces(),
            context,
            texts: 0,
            turn: 0,
            turns,
            pause: Millis(0),
            answer: 0,
            step: Step::End,
            running: 0,
            reports: 0,
            answered: Millis(0),
            rng,
        };
        let task = task.count(&mut session.rng);
        session.say(task);
        session
    }

    /// The next request, at its time. What its answer will lead to is drawn here.
    pub(crate) fn ask(&mut self, agents: &Agents, library: &Library, at: Millis) -> Request {
        self.answer = agents.answer.count(&mut self.rng);
        self.step = self.next_step(agents, library);
        let calls = match self.step {
            Step::Tool(tool) => Some(tool),
            Step::SubAgents(_) => Some(agents.tools.len()),
            Step::Retry | Step::End => None,
        };
        Request {
            at,
            input_tokens: self.context.tokens(),
            output_tokens: self.answer,
            blocks: self.context.blocks(),
            origin: Some(Origin {
                session: self.id,
                parent: self.parent,
                turn: self.turn,
                pause: self.pause,
                calls: calls.map(|tool| ToolId(tool as u32)),
                last: self.step == Step::End,
            }),
        }
    }

    fn next_step(&mut self, agents: &Agents, library: &Library) -> Step {
        if self.rng.f64() < agents.retries.chance {
            return Step::Retry;
        }
        if self.turn + 1 >= self.turns {
            return Step::End;
        }
        match &agents.sub_agents {
            Some(sub) if self.parent.is_none() && self.rng.f64() < sub.chance => {
                Step::SubAgents(self.rng.u32(1..=sub.together))
            }
            _ => Step::Tool(library.tools.draw(&mut self.rng)),
        }
    }

    /// The answer has ended: what it leads to, and when the next request comes, if that is known.
    pub(crate) fn answered(&mut self, agents: &Agents, at: Millis) -> (Step, Option<Millis>) {
        self.answered = at;
        let pause = match self.step {
            Step::Retry => agents.retries.pause.millis(&mut self.rng),
            Step::Tool(tool) => {
                let tool = &agents.tools[tool];
                let result = tool.result.count(&mut self.rng);
                self.grow(agents, result);
                tool.pause.millis(&mut self.rng)
            }
            Step::SubAgents(count) => {
                self.running = count;
                return (self.step, None);
            }
            Step::End => return (self.step, None),
        };
        self.pause = Millis(pause);
        (self.step, Some(Millis(at.0 + pause)))
    }

    /// A sub-agent has ended. The next request's time, if it was the last one.
    pub(crate) fn reported(&mut self, agents: &Agents, report: Spread, at: Millis) -> Option<Millis> {
        self.running = self.running.saturating_sub(1);
        self.reports = self.reports.saturating_add(report.count(&mut self.rng));
        if self.running > 0 {
            return None;
        }
        let reports = std::mem::take(&mut self.reports);
        self.grow(agents, reports);
        self.pause = Millis(at.0.saturating_sub(self.answered.0));
        Some(at)
    }

    /// A sub-agent's number: the same however long answers take.
    pub(crate) fn child(&self, nth: u32) -> SessionId {
        SessionId(mix(mix(self.id.0, u64::from(self.turn)), u64::from(nth)) | 1 << 63)
    }

    /// The next turn's input: the answer and what came of it are added, unless they make it too long.
    fn grow(&mut self, agents: &Agents, result: u32) {
        self.turn += 1;
        if self.rng.f64() < agents.rewrite_chance && self.context.pieces() > self.begin {
            let from = self.rng.usize(self.begin..self.context.pieces());
            let gone = self.context.truncate(from);
            self.say(gone);
        }
        let limit = agents.compaction.limit;
        if self.context.tokens().saturating_add(self.answer).saturating_add(result) > limit {
            self.context.truncate(self.begin);
            self.say(agents.compaction.summary);
        } else {
            self.say(self.answer);
        }
        self.say(result.min(limit - self.context.tokens()));
    }

    /// Adds text that nobody else has.
    fn say(&mut self, tokens: u32) {
        self.texts += 1;
        self.context.push(Text(mix(mix(!self.id.0, self.rng.u64(..)), self.texts)), tokens);
    }
}
