//! Logs on standard error, as text or JSON, bounded so that no reader and no disk is flooded.
//!
//! Events pass a level, then a limit per place in the code ([`limit`]). Suppressed events are counted, and a line a
//! second reports them.

pub mod limit;
mod report;
#[cfg(test)]
mod tests;

use crate::config::{Format, Level, LogConfig};
use limit::{Limit, Limiter};
use report::Reporter;
use std::{io, sync::Arc, time::Instant};
use tidepool_types::{Metric, Value};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
};

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// This process has one already.
    #[error("the log is set up twice in one process")]
    Twice,
    /// The thread that reports suppressed events could not be started.
    #[error("starting the log's thread: {0}")]
    Thread(#[from] io::Error),
}

/// The log of this process. Dropping it reports the events still suppressed.
pub struct Logs {
    limiter: Arc<Limiter>,
    _reporter: Reporter,
}

impl Logs {
    /// Sets the log up for the whole process, once.
    pub fn start(config: &LogConfig) -> Result<Self, LogError> {
        let limiter = Arc::new(Limiter::default());
        let limit = Limit::new(Arc::clone(&limiter), Instant::now);
        tracing::subscriber::set_global_default(subscriber(config, limit, io::stderr)).map_err(|_| LogError::Twice)?;
        let reporter = Reporter::start(Arc::clone(&limiter))?;
        Ok(Self { limiter, _reporter: reporter })
    }

    /// The log's counters, for metrics.
    pub fn meter(&self) -> Meter {
        Meter(Arc::clone(&self.limiter))
    }
}

/// The log's counters.
#[derive(Clone)]
pub struct Meter(Arc<Limiter>);

impl Meter {
    /// The log's metrics now.
    pub fn metrics(&self) -> Vec<Metric> {
        let value = Value::Counter(self.0.suppressed());
        vec![Metric::new(
            "tidepool_log_suppressed_total",
            "Log lines held back because their like came too often.",
            value,
        )]
    }
}

/// The subscriber for events: level, then limit, then lines to `writer`.
fn subscriber<W>(config: &LogConfig, limit: Limit, writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A line that cannot be written is lost: reporting that to the same place would panic.
    let lines: Box<dyn Layer<_> + Send + Sync> = match config.format {
        Format::Text => fmt::layer().with_ansi(false).with_writer(writer).log_internal_errors(false).boxed(),
        Format::Json => fmt::layer().json().flatten_event(true).with_writer(writer).log_internal_errors(false).boxed(),
    };
    // The libraries below log much at lower levels that only their authors need.
    let level = filter(config.level);
    let levels = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("tidepool", level);
    Registry::default().with(lines).with(limit).with(levels)
}

const fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}
