//! Frames on the batch's own connection: the node receives their bytes into place. A few bytes travel with their seal.

use crate::peers::Way;
use crate::put::reserved::Reserved;
use crate::put::store::{Writer, node_wait};
use std::io::IoSlice;
use tidepool_transfer::conn::ConnError;
use tidepool_wire::message::{Reply, Request, Seal, SealItem, Write};

/// Bytes that go to another host in one frame with their seal.
const FILL_BYTES: u64 = 256 << 10;
/// Bytes of one Write frame.
const WRITE_BYTES: u64 = 1 << 20;
/// Bytes and frames that may be on their way before a reply is read: few enough that neither end waits for the other.
const AHEAD_BYTES: u64 = 256 << 10;
const AHEAD_FRAMES: usize = 128;

impl Writer<'_> {
    /// Few bytes for another host travel with their seal, in one frame; streams of their own would take a round trip more.
    pub(in crate::put) fn fits_a_fill(&self, reserved: &[Reserved<'_, '_>], mapped: bool) -> bool {
        let bytes = reserved.iter().map(|reserved| reserved.job.len).sum::<u64>();
        !mapped && matches!(self.peer.way, Way::Network(_)) && bytes <= FILL_BYTES
    }

    /// Sends the blocks and their seals in one frame.
    pub(in crate::put) fn fill(&mut self, reserved: Vec<Reserved<'_, '_>>) -> Result<(), ConnError> {
        let item = |reserved: &Reserved<'_, '_>| Some(SealItem { slot: reserved.slot, checksums: reserved.sum()? });
        let Some(items) = reserved.iter().map(item).collect() else { return Err(self.exchange.confused()) };
        let request = Request::Fill(Seal { wait_millis: node_wait(self.deadline), items });
        let payload: Vec<IoSlice<'_>> =
            reserved.iter().flat_map(|reserved| reserved.job.item.data.slices(0, reserved.job.len)).collect();
        let asked = self.exchange.ask(&request, &payload)?;
        let Reply::Sealed(outcomes) = self.exchange.answer(asked)? else { return Err(self.exchange.confused()) };
        self.note_sealed(reserved, outcomes, false);
        Ok(())
    }

    /// Sends the bytes through this connection; the node puts them into place itself.
    pub(in crate::put) fn write_frames(&mut self, reserved: &mut [Reserved<'_, '_>]) -> Result<(), ConnError> {
        let mut ahead = 0;
        for reserved in reserved {
            let (data, len) = (&reserved.job.item.data, reserved.job.len);
            for offset in (0..len).step_by(WRITE_BYTES as usize) {
                let bytes = WRITE_BYTES.min(len - offset);
                ahead += bytes;
                if ahead > AHEAD_BYTES || self.exchange.behind() == AHEAD_FRAMES {
                    self.exchange.await_written()?;
                    ahead = bytes;
                }
                let request = Request::Write(Write { slot: reserved.slot, offset });
                let piece = data.slices(offset, bytes);
                self.exchange.write(&request, &piece)?;
            }
            reserved.checksums = reserved.sum();
        }
        Ok(())
    }
}
