//! A GPU's driver, as this crate uses it. Every call returns at once, except [`Driver::register`], [`Driver::allocate`]
//! and [`Driver::drain`].

use std::fmt;
use tidepool_transfer::door::{DoorError, Span, Way};

/// A driver's own name for a stream of work.
pub type Stream = u64;
/// A driver's own name for an event.
pub type Event = u64;

/// The call that starts the kernel, as errors name it.
pub(crate) const LAUNCH: &str = "cuLaunchKernel";

/// Source and destination of one piece, as an entry of the kernel's table in the GPU's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The address of the piece.
    pub from: u64,
    /// The address to copy it to.
    pub to: u64,
}

/// A GPU's driver.
///
/// # Safety
/// The caller of a copy keeps the memory at both ends valid until the stream has done it; see
/// [`Door::begin`](tidepool_transfer::door::Door::begin).
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// Pins memory of this process. The GPU only reads memory that is not `writable`.
    fn register(&self, start: usize, len: usize, writable: bool) -> Result<(), DoorError>;
    /// Unpins memory.
    fn unregister(&self, start: usize);

    /// Allocates memory of the GPU.
    fn allocate(&self, len: usize) -> Result<u64, DoorError>;
    /// Frees memory of the GPU.
    fn free(&self, address: u64);
    /// Whether an address is the GPU's.
    fn owns(&self, address: u64) -> bool;

    /// Creates a stream of work, independent of all others.
    fn stream(&self) -> Result<Stream, DoorError>;
    /// Destroys a stream.
    fn end_stream(&self, stream: Stream);
    /// Waits until a stream has done all of its work. After an error the stream does no more.
    fn drain(&self, stream: Stream) -> Result<(), DoorError>;
    /// Creates an event.
    fn event(&self) -> Result<Event, DoorError>;
    /// Destroys an event.
    fn end_event(&self, event: Event);
    /// Records an event behind a stream's work so far.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DoorError>;
    /// Whether all work before an event is done; an error if it failed or the driver cannot tell.
    fn is_done(&self, event: Event) -> Result<bool, DoorError>;

    /// Starts a copy of pieces by the copy engines.
    fn copy(&self, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError>;
    /// Whether the driver has the kernel for small pieces.
    fn has_kernel(&self) -> bool;
    /// Starts a copy of `count` pieces of `len` bytes by the kernel, from the table at `table` in the GPU's memory.
    fn gather(&self, table: u64, count: usize, len: usize, stream: Stream) -> Result<(), DoorError>;
}
