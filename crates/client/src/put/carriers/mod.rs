//! How bytes reach the reservations of one node. Each carrier has a file; which one a batch takes is chosen at run time.

mod device;
mod frames;
pub(super) mod mapped;
mod streams;

use super::reserved::Reserved;
use super::store::Writer;
use crate::peers::{MappedNode, Way};
use std::sync::Arc;

/// See the file's head.
pub(super) enum Carrier<'a> {
    /// This process copies into the node's mapped memory.
    Mapped(&'a Arc<MappedNode>),
    /// A device copies into the node's mapped memory.
    Device(&'a Arc<MappedNode>),
    /// Write frames on the batch's own connection; the node puts their bytes into place.
    Frames,
    /// The streams of a transport.
    Streams,
}

impl<'a> Carrier<'a> {
    /// The carrier of a batch that `writer` has reservations for. Only a batch whose reservations are `mapped` goes through
    /// the node's memory.
    pub(super) fn of(writer: &Writer<'a>, reserved: &[Reserved<'_, '_>], mapped: bool) -> Self {
        let on_device = |reserved: &Reserved<'_, '_>| reserved.job.item.data.on_device().is_some();
        match (writer.memory, &writer.peer.way) {
            (Some(memory), _) if mapped && reserved.iter().any(on_device) => Self::Device(memory),
            (Some(memory), _) if mapped => Self::Mapped(memory),
            (_, Way::Memory(_)) => Self::Frames,
            (_, Way::Network(_)) => Self::Streams,
        }
    }
}
