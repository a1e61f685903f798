//! Traces of requests to inference engines: what was asked for, when, and which blocks its prefix has.
//!
//! A trace is a stream of [`Request`]s in the order of their times, from a file or from a generator; nothing here needs all of
//! one at once. Blocks are known by their hashes alone: a trace has no content.
#![forbid(unsafe_code)]

mod request;

pub use request::{BlockHash, Millis, Request};
pub use tidepool_types::{Origin, SessionId, ToolId};
