//! The owner's side of registered ranges: answering ReadRange and receiving WriteRange, straight from and into them.

use crate::conn::{ConnError, Connection, FrameReceiver};
use crate::ops::Region;
use crate::tcp::serve::recv_write;
use std::io::IoSlice;
use tidepool_types::Deadline;
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{RangeBytes, RangeItem, RangeOutcome, ReadRange, Reply, WriteRange};

/// Payload of one answer, unless a single item has more.
const GROUP_BYTES: u64 = 1 << 20;
/// Items of one answer.
const GROUP_ITEMS: usize = 512;

/// Where an owner keeps its ranges.
pub trait RangeSource {
    /// Bytes of a range that can be read while this lives.
    type Lent: AsRef<[u8]>;

    /// The bytes of an item, or why there are none: [`RangeOutcome::Miss`] or [`RangeOutcome::BadRange`].
    fn lend(&self, item: &RangeItem) -> Result<Self::Lent, RangeOutcome>;
}

/// Answers a [`ReadRange`] with as many frames as its bytes need. Bytes that change while they are sent do not match the
/// checksums that go before them.
pub fn serve_ranges<S: RangeSource>(
    connection: &mut Connection,
    number: u64,
    read: &ReadRange,
    source: &S,
    until: Deadline,
) -> Result<(), ConnError> {
    let mut rest = &read.items[..];
    let mut first = 0;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |item: &&RangeItem| {
            bytes += item.len;
            bytes <= GROUP_BYTES
        };
        let count = rest.iter().take(GROUP_ITEMS).take_while(fits).count().max(1);
        let (group, after) = rest.split_at(count);
        let (mut items, mut lent) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for item in group {
            match source.lend(item) {
                Ok(bytes) => {
                    let checksums = BlockChecksum::of_range(item.name, item.offset, item.len).range(0, bytes.as_ref());
                    items.push(RangeOutcome::Hit { len: item.len, checksums });
                    lent.push(bytes);
                }
                Err(outcome) => items.push(outcome),
            }
        }
        let payload: Vec<IoSlice<'_>> = lent.iter().map(|bytes| IoSlice::new(bytes.as_ref())).collect();
        connection.send_reply(number, &Reply::RangeBytes(RangeBytes { first, items }), &payload, &[], until)?;
        first += count as u32;
        rest = after;
    }
    Ok(())
}

/// Receives the payload of a [`WriteRange`] to where it belongs. Whether the bytes came as they left: if not, they are in
/// place all the same, and the write is to be refused.
///
/// # Safety
/// `to` must be valid for writes until this returns, and be memory that its owner lets others write to at any time.
pub unsafe fn recv_range(
    receiver: &mut FrameReceiver,
    to: Region,
    write: &WriteRange,
    until: Deadline,
) -> Result<bool, ConnError> {
    let checksum = BlockChecksum::of_range(write.name, write.offset, to.len as u64);
    // SAFETY: passed on from the caller.
    let sums = unsafe { recv_write(receiver, to, &checksum, 0, until)? };
    Ok(sums == write.checksums)
}
