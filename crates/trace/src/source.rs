//! Where requests come from.

use crate::Request;
use tidepool_types::{Millis, SessionId};

/// Requests in the order of their times, some of which may wait for answers.
pub trait Source {
    /// When the next request comes; none while all that are left wait for answers, and at the end.
    fn due(&mut self) -> Option<Millis>;

    /// The next request.
    fn next(&mut self) -> Option<Request>;

    /// A session's request was answered.
    fn answered(&mut self, session: SessionId, at: Millis);

    /// Whether nobody is to wait for what is under way either. A simulation asks before each of its steps.
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
