//! A framed connection over a Unix or TCP socket, for both sides of the data plane.
//!
//! Blocking, with a deadline on every wait. A connection that failed inside a frame is closed and every later use of it
//! fails: bytes of one frame are never taken for another. Lengths come from the peer and are checked before memory is
//! taken for them; a buffer grows with what has arrived, not with what was announced. Buffers are reused from frame to
//! frame; payloads never pass through them (but for the few kilobytes that come along with a header).
//!
//! A client dials a node ([`dial`]) and calls; a node accepts
//! ([`Connection::accept`]), welcomes and then receives requests and sends replies. [`Connection::into_halves`] gives the
//! two directions to different threads.

mod connect;
pub mod dial;
mod halves;
mod resolve;
mod socket;

pub use connect::{TcpOptions, do_not_pace_on_one_host};
pub use halves::{FrameReceiver, FrameSender, Incoming};
pub use resolve::resolve;
pub use socket::{MAX_FDS, Socket};

use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tidepool_types::{Deadline, Epoch};
use tidepool_wire::frame::FrameError;
use tidepool_wire::message::{Hello, Reason, Refusal, Reply, Request, Welcome};

/// Why a connection could not do what it was asked.
#[derive(Debug, Error)]
pub enum ConnError {
    /// The deadline passed. Between frames the connection is still good; inside one it has been closed.
    #[error("the deadline passed")]
    TimedOut,
    /// One of the sides closed the connection.
    #[error("the connection is closed")]
    Closed,
    /// The socket failed.
    #[error("socket error: {0}")]
    Io(#[from] std::io::Error),
    /// The peer's bytes are not a frame, or a message does not fit one.
    #[error("protocol error: {0}")]
    Frame(#[from] FrameError),
    /// The peer would not serve the request; the connection is still good.
    #[error("refused by the node: {}", .0.message)]
    Refused(Refusal),
    /// Another incarnation of the node answers than the one that was expected: what it held is gone.
    #[error("the node at this address is of another epoch: {}", .0.0)]
    WrongEpoch(Epoch),
    /// The peer's message is well formed and makes no sense here.
    #[error("unexpected answer: {0}")]
    Unexpected(&'static str),
}

impl From<rustix::io::Errno> for ConnError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// One connection: a sender, a receiver and the numbers of its requests.
#[derive(Debug)]
pub struct Connection {
    sender: FrameSender,
    receiver: FrameReceiver,
    last_number: u64,
}

impl Connection {
    /// Takes over a connected stream socket.
    pub fn from_socket(fd: OwnedFd) -> Result<Self, ConnError> {
        let socket = Arc::new(Socket::new(fd)?);
        Ok(Self { sender: FrameSender::new(Arc::clone(&socket)), receiver: FrameReceiver::new(socket), last_number: 0 })
    }

    /// The socket, to close the connection from another thread.
    #[must_use]
    pub fn socket(&self) -> &Arc<Socket> {
        self.sender.socket()
    }

    /// Gives the two directions away.
    #[must_use]
    pub fn into_halves(self) -> (FrameSender, FrameReceiver) {
        (self.sender, self.receiver)
    }

    /// Sends a request and waits for its reply. [`Reply::Refused`] comes back as an error.
    pub fn call(&mut self, request: &Request, payload: &[IoSlice<'_>], until: Deadline) -> Result<Reply, ConnError> {
        let number = self.send(request, payload, until)?;
        let received = self.recv(until).and_then(|(answered, reply)| match answered {
            answered if answered == number => Ok(reply),
            _ => Err(ConnError::Unexpected("a reply to another request")),
        });
        // Without its reply the request would answer the next one.
        match received.inspect_err(|_| self.socket().close())? {
            Reply::Refused(refusal) => Err(ConnError::Refused(refusal)),
            reply => Ok(reply),
        }
    }

    /// Sends a request and returns its number: with [`Connection::recv`], several may be under way.
    pub fn send(&mut self, request: &Request, payload: &[IoSlice<'_>], until: Deadline) -> Result<u64, ConnError> {
        self.last_number += 1;
        self.sender.request(self.last_number, request, payload, until)?;
        Ok(self.last_number)
    }

    /// Receives the next reply and its request's number. Its payload, if any, is to be taken from [`Connection::receiver`].
    pub fn recv(&mut self, until: Deadline) -> Result<(u64, Reply), ConnError> {
        let incoming = self.receiver.reply(until)?;
        let reply = incoming.message.inspect_err(|_| self.sender.socket().close())?;
        Ok((incoming.number, reply))
    }

    /// Sends a request that has no answer if that needs no waiting; `false` says that it was dropped.
    pub fn send_one_way(&mut self, request: &Request) -> Result<bool, ConnError> {
        self.last_number += 1;
        self.sender.one_way(self.last_number, request)
    }

    /// The node's side of the handshake: receives the Hello, to be answered by [`Connection::welcome`]. Anything else is
    /// refused and closes the connection.
    pub fn accept(fd: OwnedFd, until: Deadline) -> Result<(Self, Hello), ConnError> {
        let mut connection = Self::from_socket(fd)?;
        let hello = connection.accept_hello(until)?;
        Ok((connection, hello))
    }

    /// As [`Connection::accept`], on a connection made from its socket before.
    pub fn accept_hello(&mut self, until: Deadline) -> Result<Hello, ConnError> {
        let Incoming { number, message, .. } = self.recv_request(until)?;
        if let Ok(Request::Hello(hello)) = message {
            self.last_number = number;
            return Ok(hello);
        }
        self.give_up(number, Reason::Malformed, "a connection starts with Hello".to_owned());
        Err(ConnError::Unexpected("a connection that does not start with Hello"))
    }

    /// Answers the Hello that [`Connection::accept`] received; `fds` travel with it.
    pub fn welcome(&mut self, welcome: Welcome, fds: &[BorrowedFd<'_>], until: Deadline) -> Result<(), ConnError> {
        let number = self.last_number;
        self.send_reply(number, &Reply::Welcome(welcome), &[], fds, until)
    }

    /// Waits for the next request until `idle`. Its payload, if any, is to be taken from [`Connection::receiver`] before the
    /// next call, which throws away what is left of it. A peer that sends what is no frame is told so and cut off.
    pub fn recv_request(&mut self, idle: Deadline) -> Result<Incoming<Request>, ConnError> {
        let received = self.receiver.request(idle);
        if let Err(ConnError::Frame(error)) = &received {
            self.give_up(0, error.reason(), error.to_string());
        }
        received
    }

    /// Tells a peer that does not speak the protocol, if that needs no waiting, and closes the connection.
    fn give_up(&mut self, number: u64, reason: Reason, message: String) {
        // The peer is wrong already; whether it hears of it changes nothing here.
        let _ = self.refuse(number, reason, message, Deadline::after(Duration::ZERO));
        self.socket().close();
    }

    /// Sends a reply, its payload and descriptors.
    pub fn send_reply(
        &mut self,
        number: u64,
        reply: &Reply,
        payload: &[IoSlice<'_>],
        fds: &[BorrowedFd<'_>],
        until: Deadline,
    ) -> Result<(), ConnError> {
        self.sender.reply(number, reply, payload, fds, until)
    }

    /// Refuses a request as a whole.
    pub fn refuse(&mut self, number: u64, reason: Reason, message: String, until: Deadline) -> Result<(), ConnError> {
        self.send_reply(number, &Reply::Refused(Refusal { reason, message }), &[], &[], until)
    }

    /// The receiving half, for payloads.
    pub fn receiver(&mut self) -> &mut FrameReceiver {
        &mut self.receiver
    }

    /// Bounds the time from a request's first byte to the end of its body: what a node sets on what it accepts.
    pub fn set_frame_budget(&mut self, budget: Duration) {
        self.receiver.set_frame_budget(budget);
    }
}
