//! Pinned memory of this process, through which blocks go that a device cannot copy from where they are: two halves, so that
//! one is filled while the other is emptied.
#![expect(unsafe_code, reason = "the memory is lent to a device")]

use tidepool_client::door::{Door, DoorError, Pinned};

/// Bytes in a half, unless a block is longer.
const HALF: usize = 32 << 20;

/// Both halves.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) halves: [Half; 2],
}

/// Pinned bytes.
#[derive(Debug)]
pub(super) struct Half {
    /// Dropped before what it pins.
    _pin: Box<dyn Pinned>,
    pub(super) bytes: Vec<u8>,
}

impl Staging {
    /// Memory for blocks of up to `longest` bytes.
    pub(super) fn new(door: &dyn Door, longest: usize) -> Result<Self, DoorError> {
        let half = || {
            let mut bytes = vec![0; HALF.max(longest)];
            // SAFETY: the vector is neither moved on the heap nor dropped before the pin.
            let pin = unsafe { door.pin(bytes.as_mut_ptr(), bytes.len(), true)? };
            Ok(Half { _pin: pin, bytes })
        };
        Ok(Self { halves: [half()?, half()?] })
    }
}
