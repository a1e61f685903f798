//! `[log]`: how much the daemons say on standard error, and in which form.

use super::{
    section::section,
    values::{Format, Level},
};

section! {
    /// The settings of the log.
    "log", flags "log-" => LogConfig, LogOptions {
        "level" level: Level = "info", "How much to log: error, warn, info, debug or trace";
        "format" format: Format = "text", "How a log line looks: text or json";
    }
}
