//! The door to a GPU's memory, through NVIDIA's driver.
//!
//! [`open`] loads the driver at run time: building and starting need nothing of CUDA, and on a host without the driver
//! `open` names what is missing. The [`Gpu`] that it returns is a [`Door`](tidepool_transfer::door::Door): it pins a
//! node's slab once, and moves scattered pieces between the slab and the GPU.
//!
//! ```text
//!   Gpu      lanes (a stream, an event, a table of pieces each), the choice of how pieces are copied
//!    |
//!   Driver   what is asked of the driver: NVIDIA's, loaded from libcuda.so.1, or a fake one for tests
//! ```
//!
//! The copy engines take a batch of pieces in one call. A small kernel (`kernel/gather.cu`) takes few multiprocessors
//! and copies small pieces as fast as large ones. [`Choice`] measures both when a GPU is opened.
//!
//! This crate knows nothing of blocks, nodes or engines.
//!
//! ```no_run
//! use tidepool_transfer::door::{Door as _, Span, Way};
//!
//! let gpu = tidepool_cuda::open(0)?;
//! let mut bytes = vec![7u8; 1 << 20];
//! // SAFETY: the vector outlives the pin.
//! let pinned = unsafe { gpu.pin(bytes.as_mut_ptr(), bytes.len(), true)? };
//! # let device = 0;
//! let span = Span { host: bytes.as_mut_ptr(), device, len: bytes.len() };
//! // SAFETY: both memories are ours until the flight has landed.
//! unsafe { gpu.begin(Way::In, &[span])? }.land()?;
//! drop(pinned);
//! # Ok::<(), tidepool_transfer::door::DoorError>(())
//! ```
// Not `forbid`: the driver is C.
#![deny(unsafe_code)]

mod choice;
mod driver;
pub mod fake;
mod gpu;
mod lane;
mod nvidia;
#[cfg(test)]
mod on_a_gpu;
mod range;
mod symbols;

pub use choice::{Choice, Method, Times};
pub use driver::{Driver, Event, Place, Stream};
pub use gpu::Gpu;

use std::sync::Arc;
use tidepool_transfer::door::DoorError;

/// Opens a GPU by its number: loads the driver, joins the process's context of that GPU, and measures the faster way to
/// copy pieces.
pub fn open(ordinal: u32) -> Result<Gpu, DoorError> {
    Ok(Gpu::new(Arc::new(nvidia::Nvidia::open(ordinal)?)))
}
