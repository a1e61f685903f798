//! The open loop: a trace, whose times are those of sessions with answers of a nominal length.

use tidepool_trace::{Millis, Request, Source};

use crate::config::{Agents, Service};
use crate::sessions::Sessions;
use crate::validate::ConfigError;

impl Service {
    /// How long an answer of so many tokens takes.
    #[must_use]
    pub fn seconds(&self, tokens: f64) -> f64 {
        self.first_token + tokens / self.tokens_per_second
    }
}

/// Generated requests in the order of their times.
#[derive(Debug)]
pub struct Requests(Sessions);

impl Agents {
    /// A trace.
    ///
    /// # Errors
    /// A setting that is out of its range.
    pub fn requests(self) -> Result<Requests, ConfigError> {
        self.sessions().map(Requests)
    }
}

impl Requests {
    /// The sessions behind them, for who answers himself.
    pub const fn sessions(&mut self) -> &mut Sessions {
        &mut self.0
    }

    /// When the answer to a request ends, nominally.
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
