//! A stream socket whose every wait ends at a deadline.
//!
//! The socket stays in blocking mode with a short time-out of its own ([`TICK`]), so that a busy connection costs one
//! system call per piece; between pieces the deadline is checked, which a peer that trickles bytes cannot extend. Near
//! the deadline, and while a connection idles, the wait is a `poll` with the exact time left instead. So is every wait to
//! receive on a Unix socket: whoever sleeps in a receive there is woken when the peer reads what was sent to it, for nothing.

use super::ConnError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidepool_types::Deadline;

/// The longest a single system call blocks.
const TICK: Duration = Duration::from_millis(50);
/// The most pieces the kernel takes in one call.
const MAX_PIECES: usize = 1024;
/// The most descriptors that travel with one frame.
pub const MAX_FDS: usize = 8;

/// A connected stream socket, shared by the two halves of a connection.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Whether the peer is on this host, and waits are `poll`s.
    unix: bool,
    /// Set once and for all when the stream may be out of step; checked before every use.
    closed: AtomicBool,
}

impl Socket {
    /// Takes over a connected socket.
    pub(super) fn new(fd: OwnedFd) -> Result<Self, ConnError> {
        rustix::io::ioctl_fionbio(&fd, false)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(TICK))?;
        set_socket_timeout(&fd, Timeout::Send, Some(TICK))?;
        let unix = socket_domain(&fd)? == AddressFamily::UNIX;
        Ok(Self { fd, unix, closed: AtomicBool::new(false) })
    }

    /// Ends the connection for both sides, also under a thread that waits on it. May be called from any thread.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // It fails only where the peer has closed first.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }

    /// Whether this side has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether either side has closed the connection, as far as is known without waiting.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        // A signal that comes in between says nothing about the connection.
        let is_broken = |errno| errno != rustix::io::Errno::INTR;
        self.is_closed() || poll(&mut fds, Some(&now)).is_err_and(is_broken) || fds[0].revents().intersects(ended)
    }

    /// Whether the peer has ended a Unix connection without reading all that was sent to it. To be asked when a receive
    /// has ended with `end`. (A network's answer would be worth nothing: bytes may be on their way.)
    #[must_use]
    pub fn was_left_unread(&self, end: &ConnError) -> bool {
        // A peer that closes its socket with bytes in it resets the connection; one that has only ended it so far still
        // has them. It may close between the two questions, so the first is asked again.
        let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        match end {
            ConnError::Io(error) => reset(error),
            ConnError::Closed => {
                self.has_unread() || matches!(rustix::net::sockopt::socket_error(&self.fd), Ok(Err(Errno::CONNRESET)))
            }
            _ => false,
        }
    }

    /// Whether the peer of a Unix connection has yet to read some of what was sent to it.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.unread().is_ok_and(|bytes| bytes > 0)
    }

    /// Bytes sent that the peer has not read, with what the kernel needs to keep them.
    fn unread(&self) -> Result<i32, Errno> {
        // `SIOCOUTQ`, called `TIOCOUTQ` where it was invented.
        const OUTPUT_QUEUE: rustix::ioctl::Opcode = 0x5411;
        // SAFETY: the kernel stores one int.
        unsafe { rustix::ioctl::ioctl(&self.fd, rustix::ioctl::Getter::<OUTPUT_QUEUE, i32>::new()) }
    }

    /// An error once this side has closed the connection: what it received before must not be used either.
    pub(super) fn check_open(&self) -> Result<(), ConnError> {
        if self.is_closed() { Err(ConnError::Closed) } else { Ok(()) }
    }

    /// Whether one of `events`, or the end of the connection, is there already.
    pub(crate) fn is_ready(&self, events: PollFlags) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut [PollFd::new(&self.fd, events)], Some(&now)), Ok(0) | Err(Errno::INTR))
    }

    /// Waits for `events`, or for the end of the connection.
    pub(crate) fn wait(&self, events: PollFlags, until: Deadline) -> Result<(), ConnError> {
        loop {
            let left = until.remaining();
            let timeout = Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.fd, events)], Some(&timeout)) {
                Ok(0) if left.is_zero() => return Err(ConnError::TimedOut),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives at least one byte into `pieces`, and any descriptors that come along into `fds`.
    pub(super) fn recv(
        &self,
        pieces: &mut [IoSliceMut<'_>],
        mut fds: Option<&mut Vec<OwnedFd>>,
        until: Deadline,
    ) -> Result<usize, ConnError> {
        let count = pieces.len().min(MAX_PIECES);
        let pieces = &mut pieces[..count];
        let mut blocking = !self.unix;
        loop {
            self.check_open()?;
            let left = until.remaining();
            blocking &= left >= TICK;
            if !blocking {
                self.wait(PollFlags::IN, until)?;
            }
            let flags = if blocking { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match self.recv_once(pieces, fds.as_deref_mut(), flags) {
                Ok(0) => return Err(ConnError::Closed),
                Ok(bytes) => return Ok(bytes),
                // A whole tick of silence: from here on sleep until the deadline instead of waking at every tick.
                Err(Errno::AGAIN) => blocking = false,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn recv_once(
        &self,
        pieces: &mut [IoSliceMut<'_>],
        fds: Option<&mut Vec<OwnedFd>>,
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let Some(fds) = fds else {
            // Without room for descriptors the kernel drops those that a peer sends uninvited.
            return Ok(recvmsg(&self.fd, pieces, &mut RecvAncillaryBuffer::default(), flags)?.bytes);
        };
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.fd, pieces, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        Ok(received.bytes)
    }

    /// Sends all of `pieces`; `fds` travel with the first byte. After an error the stream may end inside a frame: the
    /// caller closes it.
    pub(super) fn send_all(
        &self,
        mut pieces: &mut [IoSlice<'_>],
        fds: &[BorrowedFd<'_>],
        until: Deadline,
    ) -> Result<(), ConnError> {
        let mut fds = fds;
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            self.check_open()?;
            let near = until.remaining() < TICK;
            if near {
                self.wait(PollFlags::OUT, until)?;
            }
            let flags = if near { SendFlags::DONTWAIT } else { SendFlags::empty() };
            match self.send_once(pieces, fds, flags) {
                Ok(sent) => {
                    IoSlice::advance_slices(&mut pieces, sent);
                    fds = &[];
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Sends what fits without waiting; zero when nothing does.
    pub(super) fn send_now(&self, bytes: &[u8]) -> Result<usize, ConnError> {
        self.check_open()?;
        match self.send_once(&[IoSlice::new(bytes)], &[], SendFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    fn send_once(&self, pieces: &[IoSlice<'_>], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        sendmsg(&self.fd, &pieces[..pieces.len().min(MAX_PIECES)], &mut control, flags | SendFlags::NOSIGNAL)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
