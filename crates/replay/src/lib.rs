//! Plays a trace against a real pool, with real bytes, from emulated engines.
//!
//! An emulated engine has a cache of its own, looks up in the pool what that lacks, reads it, checks every byte, takes the time that a
//! GPU would to compute the rest, puts that into the pool and takes the time that decoding would. A block's bytes are made from its
//! name, so that any engine can tell whether it got the right ones; a single wrong byte fails the run. Computing and waiting can go
//! faster than they would ([`Settings::pace`]); moving bytes takes the time that it takes.
//!
//! Requests come from the same sources as the simulator's ([`tidepool_trace::Source`]), go to engines by the same routing, and
//! end in the same report, so that the two can be compared.
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
