//! Mapped memory: this process copies into the node's slab, and makes the checksums on the way.

use crate::peers::MappedNode;
use crate::put::reserved::{Reserved, writes_of};
use crate::put::store::Writer;
use tidepool_transfer::ops::Completion;

/// Copies the blocks of `reserved`, the last part of `part` blocks first. `beside` is called at least once, at the end; while
/// copy threads copy also at the beginning and as more is in place.
pub(in crate::put) fn write<'w, 'j, 'a>(
    writer: &mut Writer<'w>,
    memory: &MappedNode,
    reserved: &mut Vec<Reserved<'j, 'a>>,
    part: usize,
    mut beside: impl FnMut(&mut Writer<'w>, &mut Vec<Reserved<'j, 'a>>),
) {
    let mut transport = writer.core.shm(&memory.mapping);
    transport.write_in_turn(writes_of(reserved, part), writer.deadline, |done| {
        for Completion { token, outcome } in done.drain(..) {
            reserved[token as usize].complete(outcome);
        }
        beside(writer, reserved);
    });
}
