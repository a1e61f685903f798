//! The closed loop: sessions that go on when the caller reports their answers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use fastrand::Rng;
use tidepool_trace::{Millis, Request, SessionId, Source};

use crate::config::{Agents, Arrivals};
use crate::context::mix;
use crate::library::Library;
use crate::session::{Session, Step};
use crate::spread::exponential;
use crate::validate::ConfigError;

/// A source of requests that waits for answers: a session's next request is due a pause after [`Source::answered`] was
/// called for its last one.
///
/// ```
/// # use tidepool_trace::{Millis, Source};
/// let mut sessions = tidepool_workload::Agents::scaling(75).sessions()?;
/// while let Some(request) = sessions.next().filter(|request| request.at < Millis(10_000)) {
///     let session = request.origin.map(|origin| origin.session);
///     sessions.answered(session.expect("generated requests have one"), Millis(request.at.0 + 500));
/// }
/// # Ok::<(), tidepool_workload::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Sessions {
    agents: Agents,
    library: Library,
    arrivals: Rng,
    rate: f64,
    /// The time of the next session's arrival, in seconds; none if no more arrive by themselves.
    arrival: Option<f64>,
    arrived: u64,
    /// Sessions of these that followed an ended one.
    followed: u64,
    due: BinaryHeap<Reverse<(Millis, SessionId)>>,
    live: HashMap<SessionId, Session>,
}

impl Agents {
    /// Sessions in a closed loop.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn sessions(self) -> Result<Sessions, ConfigError> {
        self.validate()?;
        let rate = match self.arrivals {
            Arrivals::PerSecond(rate) => rate,
            Arrivals::Live(sessions) => sessions / self.session_seconds(),
            Arrivals::Fixed(sessions) => f64::from(sessions) / self.session_seconds(),
        };
        let mut sessions = Sessions {
            library: Library::new(&self),
            arrivals: Rng::with_seed(mix(self.seed, u64::MAX)),
            rate,
            arrival: Some(0.0),
            arrived: 0,
            followed: 0,
            due: BinaryHeap::new(),
            live: HashMap::new(),
            agents: self,
        };
        sessions.next_arrival();
        Ok(sessions)
    }

    /// A session's mean life in seconds, with answers of nominal time.
    #[must_use]
    pub fn session_seconds(&self) -> f64 {
        let weight: f64 = self.tools.iter().map(|tool| tool.weight).sum();
        let tool: f64 = self.tools.iter().map(|tool| tool.weight / weight * tool.pause.mean()).sum();
        let answer = self.service.seconds(self.answer.mean());
        let again = 1.0 / (1.0 - self.retries.chance);
        let answer = answer * again + self.retries.pause.mean() * (again - 1.0);
        let turn = |pause: f64| answer + pause;
        let (pause, children) = self
            .sub_agents
            .as_ref()
            .map_or((tool, 0.0), |sub| (tool * (1.0 - sub.chance), sub.chance * sub.turns.mean() * turn(tool)));
        self.turns.mean() * turn(pause + children)
    }
}

impl Source for Sessions {
    fn due(&mut self) -> Option<Millis> {
        let arrival = self.arrival.map(|seconds| Millis((seconds * 1000.0) as u64));
        let turn = self.due.peek().map(|Reverse((at, _))| *at);
        arrival.into_iter().chain(turn).min()
    }

    fn next(&mut self) -> Option<Request> {
        let at = self.due()?;
        if self.due.peek().is_none_or(|Reverse((turn, _))| *turn > at) {
            self.arrive(at);
        }
        let Reverse((at, id)) = self.due.pop()?;
        let session = self.live.get_mut(&id)?;
        Some(session.ask(&self.agents, &self.library, at))
    }

    fn answered(&mut self, id: SessionId, at: Millis) {
        let Some(session) = self.live.get_mut(&id) else { return };
        match session.answered(&self.agents, at) {
            (_, Some(due)) => self.due.push(Reverse((due, id))),
            (Step::SubAgents(count), None) => {
                let children: Vec<_> = (0..count).map(|nth| session.child(nth)).collect();
                for child in children {
                    self.start(child, Some(id), at);
                }
            }
            (_, None) => self.end(id, at),
        }
    }
}

impl Sessions {
    /// Sessions that have begun and not ended.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// The settings.
    #[must_use]
    pub const fn agents(&self) -> &Agents {
        &self.agents
    }

    fn arrive(&mut self, at: Millis) {
        self.begin(at);
        self.next_arrival();
    }

    fn begin(&mut self, at: Millis) {
        let id = SessionId(self.arrived);
        self.arrived += 1;
        self.start(id, None, at);
    }

    fn next_arrival(&mut self) {
        let enough =
            matches!(self.agents.arrivals, Arrivals::Fixed(most) if self.arrived - self.followed >= most.into());
        let wait = exponential(&mut self.arrivals, self.rate);
        self.arrival = self.arrival.filter(|_| !enough && self.are_more()).map(|before| before + wait);
    }

    fn are_more(&self) -> bool {
        self.agents.sessions.is_none_or(|sessions| self.arrived < sessions)
    }

    /// Notes the end of a session: where their number is fixed, a new one follows.
    fn follow(&mut self, at: Millis) {
        if matches!(self.agents.arrivals, Arrivals::Fixed(_)) && self.are_more() {
            self.followed += 1;
            self.begin(at);
            // The session may have been the last one.
            self.arrival = self.arrival.filter(|_| self.are_more());
        }
    }

    fn start(&mut self, id: SessionId, parent: Option<SessionId>, at: Millis) {
        self.live.insert(id, Session::new(&self.agents, &self.library, id, parent));
        self.due.push(Reverse((at, id)));
    }

    fn end(&mut self, id: SessionId, at: Millis) {
        let parent = self.live.remove(&id).and_then(|session| session.parent);
        if parent.is_none() {
            self.follow(at);
        }
        let waiting = parent.and_then(|parent| self.live.get_mut(&parent));
        if let (Some(waiting), Some(sub)) = (waiting, &self.agents.sub_agents)
            && let Some(due) = waiting.reported(&self.agents, sub.report, at)
        {
            let waiting = waiting.id;
            self.due.push(Reverse((due, waiting)));
        }
    }
}
