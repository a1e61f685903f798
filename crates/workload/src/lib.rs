//! Traffic of agents, made from a seed: sessions that begin with shared text, grow turn by turn, pause while a tool runs, start
//! sub-agents, compact, rewrite what they said, try again, and end.
//!
//! [`Agents`] says what the traffic is like; [`Agents::codex`], [`Agents::scaling`] and [`Agents::fleet`] are ready-made.
//! [`Sessions`] plays it in a closed loop: it hands out a session's next request only after it was told when the answer before
//! it ended. [`Requests`] is the same with answers that take a nominal time: a trace, as an iterator in the order of time.
//! Memory is that of the sessions alive. The same settings give the same requests on every machine.
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
