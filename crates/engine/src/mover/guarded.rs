//! A door that opens only while the engine's memory is there.
#![expect(unsafe_code, reason = "a door's promises are passed on")]

use crate::layout::{Layout, LayoutError};
use std::sync::Arc;
use tidepool_client::door::{DevicePiece, Door, DoorError, Flight, Moment, Pinned, Span, Way};

/// A device's door for the blocks of one layout. Before each flight it checks that all of the layout's memory is still
/// the device's: a copy of memory that the engine has freed, or put to sleep, would cost the engine its GPU.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) door: Arc<dyn Door>,
    pub(super) layout: Layout,
}

impl Guarded {
    /// Whether the layout's memory is the device's.
    pub(super) fn check(&self) -> Result<(), LayoutError> {
        let has = |address, len| self.door.has(DevicePiece { address: address as u64, len });
        match self.layout.find_missing(has) {
            Some((group, piece)) => Err(LayoutError::NotThere { group, piece, device: "this GPU".to_owned() }),
            None => Ok(()),
        }
    }
}

impl Door for Guarded {
    unsafe fn pin(&self, start: *mut u8, len: usize, writable: bool) -> Result<Box<dyn Pinned>, DoorError> {
        // SAFETY: passed on from the caller.
        unsafe { self.door.pin(start, len, writable) }
    }

    unsafe fn begin(&self, way: Way, spans: &[Span]) -> Result<Box<dyn Flight>, DoorError> {
        self.check().map_err(|error| DoorError { call: "a copy", reason: error.to_string() })?;
        // SAFETY: passed on from the caller.
        unsafe { self.door.begin(way, spans) }
    }

    fn moment(&self, stream: u64) -> Result<Box<dyn Moment>, DoorError> {
        self.door.moment(stream)
    }

    fn has(&self, piece: DevicePiece) -> bool {
        self.door.has(piece)
    }
}
