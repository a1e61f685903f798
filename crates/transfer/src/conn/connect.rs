//! Making connections: connect with a deadline, then Hello and Welcome.

use super::{ConnError, Connection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_nodelay, socket_error};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use tidepool_types::Deadline;
use tidepool_wire::message::{Hello, Refusal, Reply, Request, Welcome};

/// How TCP sockets are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// Bytes asked of the kernel for each direction's socket buffer; `None` leaves it to the kernel's own tuning.
    pub buffer_bytes: Option<usize>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { buffer_bytes: Some(4 << 20) }
    }
}

impl TcpOptions {
    /// Sets up a TCP socket; also for what a node accepts. (A listener's buffers are inherited by what it accepts.)
    pub fn apply(&self, socket: &impl rustix::fd::AsFd) -> Result<(), ConnError> {
        set_tcp_nodelay(socket, true)?;
        if let Some(bytes) = self.buffer_bytes {
            set_socket_recv_buffer_size(socket, bytes)?;
            set_socket_send_buffer_size(socket, bytes)?;
        }
        Ok(())
    }
}

/// The first address that `host:port` stands for.
pub fn resolve(address: &str) -> Result<SocketAddr, ConnError> {
    let unknown = || std::io::Error::new(std::io::ErrorKind::NotFound, format!("{address:?} has no address"));
    Ok(address.to_socket_addrs()?.next().ok_or_else(unknown)?)
}

impl Connection {
    /// Connects to a node on this host. The descriptors are what [`Welcome`] says they are.
    pub fn connect_unix(
        path: &Path,
        hello: Hello,
        until: Deadline,
    ) -> Result<(Self, Welcome, Vec<OwnedFd>), ConnError> {
        let socket = new_socket(AddressFamily::UNIX, None)?;
        let address = SocketAddrUnix::new(path)?;
        finish_connect(&socket, || connect(&socket, &address), until)?;
        Self::from_socket(socket)?.greet(hello, until)
    }

    /// Connects to a node anywhere.
    pub fn connect_tcp(
        address: SocketAddr,
        options: &TcpOptions,
        hello: Hello,
        until: Deadline,
    ) -> Result<(Self, Welcome), ConnError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = new_socket(family, Some(ipproto::TCP))?;
        // Before connecting: the window that the two sides agree on depends on the buffers.
        options.apply(&socket)?;
        finish_connect(&socket, || connect(&socket, &address), until)?;
        let (connection, welcome, _) = Self::from_socket(socket)?.greet(hello, until)?;
        Ok((connection, welcome))
    }

    fn greet(mut self, hello: Hello, until: Deadline) -> Result<(Self, Welcome, Vec<OwnedFd>), ConnError> {
        let mut fds = Vec::new();
        self.send(&Request::Hello(hello), &[], until)?;
        match self.receiver.reply_with_fds(until, &mut fds)?.message? {
            Reply::Welcome(welcome) => Ok((self, welcome, fds)),
            Reply::Refused(Refusal { reason, message }) => Err(ConnError::Refused(Refusal { reason, message })),
            _ => Err(ConnError::Unexpected("Hello was not answered by Welcome")),
        }
    }
}

fn new_socket(family: AddressFamily, protocol: Option<rustix::net::Protocol>) -> Result<OwnedFd, ConnError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, protocol)?)
}

/// Connects a non-blocking socket. A Unix socket whose backlog is full answers AGAIN and has nothing to poll for: it is
/// tried again until the deadline.
fn finish_connect(socket: &OwnedFd, connect: impl Fn() -> Result<(), Errno>, until: Deadline) -> Result<(), ConnError> {
    loop {
        match connect() {
            Ok(()) => return Ok(()),
            Err(Errno::INPROGRESS | Errno::INTR) => break,
            Err(Errno::AGAIN) if !until.has_passed() => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(Errno::AGAIN) => return Err(ConnError::TimedOut),
            Err(errno) => return Err(errno.into()),
        }
    }
    loop {
        let left = until.remaining();
        let timeout = Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Err(ConnError::TimedOut),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(socket_error(socket)??),
            Err(errno) => return Err(errno.into()),
        }
    }
}
