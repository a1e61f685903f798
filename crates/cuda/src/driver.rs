//! What is asked of a GPU's driver. All of it returns at once, but for [`Driver::register`], [`Driver::allocate`] and
//! [`Driver::drain`].

use std::fmt;
use tidepool_transfer::door::{DoorError, Span, Way};

/// A driver's own name for a stream of work.
pub type Stream = u64;
/// A driver's own name for an event.
pub type Event = u64;

/// The call that starts the kernel, as errors name it.
pub(crate) const LAUNCH: &str = "cuLaunchKernel";

/// A source and a destination of the kernel's; the table of them lies in the GPU's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where a piece is.
    pub from: u64,
    /// Where it goes.
    pub to: u64,
}

/// A GPU's driver.
///
/// # Safety
/// Whoever asks for copies has made sure of the memory at both ends, until the stream has done them; see
/// [`Door::begin`](tidepool_transfer::door::Door::begin).
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// Pins memory of this process; read-only memory is only read by the GPU.
    fn register(&self, start: usize, len: usize, writable: bool) -> Result<(), DoorError>;
    /// Lets pinned memory go.
    fn unregister(&self, start: usize);

    /// Memory of the GPU.
    fn allocate(&self, len: usize) -> Result<u64, DoorError>;
    /// Gives it back.
    fn free(&self, address: u64);
    /// Whether an address is the GPU's.
    fn owns(&self, address: u64) -> bool;

    /// A stream of work beside all others.
    fn stream(&self) -> Result<Stream, DoorError>;
    /// Ends it.
    fn end_stream(&self, stream: Stream);
    /// Waits until a stream has done all that it was given; an error if it has failed, and then does no more.
    fn drain(&self, stream: Stream) -> Result<(), DoorError>;
    /// An event.
    fn event(&self) -> Result<Event, DoorError>;
    /// Ends it.
    fn end_event(&self, event: Event);
    /// Puts an event behind what a stream has been given so far.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DoorError>;
    /// Whether everything before an event is done; an error if it failed, or nobody can tell.
    fn is_done(&self, event: Event) -> Result<bool, DoorError>;

    /// Has the copy engines copy pieces.
    fn copy(&self, way: Way, spans: &[Span], stream: Stream) -> Result<(), DoorError>;
    /// Whether there is a kernel for small pieces.
    fn has_kernel(&self) -> bool;
    /// Has the kernel copy `count` pieces of `len` bytes, as the table at `table` in the GPU's memory says.
    fn gather(&self, table: u64, count: usize, len: usize, stream: Stream) -> Result<(), DoorError>;
}
