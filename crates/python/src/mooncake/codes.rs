//! Return codes of `mooncake.store`: zero or a count for success, a negative code for a failure.

use tidepool_client::{GetError, NodeError, PutError};

pub(super) const OK: i64 = 0;
/// No space for a block before the deadline. vLLM backs off when it sees this one.
pub(super) const NO_AVAILABLE_HANDLE: i64 = -200;
/// A key longer than the pool takes.
pub(super) const INVALID_KEY: i64 = -400;
/// An invalid argument.
pub(super) const INVALID_PARAMS: i64 = -600;
pub(super) const OBJECT_NOT_FOUND: i64 = -704;
/// A lease on the block, from a recent read or existence check.
pub(super) const OBJECT_HAS_LEASE: i64 = -706;
pub(super) const SEGMENT_NOT_FOUND: i64 = -101;
/// No node and no catalog could be reached.
pub(super) const RPC_FAIL: i64 = -900;
pub(super) const RPC_TIMEOUT: i64 = -901;

/// The longest key that the pool takes.
const MAX_KEY: usize = 1024;

pub(super) fn of_put(error: &PutError, key: &[u8]) -> i64 {
    match error {
        PutError::InvalidInput(_) => of_key(key),
        PutError::NoSpace | PutError::TooLarge { .. } => NO_AVAILABLE_HANDLE,
        PutError::NoNode | PutError::NotFromDevice => RPC_FAIL,
        PutError::Timeout => RPC_TIMEOUT,
    }
}

pub(super) fn of_get(error: &GetError, key: &[u8]) -> i64 {
    match error {
        GetError::InvalidInput(_) => of_key(key),
        GetError::BufferTooSmall { .. } | GetError::BadRange { .. } => INVALID_PARAMS,
    }
}

/// The code for an invalid key, or for an invalid argument of a valid key.
pub(super) fn of_key(key: &[u8]) -> i64 {
    if key.len() > MAX_KEY { INVALID_KEY } else { INVALID_PARAMS }
}

/// As [`of_key`] for a removal: no block has an empty key.
pub(super) fn of_removed(key: &[u8]) -> i64 {
    if key.is_empty() { OBJECT_NOT_FOUND } else { of_key(key) }
}

pub(super) fn of_node(error: &NodeError) -> i64 {
    match error {
        NodeError::InvalidInput(_) | NodeError::Invalid(_) | NodeError::NotDead { .. } => INVALID_PARAMS,
        NodeError::UnknownNode(_) => SEGMENT_NOT_FOUND,
        NodeError::NotFound => OBJECT_NOT_FOUND,
        NodeError::NoSpace(_) => NO_AVAILABLE_HANDLE,
        NodeError::NoCatalog(_)
        | NodeError::Dead { .. }
        | NodeError::Unreachable(_)
        | NodeError::Ended(_)
        | NodeError::Refused { .. }
        | NodeError::NoAddress(_)
        | NodeError::NoNode => RPC_FAIL,
    }
}
