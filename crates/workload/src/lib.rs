//! Traffic of agents, made from a seed: sessions that begin with shared text, grow turn by turn, pause while a tool runs, start
//! sub-agents, compact, rewrite what they said, try again, and end.
//!
//! [`Agents`] has the settings; [`Agents::codex`], [`Agents::scaling`] and [`Agents::fleet`] are ready-made.
//! [`Sessions`] is the closed loop: it gives a session's next request only after the caller has reported the end of the
//! answer before. [`Requests`] is the open loop, a trace in the order of time, with answers of nominal time. Both keep
//! only live sessions in memory. The same settings give the same requests on every machine.
//!
//! ```
//! let trace = tidepool_workload::Agents::codex().requests()?;
//! assert_eq!(trace.take(1000).count(), 1000);
//! # Ok::<(), tidepool_workload::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod config;
mod context;
mod library;
mod presets;
mod requests;
mod session;
mod sessions;
mod spread;
mod validate;

pub use config::{Agents, Arrivals, Compaction, Retries, Service, Shared, Skills, SubAgents, Tool};
pub use requests::Requests;
pub use sessions::Sessions;
pub use spread::Spread;
pub use validate::ConfigError;
