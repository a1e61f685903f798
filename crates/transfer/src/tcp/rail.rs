//! A stream's thread: connects, sends what it takes from the board, lands what comes back, and starts over when the
//! stream fails. Answers that the caller receives itself are left alone.

use super::Shared;
use super::landing::{Lander, bytes_of};
use super::stream_state::{WriteSlice, WriteTo};
use crate::conn::{ConnError, FrameSender, Socket};
use crate::cores::keep_to_share;
use crate::regions::Cursor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::CHUNK_LEN;
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{RangeName, Request, SlotName, Write, WriteRange};

/// The first and the longest pause between attempts to reconnect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// One stream of a transport, on its own thread.
pub(super) struct Rail {
    pub(super) shared: Arc<Shared>,
    pub(super) stream: usize,
}

impl Rail {
    /// Runs until the transport is dropped or the peer is given up. The first connection may have been made already.
    pub(super) fn run(self) {
        keep_to_share(self.stream, self.shared.config.streams);
        let mut backoff = BACKOFF.0;
        let mut probation = false;
        while !self.shared.is_over() {
            let socket =
                self.shared.receivers[self.stream].lock().as_ref().map(|receiver| Arc::clone(receiver.socket()));
            if let Some(socket) = socket {
                self.serve(&socket);
                (probation, backoff) = (true, BACKOFF.0);
            } else if let Err(error) = self.shared.connect(self.stream, probation) {
                tracing::debug!(stream = self.stream, %error, "cannot connect");
                self.shared.unreachable(&error);
                self.sleep(backoff);
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }

    /// Uses a connection until it fails, then takes its work off it.
    fn serve(&self, socket: &Socket) {
        let patience = self.shared.config.stall;
        let (shared, stream) = (&*self.shared, self.stream);
        let mut lander = Lander { shared, stream, patience, end: None, scratch: Vec::new() };
        let error = loop {
            if shared.is_over() {
                break ConnError::Closed;
            }
            let step = self.send_waiting().and_then(|()| self.wait_and_receive(&mut lander, socket));
            if let Err(error) = step {
                break error;
            }
        };
        tracing::debug!(stream, %error, "stream down");
        shared.detach(stream, socket);
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

    /// Receives an answer that is due; returns early when there is new work for an idle stream.
    fn wait_and_receive(&self, lander: &mut Lander<'_>, socket: &Socket) -> Result<(), ConnError> {
        if !self.wait_for_answer(socket)? {
            return Ok(());
        }
        match self.shared.receivers[self.stream].lock().as_mut() {
            Some(receiver) => lander.receive(receiver),
            // The caller has found the stream to be broken.
            None => Err(ConnError::Closed),
        }
    }

    /// `true` when this thread has something to receive, or the connection has ended; `false` when it was woken to look for
    /// work.
    fn wait_for_answer(&self, socket: &Socket) -> Result<bool, ConnError> {
        let callers = {
            let mut board = self.shared.board.lock();
            let callers = board.left_to_caller == Some(self.stream);
            if board.streams[self.stream].has_requests() && !callers {
                return Ok(true);
            }
            if !board.writes.is_empty() || !board.reads.is_empty() {
                // Came in after this thread looked for work.
                return Ok(false);
            }
            board.streams[self.stream].idle = true;
            callers
        };
        let wake = &self.shared.wakes[self.stream];
        // Not for bytes: who sends a request has either woken this thread or receives the answer itself. Nor for the end of
        // a connection that the caller is using.
        let ended = if callers { PollFlags::empty() } else { PollFlags::RDHUP };
        let mut ready = [PollFd::new(wake, PollFlags::IN), PollFd::new(socket, ended)];
        let fds = if callers { &mut ready[..1] } else { &mut ready[..] };
        let polled = poll(fds, Some(&timespec(self.shared.config.stall)));
        let has_ended = !ready[1].revents().is_empty();
        self.shared.board.lock().streams[self.stream].idle = false;
        match polled {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => {
                self.shared.clear_wake(self.stream);
                Ok(has_ended)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn sleep(&self, pause: Duration) {
        // Woken early or not, the caller looks again at what there is to do.
        let _ = poll(&mut [PollFd::new(&self.shared.wakes[self.stream], PollFlags::IN)], Some(&timespec(pause)));
        self.shared.clear_wake(self.stream);
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().min(1 << 30) as i64, tv_nsec: duration.subsec_nanos().into() }
}

/// Sends a slice of a write. Returns the checksums of what went to a reservation.
fn send_write(sender: &mut FrameSender, write: &WriteSlice) -> Result<Vec<u32>, ConnError> {
    match write.to {
        WriteTo::Reservation { slot, checksum } => send_block(sender, write, slot, &checksum),
        WriteTo::Range { name, offset } => send_range(sender, write, name, offset).map(|()| Vec::new()),
    }
}

/// Sends the bytes of a range behind their checksums, by which the owner knows whether they came as they left.
fn send_range(sender: &mut FrameSender, write: &WriteSlice, name: RangeName, offset: u64) -> Result<(), ConnError> {
    let mut running = BlockChecksum::of_range(name, offset, write.len).start_range(0, write.len);
    write.regions.iter().for_each(|piece| running.update(bytes_of(piece)));
    let checksums = running.finish().ok_or(ConnError::Unexpected("a slice longer than its write"))?;
    let request = Request::WriteRange(WriteRange { name, offset, checksums });
    sender.request_head(write.number, &request, write.len, write.until)?;
    let mut slices: Vec<IoSlice<'_>> = write.regions.iter().map(|piece| IoSlice::new(bytes_of(piece))).collect();
    sender.payload(&mut slices, write.until)
}

/// Sends a block's bytes chunk by chunk, each summed just before it goes out.
fn send_block(
    sender: &mut FrameSender,
    write: &WriteSlice,
    slot: SlotName,
    checksum: &BlockChecksum,
) -> Result<Vec<u32>, ConnError> {
    let request = Request::Write(Write { slot, offset: write.start });
    sender.request_head(write.number, &request, write.len, write.until)?;
    let mut cursor = Cursor::new(&write.regions);
    let (mut left, mut sums) = (write.len, Vec::new());
    while left > 0 {
        let len = left.min(CHUNK_LEN);
        let mut pieces = Vec::new();
        cursor.pieces(len, usize::MAX, &mut pieces);
        cursor.skip(len);
        let mut running = checksum.start_chunk(write.start / CHUNK_LEN + sums.len() as u64);
        pieces.iter().for_each(|piece| running.update(bytes_of(piece)));
        sums.push(running.finish());
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(bytes_of(piece))).collect();
        sender.payload(&mut slices, write.until)?;
        left -= len;
    }
    Ok(sums)
}
