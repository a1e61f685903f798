//! The two directions of a connection: frames out, frames in. Each half may live on a thread of its own.

use super::{ConnError, Socket};
use crate::regions::Cursor;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::Deadline;
use tidepool_wire::frame::{self, FrameError, HEADER_LEN, Header};
use tidepool_wire::message::{Reply, Request};

/// Bytes read ahead of a frame's header: most small frames then take one system call, and at most this much of a payload
/// is copied twice.
const READ_AHEAD: usize = 4096;
/// A body is read in steps of this many bytes, so that memory follows what has arrived, not what was announced.
const BODY_STEP: usize = 256 << 10;
/// A buffer that one large frame has grown beyond this is given back.
const KEPT_BUFFER: usize = 1 << 20;
/// How long a one-way frame that went out in part may take to finish.
const FINISH_ONE_WAY: Duration = Duration::from_millis(100);
/// The most pieces of scattered memory handed to one receive.
const PIECES: usize = 256;

/// Sends frames.
#[derive(Debug)]
pub struct FrameSender {
    socket: Arc<Socket>,
    buffer: Vec<u8>,
}

impl FrameSender {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, buffer: Vec::new() }
    }

    /// The socket, to close it from elsewhere.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Sends a request and its payload.
    pub fn request(
        &mut self,
        number: u64,
        request: &Request,
        payload: &[IoSlice<'_>],
        until: Deadline,
    ) -> Result<(), ConnError> {
        let payload_len = payload.iter().map(|piece| piece.len() as u64).sum();
        self.start();
        frame::encode_request(number, request, payload_len, &mut self.buffer)?;
        self.finish(payload, &[], until)
    }

    /// Sends the header of a request whose `payload_len` bytes the caller sends next through [`FrameSender::payload`].
    pub fn request_head(
        &mut self,
        number: u64,
        request: &Request,
        payload_len: u64,
        until: Deadline,
    ) -> Result<(), ConnError> {
        self.start();
        frame::encode_request(number, request, payload_len, &mut self.buffer)?;
        self.finish(&[], &[], until)
    }

    /// Sends a piece of the payload that [`FrameSender::request_head`] announced.
    pub fn payload(&mut self, pieces: &mut [IoSlice<'_>], until: Deadline) -> Result<(), ConnError> {
        self.socket.send_all(pieces, &[], until).inspect_err(|_| self.socket.close())
    }

    /// Sends a reply, its payload and descriptors.
    pub fn reply(
        &mut self,
        number: u64,
        reply: &Reply,
        payload: &[IoSlice<'_>],
        fds: &[BorrowedFd<'_>],
        until: Deadline,
    ) -> Result<(), ConnError> {
        self.start();
        frame::encode_reply(number, reply, &mut self.buffer)?;
        self.finish(payload, fds, until)
    }

    /// Sends a request that has no answer, if it can go out at once: `false` means that the socket is full and the
    /// request was dropped.
    pub fn one_way(&mut self, number: u64, request: &Request) -> Result<bool, ConnError> {
        self.start();
        frame::encode_request(number, request, 0, &mut self.buffer)?;
        match self.socket.send_now(&self.buffer).inspect_err(|_| self.socket.close())? {
            0 => Ok(false),
            sent => {
                let rest = &mut [IoSlice::new(&self.buffer[sent..])];
                let finished = self.socket.send_all(rest, &[], Deadline::after(FINISH_ONE_WAY));
                finished.map(|()| true).inspect_err(|_| self.socket.close())
            }
        }
    }

    fn start(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
    }

    fn finish(&mut self, payload: &[IoSlice<'_>], fds: &[BorrowedFd<'_>], until: Deadline) -> Result<(), ConnError> {
        let mut pieces = Vec::with_capacity(1 + payload.len());
        pieces.push(IoSlice::new(&self.buffer));
        pieces.extend_from_slice(payload);
        self.socket.send_all(&mut pieces, fds, until).inspect_err(|_| self.socket.close())
    }
}

/// A frame whose payload, if any, is still in the socket.
#[derive(Debug)]
pub struct Incoming<M> {
    /// The request's number.
    pub number: u64,
    /// The message, or why its body makes none. (What leaves the stream out of step is an error of the receive instead.)
    pub message: Result<M, FrameError>,
    /// Bytes of payload that follow.
    pub payload_len: u64,
}

/// Receives frames.
#[derive(Debug)]
pub struct FrameReceiver {
    socket: Arc<Socket>,
    /// Bytes received and not used yet are `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    /// Bytes of the current frame's payload not taken yet.
    payload_left: u64,
    /// Set when the peer has sent what is no frame: nothing more is received, but it can still be told.
    broken: bool,
    /// How long a frame may take from its first byte to the end of its body; without it, as long as the wait for it.
    frame_budget: Option<Duration>,
}

impl FrameReceiver {
    pub(super) fn new(socket: Arc<Socket>) -> Self {
        Self { socket, buffer: Vec::new(), start: 0, payload_left: 0, broken: false, frame_budget: None }
    }

    /// From now on a frame that has started must arrive within `budget`, however long the wait for it may be. For sides
    /// that wait for a peer's next frame without a deadline of their own.
    pub fn set_frame_budget(&mut self, budget: Duration) {
        self.frame_budget = Some(budget);
    }

    /// The socket, to close it from elsewhere.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Whether bytes of a further frame have been received already.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        self.buffer.len() > self.start
    }

    /// Waits for a request to start until `idle` and receives it; a started frame has the frame budget to arrive.
    pub fn request(&mut self, idle: Deadline) -> Result<Incoming<Request>, ConnError> {
        let (header, until) = self.head(idle, None)?;
        self.body(&header, until, frame::decode_request)
    }

    /// As [`FrameReceiver::request`], for replies.
    pub fn reply(&mut self, idle: Deadline) -> Result<Incoming<Reply>, ConnError> {
        let (header, until) = self.head(idle, None)?;
        self.body(&header, until, frame::decode_reply)
    }

    /// Receives a reply that may carry descriptors.
    pub(super) fn reply_with_fds(
        &mut self,
        idle: Deadline,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Incoming<Reply>, ConnError> {
        let (header, until) = self.head(idle, Some(fds))?;
        self.body(&header, until, frame::decode_reply)
    }

    /// Receives a header. A time-out before its first byte leaves the connection as it was; after any other error nothing
    /// more is received.
    fn head(&mut self, idle: Deadline, mut fds: Option<&mut Vec<OwnedFd>>) -> Result<(Header, Deadline), ConnError> {
        self.check_usable()?;
        self.discard_payload(self.frame_until(idle))?;
        self.compact();
        if !self.has_buffered() {
            match self.fill(READ_AHEAD, fds.as_deref_mut(), idle) {
                Err(ConnError::TimedOut) => return Err(ConnError::TimedOut),
                other => self.closing(other)?,
            }
        }
        let until = self.frame_until(idle);
        while self.buffer.len() - self.start < HEADER_LEN {
            let filled = self.fill(READ_AHEAD, fds.as_deref_mut(), until);
            self.closing(filled)?;
        }
        let (bytes, _) = self.buffer[self.start..].split_first_chunk().expect("a whole header is buffered");
        let header = Header::parse(bytes).inspect_err(|_| self.broken = true)?;
        self.start += HEADER_LEN;
        Ok((header, until))
    }

    fn frame_until(&self, idle: Deadline) -> Deadline {
        self.frame_budget.map_or(idle, Deadline::after)
    }

    fn body<M>(
        &mut self,
        header: &Header,
        until: Deadline,
        decode: impl Fn(&Header, &[u8]) -> Result<M, FrameError>,
    ) -> Result<Incoming<M>, ConnError> {
        let len = header.body_len as usize;
        while self.buffer.len() - self.start < len {
            let missing = len - (self.buffer.len() - self.start);
            let filled = self.fill(missing.min(BODY_STEP), None, until);
            self.closing(filled)?;
        }
        let message = decode(header, &self.buffer[self.start..self.start + len]);
        self.start += len;
        self.payload_left = header.payload_len;
        match message {
            Err(error) if error.ends_connection() => {
                self.broken = true;
                Err(error.into())
            }
            message => Ok(Incoming { number: header.number, message, payload_len: header.payload_len }),
        }
    }

    /// Receives at least one and at most `len` bytes of the payload to where `to` points, and advances it.
    ///
    /// # Safety
    /// `to` must be over memory that is valid for writes and unshared while this runs.
    pub unsafe fn payload(&mut self, to: &mut Cursor<'_>, len: u64, until: Deadline) -> Result<u64, ConnError> {
        let len = len.min(self.payload_left);
        if len == 0 {
            return Ok(0);
        }
        if self.has_buffered() {
            self.check_usable()?;
            let piece = to.take((self.buffer.len() - self.start).min(len as usize));
            // SAFETY: the caller lends the piece for writing; the buffer has as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(self.buffer.as_ptr().add(self.start), piece.start, piece.len) };
            self.start += piece.len;
            self.payload_left -= piece.len as u64;
            return Ok(piece.len as u64);
        }
        let mut regions = Vec::with_capacity(8);
        to.pieces(len, PIECES, &mut regions);
        // SAFETY: the caller lends the regions for writing and nobody else uses them meanwhile.
        let slice = |region: &crate::ops::Region| unsafe { std::slice::from_raw_parts_mut(region.start, region.len) };
        let mut pieces: Vec<_> = regions.iter().map(|region| IoSliceMut::new(slice(region))).collect();
        let received = self.socket.recv(&mut pieces, None, until);
        let received = self.closing(received)? as u64;
        to.skip(received);
        self.payload_left -= received;
        Ok(received)
    }

    /// Receives exactly `bytes.len()` bytes of the payload.
    pub fn payload_exact(&mut self, bytes: &mut [u8], until: Deadline) -> Result<(), ConnError> {
        let regions = [crate::ops::Region::of_mut(bytes)];
        let (mut cursor, mut left) = (Cursor::new(&regions), bytes.len() as u64);
        while left > 0 {
            // SAFETY: `bytes` is borrowed mutably for this call.
            match unsafe { self.payload(&mut cursor, left, until) }? {
                0 => return Err(ConnError::Unexpected("a payload shorter than asked for")),
                received => left -= received,
            }
        }
        Ok(())
    }

    /// Reads what is left of the current frame's payload and throws it away.
    pub fn discard_payload(&mut self, until: Deadline) -> Result<(), ConnError> {
        if self.payload_left == 0 {
            return Ok(());
        }
        let mut scratch = vec![0; (self.payload_left as usize).min(BODY_STEP)];
        while self.payload_left > 0 {
            let len = (self.payload_left as usize).min(scratch.len());
            self.payload_exact(&mut scratch[..len], until)?;
        }
        Ok(())
    }

    /// Appends at least one and at most `len` received bytes to the buffer.
    fn fill(&mut self, len: usize, fds: Option<&mut Vec<OwnedFd>>, until: Deadline) -> Result<(), ConnError> {
        let end = self.buffer.len();
        self.buffer.resize(end + len, 0);
        let received = self.socket.recv(&mut [IoSliceMut::new(&mut self.buffer[end..])], fds, until);
        self.buffer.truncate(end + received.as_ref().map_or(0, |bytes| *bytes));
        received.map(|_| ())
    }

    /// Moves unused bytes to the front: between frames there are at most a few kilobytes of them.
    fn compact(&mut self) {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.capacity() > KEPT_BUFFER {
            self.buffer.shrink_to(READ_AHEAD);
        }
    }

    fn check_usable(&self) -> Result<(), ConnError> {
        if self.broken { Err(ConnError::Closed) } else { self.socket.check_open() }
    }

    /// Closes the connection on any error: the stream may be out of step.
    fn closing<T>(&self, result: Result<T, ConnError>) -> Result<T, ConnError> {
        result.inspect_err(|_| self.socket.close())
    }
}
