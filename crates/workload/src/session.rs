//! One session: its next request, and its next step once the answer has come.
//!
//! A session draws from its own random source, made from the seed and its number, so that its text does not depend on
//! the speed of answers.

use fastrand::Rng;
use tidepool_trace::{Millis, Origin, Request, SessionId, ToolId};

use crate::config::Agents;
use crate::context::{Context, Text, mix};
use crate::library::Library;
use crate::spread::Spread;

/// The step that an answer leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Step {
    /// The answer failed: the same request comes again.
    Retry,
    /// A tool runs.
    Tool(usize),
    /// Sub-agents run.
    SubAgents(u32),
    /// The session ends.
    End,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) parent: Option<SessionId>,
    rng: Rng,
    context: Context,
    /// Number of pieces that the session shares with others, which compaction keeps.
    begin: usize,
    texts: u64,
    turn: u32,
    turns: u32,
    pause: Millis,
    answer: u32,
    step: Step,
    /// Sub-agents that have not ended, and the tokens of the reports so far.
    pub(crate) running: u32,
    reports: u32,
    /// The end of the last answer.
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

    /// The next request, at `at`. This also draws the step that its answer will lead to.
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

    /// Ends the answer. Returns its step, and the time of the next request, if that is known.
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

    /// Notes the end of a sub-agent. Returns the time of the next request, if that was the last sub-agent.
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

    /// Makes the next turn's input: adds the answer and its result, unless that makes the input too long.
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

    /// Adds text that no other session has.
    fn say(&mut self, tokens: u32) {
        self.texts += 1;
        self.context.push(Text(mix(mix(!self.id.0, self.rng.u64(..)), self.texts)), tokens);
    }
}
