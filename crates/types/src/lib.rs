//! The vocabulary of Tidepool: ids, keys, sizes, deadlines and the limits every part agrees on.
//!
//! This crate does no I/O, reads no clock on its own and allocates no more than a key. Every other crate depends on it;
//! it depends on none of them.
//!
//! ```
//! use tidepool_types::{BlockId, Key, TenantSecret};
//!
//! let key = Key::new(b"model/layer-0/block-17")?;
//! let id = BlockId::derive(&TenantSecret::DEFAULT, key);
//! assert_eq!(id, BlockId::derive(&TenantSecret::DEFAULT, key));
//! # Ok::<(), tidepool_types::InvalidInput>(())
//! ```
#![deny(unsafe_code)]

mod deadline;
mod id;
mod key;
mod metric;
mod names;
mod random;
mod session;
mod units;

pub use deadline::Deadline;
pub use id::{BlockId, TenantSecret};
pub use key::{InvalidInput, Key, check_block_len, check_range};
pub use metric::{Latency, Metric, Value};
pub use names::{ClientId, CopyName, Epoch, Generation, NodeName, Tier, Version};
pub use random::{Random, drawn, mix};
pub use session::{Millis, Origin, SessionId, ToolId, UsedFor};
pub use units::{ByteSize, Span, UnitError};

/// Longest key in bytes; the shortest is one byte.
pub const MAX_KEY_LEN: usize = 1024;

/// Largest block in bytes; the smallest is one byte.
pub const MAX_BLOCK_LEN: u64 = 1 << 30;

/// Bytes of a block that share one checksum.
pub const CHUNK_LEN: u64 = 128 << 10;

/// How many checksums a block of `len` bytes carries.
#[must_use]
pub const fn chunk_count(len: u64) -> u64 {
    len.div_ceil(CHUNK_LEN)
}
