//! The door to a GPU's memory, through NVIDIA's driver.
//!
//! [`open`] loads the driver at run time: nothing of CUDA is needed to build or to start, and a host without it is told what is
//! missing. The [`Gpu`] that it gives is a [`Door`](tidepool_transfer::door::Door): it pins a node's slab once, and moves
//! scattered pieces between it and the GPU.
//!
//! ```text
//!   Gpu      lanes (a stream, an event, a table of pieces each), the choice of how pieces are copied
//!    |
//!   Driver   what is asked of the driver: NVIDIA's, loaded from libcuda.so.1, or a fake one for tests
//! ```
//!
//! Pieces are copied in one of two ways: by the copy engines, which take a batch of pieces in one call, or by a small kernel
//! (`kernel/gather.cu`) that takes few multiprocessors and does not mind how small pieces are. [`Choice`] measures both when a
//! GPU is opened.
//!
//! What it does not do: it knows nothing of blocks, nodes or engines.
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

/// Opens a GPU by its number: loads the driver, shares the context that the process's other users of the GPU have, and measures
/// how pieces are best copied.
pub fn open(ordinal: u32) -> Result<Gpu, DoorError> {
    Ok(Gpu::new(Arc::new(nvidia::Nvidia::open(ordinal)?)))
}
