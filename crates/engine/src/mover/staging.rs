//! Pinned memory of this process, through which blocks go that a device cannot copy from where they are: two halves, so that
//! one is filled while the other is emptied.
#![expect(unsafe_code, reason = "the memory is lent to a device")]

use tidepool_client::door::{Door, DoorError, Pinned};

/// Bytes in a half, unless a block is longer.
const HALF: usize = 32 << 20;
const PAGE: usize = 4096;

/// Both halves.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) halves: [Half; 2],
}

/// Pinned bytes from the start of a page on: a GPU reads memory that its requests do not fit onto at little more than half the speed.
#[derive(Debug)]
pub(super) struct Half {
    /// Dropped before what it pins.
    _pin: Box<dyn Pinned>,
    memory: Vec<u8>,
    start: usize,
}

impl Half {
    fn new(door: &dyn Door, len: usize) -> Result<Self, DoorError> {
        let mut memory = vec![0u8; len + PAGE];
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        // SAFETY: the vector is neither moved on the heap nor dropped before the pin; `start` is less than a page.
        let pin = unsafe { door.pin(memory.as_mut_ptr().add(start), len, true)? };
        Ok(Self { _pin: pin, memory, start })
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len() - PAGE
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len()]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start, self.len());
        &mut self.memory[start..][..len]
    }
}

impl Staging {
    /// Memory for blocks of up to `longest` bytes.
    pub(super) fn new(door: &dyn Door, longest: usize) -> Result<Self, DoorError> {
        let half = || Half::new(door, HALF.max(longest).next_multiple_of(PAGE));
        Ok(Self { halves: [half()?, half()?] })
    }
}
