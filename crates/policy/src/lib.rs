//! Decisions as pure functions of state, time and a random source that are passed in.
//!
//! No clock, no I/O, no threads: the servers and the simulator call the same code.
//!
//! - [`admission`] decides which blocks come in when that costs other blocks their places.
//! - [`eviction`] decides which blocks go when room is needed; [`SoftPins`] and [`Groups`], which of them go last, or
//!   together.
//! - [`placement`] chooses the nodes for a new block, [`replica`] the copy that a reader starts with.
//! - [`Leases`] says which blocks were read too recently to be removed.
//!
//! ```
//! use tidepool_policy::eviction::{Policy, Tag, Use};
//!
//! let (mut order, now) = (Policy::Lru.build(), Use::default());
//! order.insert(0, Tag(100), &now);
//! order.insert(1, Tag(101), &now);
//! order.touch(0, &now);
//! assert_eq!(order.victim(now.at), Some(1));
//! ```
#![forbid(unsafe_code)]

pub mod admission;
pub mod eviction;
mod groups;
mod leases;
mod pins;
pub mod placement;
pub mod replica;
mod slots;

pub use groups::Groups;
pub use leases::Leases;
pub use pins::SoftPins;
pub use slots::SlotList;
