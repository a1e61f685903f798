//! Sources of requests: traces and generators.

use crate::Request;
use tidepool_types::{Millis, SessionId};

/// Requests in the order of their times, some of which may wait for answers.
pub trait Source {
    /// The time of the next request; none at the end, and while all remaining requests wait for answers.
    fn due(&mut self) -> Option<Millis>;

    /// The next request.
    fn next(&mut self) -> Option<Request>;

    /// Tells the source that a session's request was answered.
    fn answered(&mut self, session: SessionId, at: Millis);

    /// Whether the source drops even the requests under way. A simulation asks before each of its steps.
    fn gives_up(&mut self) -> bool {
        false
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn due(&mut self) -> Option<Millis> {
        (**self).due()
    }

    fn next(&mut self) -> Option<Request> {
        (**self).next()
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        (**self).answered(session, at);
    }

    fn gives_up(&mut self) -> bool {
        (**self).gives_up()
    }
}
