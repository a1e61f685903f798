//! Receives one answer: a thread of the stream does it, or the caller who waits for it.

use super::Shared;
use super::answer::{Landing, LandingItem};
use crate::conn::{ConnError, FrameReceiver};
use crate::ops::Region;
use crate::regions::Cursor;
use std::time::Duration;
use tidepool_types::Deadline;
use tidepool_wire::checksum::RunningRange;
use tidepool_wire::message::Reply;

/// Bytes received and then verified at a time: small enough to be in cache for the second step.
const STEP: u64 = 256 << 10;

/// Whoever receives a stream's answers.
pub(super) struct Lander<'a> {
    pub(super) shared: &'a Shared,
    pub(super) stream: usize,
    /// How long the peer may keep silent inside an answer.
    pub(super) patience: Duration,
    /// When an answer must have arrived whole, if it must.
    pub(super) end: Option<Deadline>,
    /// Takes bytes that nobody wants any more.
    pub(super) scratch: Vec<u8>,
}

impl Lander<'_> {
    /// Receives an answer, its bytes straight to where they belong, and enters it on the board. After an error the stream
    /// is of no more use.
    pub(super) fn receive(&mut self, receiver: &mut FrameReceiver) -> Result<(), ConnError> {
        let (shared, stream) = (self.shared, self.stream);
        let incoming = receiver.reply(self.limit())?;
        let number = incoming.number;
        let understood = match incoming.message? {
            Reply::Blocks(blocks) => {
                let begun = shared.settle(|board| board.begin_landing(stream, number, blocks));
                let Ok(mut landing) = begun else {
                    return Err(ConnError::Unexpected("blocks that were not asked for"));
                };
                self.land(receiver, &mut landing)?;
                Ok(())
            }
            Reply::RangeBytes(bytes) => {
                let begun = shared.settle(|board| board.begin_range_landing(stream, number, bytes));
                let Ok(mut landing) = begun else {
                    return Err(ConnError::Unexpected("ranges that were not asked for"));
                };
                self.land(receiver, &mut landing)?;
                Ok(())
            }
            Reply::Written => shared.settle(|board| board.written(stream, number)),
            Reply::Refused(refusal) => {
                tracing::debug!(stream, reason = ?refusal.reason, "refused: {}", refusal.message);
                shared.settle(|board| board.refused(stream, number))
            }
            _ => return Err(ConnError::Unexpected("neither blocks nor an acknowledgement")),
        };
        understood.map_err(|_| ConnError::Unexpected("an answer to nothing that was asked"))
    }

    /// When the peer has kept silent for too long, from now on.
    fn limit(&self) -> Deadline {
        let limit = Deadline::after(self.patience);
        self.end.map_or(limit, |end| end.min(limit))
    }

    /// Receives an answer's payload to where it belongs, verifying as it comes.
    fn land(&mut self, receiver: &mut FrameReceiver, landing: &mut Landing) -> Result<(), ConnError> {
        let regions = std::mem::take(&mut landing.regions);
        let mut place = Cursor::new(&regions);
        for run in landing.items.chunk_by_mut(|one, next| one.wanted == next.wanted) {
            let len = run.iter().map(|item| item.len).sum();
            if run[0].wanted {
                self.land_run(receiver, &mut place, run, len)?;
            } else {
                self.skip(receiver, len)?;
            }
        }
        self.shared.settle(|board| board.landed(self.stream, landing));
        let bad: Vec<_> = landing.items.iter().filter_map(LandingItem::corrupt_copy).collect();
        if !bad.is_empty() {
            self.shared.report_corrupt(self.stream, bad);
        }
        Ok(())
    }

    /// Lands consecutive items in as few receives as possible.
    fn land_run(
        &self,
        receiver: &mut FrameReceiver,
        place: &mut Cursor<'_>,
        run: &mut [LandingItem],
        mut left: u64,
    ) -> Result<(), ConnError> {
        let mut verifier = Verifier::new(run);
        while left > 0 {
            let fresh = place.clone();
            let until = self.limit();
            // SAFETY: the regions are of operations that count this thread as a user (`Board::place`), so their memory is
            // valid and the transport's own until `landed` or `stream_down`.
            let received = unsafe { receiver.payload(place, left.min(STEP), until)? };
            if received == 0 {
                return Err(ConnError::Unexpected("a payload shorter than its hits"));
            }
            verifier.verify(fresh, received);
            left -= received;
        }
        Ok(())
    }

    fn skip(&mut self, receiver: &mut FrameReceiver, mut len: u64) -> Result<(), ConnError> {
        self.scratch.resize(STEP as usize, 0);
        while len > 0 {
            let step = len.min(STEP);
            let until = self.limit();
            receiver.payload_exact(&mut self.scratch[..step as usize], until)?;
            len -= step;
        }
        Ok(())
    }
}

/// Verifies items one after the other, in whatever pieces their bytes arrive.
struct Verifier<'a> {
    items: std::slice::IterMut<'a, LandingItem>,
    current: Option<(&'a mut LandingItem, RunningRange)>,
    /// Bytes that the current item still lacks.
    lacks: u64,
}

impl<'a> Verifier<'a> {
    fn new(items: &'a mut [LandingItem]) -> Self {
        let mut verifier = Self { items: items.iter_mut(), current: None, lacks: 0 };
        verifier.next();
        verifier
    }

    /// Ends the current item and starts the next.
    fn next(&mut self) {
        if let Some((item, running)) = self.current.take() {
            item.corrupt = running.finish().as_ref() != Some(&item.checksums);
        }
        self.current = self.items.next().map(|item| {
            self.lacks = item.len;
            let running = item.sums();
            (item, running)
        });
    }

    /// Takes in `len` bytes that have just arrived at `place`.
    fn verify(&mut self, mut place: Cursor<'_>, mut len: u64) {
        while len > 0
            && let Some((_, running)) = &mut self.current
        {
            let piece = place.take(len.min(self.lacks) as usize);
            running.update(bytes_of(&piece));
            len -= piece.len as u64;
            self.lacks -= piece.len as u64;
            if self.lacks == 0 {
                self.next();
            }
        }
    }
}

pub(super) fn bytes_of(region: &Region) -> &[u8] {
    // SAFETY: called only for memory of operations that count this thread as a user; the caller of `submit` promised that
    // it stays valid, and a destination unshared, until the operation completes.
    unsafe { std::slice::from_raw_parts(region.start, region.len) }
}
