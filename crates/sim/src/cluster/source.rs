//! Where requests come from.

use tidepool_trace::{Millis, Request, SessionId};

/// Requests in the order of their times, some of which may wait for answers.
pub trait Source {
    /// When the next request comes; none while all that are left wait for answers, and at the end.
    fn due(&mut self) -> Option<Millis>;

    /// The next request.
    fn next(&mut self) -> Option<Request>;

    /// A session's request was answered.
    fn answered(&mut self, session: SessionId, at: Millis);
}

/// Requests that come at their times, whatever the cluster does.
pub struct OpenLoop<I: Iterator> {
    requests: I,
    ahead: Option<Request>,
}

impl<I: Iterator<Item = Request>> OpenLoop<I> {
    /// Requests in the order of their times.
    pub const fn new(requests: I) -> Self {
        Self { requests, ahead: None }
    }
}

impl<I: Iterator<Item = Request>> Source for OpenLoop<I> {
    fn due(&mut self) -> Option<Millis> {
        if self.ahead.is_none() {
            self.ahead = self.requests.next();
        }
        self.ahead.as_ref().map(|request| request.at)
    }

    fn next(&mut self) -> Option<Request> {
        self.ahead.take().or_else(|| self.requests.next())
    }

    fn answered(&mut self, _session: SessionId, _at: Millis) {}
}
