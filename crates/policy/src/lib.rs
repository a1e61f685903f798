//! Decisions as pure functions of state, time and a random source that are passed in.
//!
//! No clock, no I/O, no threads: the servers and the simulator call the same code. [`Lru`] orders blocks for eviction;
//! [`placement`] chooses the nodes that a new block goes to, and [`replica`] the copy that a reader starts with; [`Leases`] says
//! which blocks were read too lately to be removed, [`SoftPins`] and [`Groups`] which are evicted last, or together.
//!
//! ```
//! let mut order = tidepool_policy::Lru::new(3);
//! order.insert(0);
//! order.insert(1);
//! order.touch(0);
//! assert_eq!(order.coldest(), Some(1));
//! ```
#![forbid(unsafe_code)]

mod groups;
mod leases;
mod lru;
mod pins;
pub mod placement;
pub mod replica;

pub use groups::Groups;
pub use leases::Leases;
pub use lru::Lru;
pub use pins::SoftPins;
