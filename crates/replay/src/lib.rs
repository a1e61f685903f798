//! Plays a trace against a real pool, with real bytes, from emulated engines.
//!
//! An emulated engine has a cache of its own. It looks up the missing blocks in the pool, reads them, checks every byte
//! and takes a GPU's time to compute the rest. It puts the computed blocks into the pool and takes the time to decode.
//! A block's bytes follow from its name, so that any engine can check them; a single wrong byte fails the run.
//! Computing and waiting can go faster than real time ([`Settings::pace`]); moving bytes takes its real time.
//!
//! Requests come from the same sources as the simulator's ([`tidepool_trace::Source`]), the same routing assigns them
//! to engines, and the report is the same, so that replay and simulation can be compared.
#![forbid(unsafe_code)]

mod clock;
mod contact;
mod content;
mod engine;
mod nodes;
mod progress;
mod run;
mod settings;
mod turns;

pub use contact::Outage;
pub use content::Content;
pub use nodes::Absence;
pub use progress::{Counts, Partial, Progress};
pub use run::{Replay, run};
pub use settings::{InvalidSettings, Settings};
