//! The atomics of the shared-memory protocol, in one place: the model test puts a checker's atomics here instead.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
