//! Traces of requests to inference engines: what was asked for, when, and which blocks its prefix has.
//!
//! A trace is a stream of [`Request`]s in the order of their times, from a file ([`Reader`]) or from a generator;
//! nothing here needs a whole trace at once. A trace knows blocks by their hashes alone and has no content. [`Slice`],
//! [`Scale`] and [`Merge`] make traces of other traces, and [`Writer`] writes them in our own format, which
//! docs/traces.md describes.
//!
//! ```
//! use tidepool_trace::{Options, Reader};
//!
//! let file = br#"{"timestamp": 0, "input_length": 700, "output_length": 9, "hash_ids": [0, 1]}"#;
//! let mut reader = Reader::new(&file[..], Options::default())?;
//! let request = reader.next().expect("one request")?;
//! assert_eq!((request.input_tokens, request.blocks.len()), (700, 2));
//! assert_eq!(reader.report().malformed, 0);
//! # Ok::<(), tidepool_trace::TraceError>(())
//! ```
#![forbid(unsafe_code)]

mod adapt;
mod error;
mod format;
mod lines;
mod reader;
mod request;
mod source;
mod writer;

pub use adapt::{Merge, Scale, Slice};
pub use error::{Malformed, Report, TraceError};
pub use format::Format;
pub use reader::{Options, Reader};
pub use request::{BlockHash, Request};
pub use source::Source;
pub use tidepool_types::{Millis, Origin, SessionId, ToolId};
pub use writer::Writer;

/// Tokens of a block where neither the trace nor the caller says otherwise.
pub const BLOCK_TOKENS: u32 = 512;

/// The latest time and the longest pause: exact as a JSON number everywhere. A line beyond it is malformed.
pub const LATEST: Millis = Millis(1 << 53);

/// The most blocks of a request; a line with more is malformed.
pub const MAX_BLOCKS: usize = 1 << 20;
