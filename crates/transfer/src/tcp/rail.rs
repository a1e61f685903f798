//! A stream's thread: connects, sends what it takes from the board, lands what comes back, and starts over when the
//! stream fails.

use super::Shared;
use super::stream_state::{Landing, LandingItem, WriteSlice};
use crate::conn::{ConnError, FrameReceiver, FrameSender};
use crate::ops::Region;
use crate::regions::Cursor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::{CHUNK_LEN, Deadline};
use tidepool_wire::checksum::{BlockChecksum, RunningRange};
use tidepool_wire::message::{Reply, Request, Write};

/// Bytes received and then verified at a time: small enough to be in cache for the second step.
const STEP: u64 = 256 << 10;
/// The first and the longest pause between attempts to reconnect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// One stream of a transport, on its own thread.
pub(super) struct Rail {
    pub(super) shared: Arc<Shared>,
    pub(super) stream: usize,
    /// Takes bytes that nobody wants any more.
    pub(super) scratch: Vec<u8>,
}

impl Rail {
    /// Runs until the transport is dropped or the peer is given up.
    pub(super) fn run(mut self, first: Option<FrameReceiver>) {
        let mut attached = first;
        let mut backoff = BACKOFF.0;
        let mut probation = false;
        while !self.shared.is_over() {
            let receiver = match attached.take() {
                Some(receiver) => Ok(receiver),
                None => self.shared.connect(self.stream, probation),
            };
            match receiver {
                Ok(receiver) => {
                    self.serve(receiver);
                    (probation, backoff) = (true, BACKOFF.0);
                }
                Err(error) => {
                    tracing::debug!(stream = self.stream, %error, "cannot connect");
                    self.shared.unreachable(&error);
                    self.sleep(backoff);
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Uses a connection until it fails, then takes its work off it.
    fn serve(&mut self, mut receiver: FrameReceiver) {
        let error = loop {
            if self.shared.is_over() {
                break ConnError::Closed;
            }
            let step = self.send_waiting().and_then(|()| self.wait_and_receive(&mut receiver));
            if let Err(error) = step {
                break error;
            }
        };
        tracing::debug!(stream = self.stream, %error, "stream down");
        self.shared.detach(self.stream, receiver.socket());
    }

    /// Sends what the window allows.
    fn send_waiting(&self) -> Result<(), ConnError> {
        let mut sender = self.shared.senders[self.stream].lock();
        let Some(sender) = sender.as_mut() else { return Err(ConnError::Closed) };
        loop {
            if self.shared.send_reads(self.stream, sender)? {
                continue;
            }
            let Some(write) = self.shared.board.lock().take_write(self.stream) else { return Ok(()) };
            let sums = send_write(sender, &write)?;
            self.shared.settle(|board| board.write_sent(self.stream, &write, &sums));
        }
    }

    /// Waits for an answer and lands it; returns early when there is new work for an idle stream.
    fn wait_and_receive(&mut self, receiver: &mut FrameReceiver) -> Result<(), ConnError> {
        if !receiver.has_buffered() && !self.wait_for_answer(receiver)? {
            return Ok(());
        }
        let incoming = receiver.reply(Deadline::after(self.shared.config.stall))?;
        let number = incoming.number;
        let understood = match incoming.message? {
            Reply::Blocks(blocks) => {
                let begun = self.shared.settle(|board| board.begin_landing(self.stream, number, blocks));
                let Ok(mut landing) = begun else {
                    return Err(ConnError::Unexpected("blocks that were not asked for"));
                };
                self.land(receiver, &mut landing)?;
                Ok(())
            }
            Reply::Written => self.shared.settle(|board| board.written(self.stream, number)),
            Reply::Refused(refusal) => {
                tracing::debug!(stream = self.stream, reason = ?refusal.reason, "refused: {}", refusal.message);
                self.shared.settle(|board| board.refused(self.stream, number))
            }
            _ => return Err(ConnError::Unexpected("neither blocks nor an acknowledgement")),
        };
        understood.map_err(|_| ConnError::Unexpected("an answer to nothing that was asked"))
    }

    /// `true` when an answer is due; `false` when the stream has nothing under way and was woken for new work.
    fn wait_for_answer(&self, receiver: &FrameReceiver) -> Result<bool, ConnError> {
        {
            let mut board = self.shared.board.lock();
            if board.streams[self.stream].has_requests() {
                return Ok(true);
            }
            if !board.writes.is_empty() || !board.reads.is_empty() {
                // Came in after this thread looked for work.
                return Ok(false);
            }
            board.streams[self.stream].idle = true;
        }
        let wake = &self.shared.wakes[self.stream];
        let mut ready = [PollFd::new(receiver.socket(), PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        // Reads are sent by whoever submits them, so an answer may be due to a stream that thinks it idles.
        let polled = poll(&mut ready, Some(&timespec(self.shared.config.stall)));
        let readable = !ready[0].revents().is_empty();
        self.shared.board.lock().streams[self.stream].idle = false;
        match polled {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => {
                self.shared.clear_wake(self.stream);
                Ok(readable)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn sleep(&self, pause: Duration) {
        // Woken early or not, the caller looks again at what there is to do.
        let _ = poll(&mut [PollFd::new(&self.shared.wakes[self.stream], PollFlags::IN)], Some(&timespec(pause)));
        self.shared.clear_wake(self.stream);
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
        let bad: Vec<_> = landing.items.iter().filter(|item| item.corrupt).map(|item| (item.id, item.copy)).collect();
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
            let until = Deadline::after(self.shared.config.stall);
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
            receiver.payload_exact(&mut self.scratch[..step as usize], Deadline::after(self.shared.config.stall))?;
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
            let running = BlockChecksum::new(item.id, item.block_len).start_range(item.offset, item.len);
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

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().min(1 << 30) as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// Sends a write's bytes chunk by chunk, each summed just before it goes out.
fn send_write(sender: &mut FrameSender, write: &WriteSlice) -> Result<Vec<u32>, ConnError> {
    let request = Request::Write(Write { slot: write.slot, offset: write.start });
    sender.request_head(write.number, &request, write.len, write.until)?;
    let mut cursor = Cursor::new(&write.regions);
    let (mut left, mut sums) = (write.len, Vec::new());
    while left > 0 {
        let len = left.min(CHUNK_LEN);
        let mut pieces = Vec::new();
        cursor.pieces(len, usize::MAX, &mut pieces);
        cursor.skip(len);
        let mut running = write.checksum.start_chunk(write.start / CHUNK_LEN + sums.len() as u64);
        pieces.iter().for_each(|piece| running.update(bytes_of(piece)));
        sums.push(running.finish());
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(bytes_of(piece))).collect();
        sender.payload(&mut slices, write.until)?;
        left -= len;
    }
    Ok(sums)
}

fn bytes_of(region: &Region) -> &[u8] {
    // SAFETY: called only for memory of operations that count this thread as a user; the caller of `submit` promised that
    // it stays valid, and a destination unshared, until the operation completes.
    unsafe { std::slice::from_raw_parts(region.start, region.len) }
}
