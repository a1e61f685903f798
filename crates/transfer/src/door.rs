//! The door to a device's memory: how bytes get from shared memory to where only a device's driver can put them, and back.
//!
//! Shared memory is pinned once, and then copied from and to in flights: many scattered pieces that are begun together and
//! waited for together. A flight has its memory until it has landed, whatever becomes of whoever began it.

use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the host's memory to the device's.
    In,
    /// From the device's memory to the host's.
    Out,
}

/// A piece of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DevicePiece {
    /// The device's address of its first byte.
    pub address: u64,
    /// Its bytes.
    pub len: usize,
}

/// Bytes of all pieces together.
#[must_use]
pub fn total(pieces: &[DevicePiece]) -> u64 {
    pieces.iter().map(|piece| piece.len as u64).sum()
}

/// A piece that is copied, in one of the two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its address in the host's memory.
    pub host: *mut u8,
    /// Its address in the device's.
    pub device: u64,
    /// Its bytes.
    pub len: usize,
}

// SAFETY: a span is two addresses and a length; whoever has them copied promises what they stand for.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

/// Why a device's driver did not do something.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{call}: {reason}")]
pub struct DoorError {
    /// What it was asked to do.
    pub call: &'static str,
    /// What it said.
    pub reason: String,
}

/// For how long a driver that could not pin memory is not asked for as much again: there may be some by then.
pub const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Memory that is pinned until this is dropped.
pub trait Pinned: Send + Sync + fmt::Debug {}

/// Copies that are under way. Dropping it waits for them too.
pub trait Flight: Send {
    /// Waits until every byte is where it goes, or none will be written any more.
    fn land(self: Box<Self>) -> Result<(), DoorError>;
}

/// A moment in a stream of the device's work.
pub trait Moment: Send {
    /// Waits until all work that came before it is done; false if `go_on` said no before that.
    fn wait(self: Box<Self>, go_on: &dyn Fn() -> bool) -> Result<bool, DoorError>;
}

/// A device's memory, from the host's point of view.
pub trait Door: Send + Sync + fmt::Debug {
    /// Pins memory of this process, so that the device, and others of its driver, can reach it; `writable` if copies go there too.
    ///
    /// # Safety
    /// The memory must stay mapped until the answer is dropped.
    unsafe fn pin(&self, start: *mut u8, len: usize, writable: bool) -> Result<Box<dyn Pinned>, DoorError>;

    /// Begins copies.
    ///
    /// # Safety
    /// Both memories of each span must be what it says and stay so until the flight has landed. Nobody else may use a
    /// destination meanwhile; a source of another process may change, and the bytes copied are then unspecified.
    unsafe fn begin(&self, way: Way, spans: &[Span]) -> Result<Box<dyn Flight>, DoorError>;

    /// The moment after all work that was given to `stream`, a handle of the device's driver, so far.
    fn moment(&self, stream: u64) -> Result<Box<dyn Moment>, DoorError>;

    /// Whether this is memory of the device.
    fn has(&self, piece: DevicePiece) -> bool;
}
