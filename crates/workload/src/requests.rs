//! The open loop: a trace of sessions whose answers take their nominal time.

use tidepool_trace::{Millis, Request, Source};

use crate::config::{Agents, Service};
use crate::sessions::Sessions;
use crate::validate::ConfigError;

impl Service {
    /// Seconds that an answer of `tokens` tokens takes.
    #[must_use]
    pub fn seconds(&self, tokens: f64) -> f64 {
        self.first_token + tokens / self.tokens_per_second
    }
}

/// Generated requests in the order of their times.
#[derive(Debug)]
pub struct Requests(Sessions);

impl Agents {
    /// A trace with these settings.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn requests(self) -> Result<Requests, ConfigError> {
        self.sessions().map(Requests)
    }
}

impl Requests {
    /// The sessions behind the requests, for a caller that reports answers itself.
    pub const fn sessions(&mut self) -> &mut Sessions {
        &mut self.0
    }

    /// The nominal end of a request's answer.
    #[must_use]
    pub fn answered(&self, request: &Request) -> Millis {
        let seconds = self.0.agents().service.seconds(f64::from(request.output_tokens));
        Millis(request.at.0 + (seconds * 1000.0) as u64)
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let request = self.0.next()?;
        let ended = self.answered(&request);
        if let Some(origin) = request.origin {
            self.0.answered(origin.session, ended);
        }
        Some(request)
    }
}
