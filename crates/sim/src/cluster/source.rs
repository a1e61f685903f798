//! Sources of a trace's requests, with and without waiting for answers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use tidepool_trace::{Millis, Request, SessionId, Source};

/// Requests that come at the trace's times, however slow the cluster is.
pub struct OpenLoop<I: Iterator> {
    requests: I,
    ahead: Option<Request>,
}

impl<I: Iterator<Item = Request>> OpenLoop<I> {
    /// Requests in the order of their times.
    pub const fn new(requests: I) -> Self {
        Self { requests, ahead: None }
    }

    fn peek(&mut self) -> Option<&Request> {
        if self.ahead.is_none() {
            self.ahead = self.requests.next();
        }
        self.ahead.as_ref()
    }
}

impl<I: Iterator<Item = Request>> Source for OpenLoop<I> {
    fn due(&mut self) -> Option<Millis> {
        self.peek().map(|request| request.at)
    }

    fn next(&mut self) -> Option<Request> {
        self.peek()?;
        self.ahead.take()
    }

    fn answered(&mut self, _session: SessionId, _at: Millis) {}
}

/// The most requests that are read ahead because their sessions wait.
const MOST_HELD: usize = 1 << 16;
/// The most sessions whose last answer is remembered.
const MOST_IDLE: usize = 1 << 20;

/// A trace whose sessions wait for their answers. A request comes at its time, but not before its session's last answer
/// and the pause after it are over. So a slow cluster gets less to do, and a fast one no more.
pub struct ClosedLoop<I: Iterator> {
    trace: OpenLoop<I>,
    /// Sessions with a request under way, and the requests that wait behind it.
    waiting: HashMap<SessionId, VecDeque<Request>>,
    held: usize,
    /// The time of the last answer of sessions without a request under way.
    idle: HashMap<SessionId, Millis>,
    /// Requests that come later than the trace says, by time and number.
    late: BTreeMap<(Millis, u64), Request>,
    count: u64,
}

impl<I: Iterator<Item = Request>> ClosedLoop<I> {
    /// Requests in the order of their times.
    pub fn new(requests: I) -> Self {
        let (waiting, idle) = (HashMap::new(), HashMap::new());
        Self { trace: OpenLoop::new(requests), waiting, held: 0, idle, late: BTreeMap::new(), count: 0 }
    }

    /// Sets requests aside that cannot come yet. Returns the time of the trace's next request, if it is known.
    fn settle(&mut self) -> Option<Millis> {
        loop {
            let request = self.trace.peek()?;
            let Some(origin) = request.origin else { return Some(request.at) };
            if let Some(behind) = self.waiting.get_mut(&origin.session) {
                if self.held >= MOST_HELD {
                    return None;
                }
                self.held += 1;
                behind.extend(self.trace.next());
                continue;
            }
            let idle = self.idle.remove(&origin.session);
            let earliest = idle.map_or(Millis(0), |answered| Millis(answered.0.saturating_add(origin.pause.0)));
            if earliest <= request.at {
                return Some(request.at);
            }
            if let Some(request) = self.trace.next() {
                self.waiting.insert(origin.session, VecDeque::new());
                self.come(request, earliest);
            }
        }
    }

    fn come(&mut self, mut request: Request, at: Millis) {
        request.at = at;
        self.count += 1;
        self.late.insert((at, self.count), request);
    }
}

impl<I: Iterator<Item = Request>> Source for ClosedLoop<I> {
    fn due(&mut self) -> Option<Millis> {
        let trace = self.settle();
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        trace.into_iter().chain(late).min()
    }

    fn next(&mut self) -> Option<Request> {
        let trace = self.settle();
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        if late.is_some_and(|late| trace.is_none_or(|trace| late < trace)) {
            return self.late.pop_first().map(|(_, request)| request);
        }
        let request = trace.and_then(|_| self.trace.next())?;
        if let Some(origin) = request.origin {
            self.waiting.insert(origin.session, VecDeque::new());
        }
        Some(request)
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        let Some(behind) = self.waiting.get_mut(&session) else { return };
        if let Some(request) = behind.pop_front() {
            self.held -= 1;
            let pause = request.origin.map_or(0, |origin| origin.pause.0);
            let earliest = Millis(at.0.saturating_add(pause)).max(request.at);
            return self.come(request, earliest);
        }
        self.waiting.remove(&session);
        if self.idle.len() >= MOST_IDLE {
            self.idle.clear();
        }
        self.idle.insert(session, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_trace::Origin;

    fn request(at: u64, session: u64, turn: u32) -> Request {
        let origin =
            Origin { session: SessionId(session), parent: None, turn, pause: Millis(10), calls: None, last: false };
        Request { at: Millis(at), input_tokens: 1, output_tokens: 1, blocks: Vec::new(), origin: Some(origin) }
    }

    fn next(source: &mut impl Source) -> Option<(u64, u64, u32)> {
        let due = source.due()?;
        let request = source.next().expect("something is due");
        assert_eq!(request.at, due);
        request.origin.map(|origin| (due.0, origin.session.0, origin.turn))
    }

    #[test]
    fn a_session_waits_for_its_answers_and_the_pauses_after_them() {
        let trace = [request(0, 1, 0), request(20, 1, 1), request(30, 2, 0), request(40, 1, 2), request(100, 2, 1)];
        let mut source = ClosedLoop::new(trace.into_iter());
        assert_eq!(next(&mut source), Some((0, 1, 0)));
        // The second turn of session 1 cannot come yet; the other session does not mind.
        assert_eq!(next(&mut source), Some((30, 2, 0)));
        assert_eq!(next(&mut source), None);
        source.answered(SessionId(1), Millis(35));
        assert_eq!(next(&mut source), Some((45, 1, 1)));
        source.answered(SessionId(1), Millis(50));
        assert_eq!(next(&mut source), Some((60, 1, 2)));
        source.answered(SessionId(2), Millis(95));
        assert_eq!(next(&mut source), Some((105, 2, 1)));
        source.answered(SessionId(1), Millis(110));
        source.answered(SessionId(2), Millis(110));
        assert_eq!(next(&mut source), None);
    }

    #[test]
    fn requests_of_no_session_wait_for_nobody() {
        let trace = (0..3).map(|at| Request { origin: None, ..request(at, 0, 0) });
        let mut source = ClosedLoop::new(trace);
        assert_eq!(std::iter::from_fn(|| source.next()).map(|request| request.at.0).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
