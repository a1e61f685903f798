//! Making connections: connect with a deadline, then Hello and Welcome.

use super::{ConnError, Connection, Socket};
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_congestion,
    set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay, set_tcp_user_timeout, socket_error,
};
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, getsockname, ipproto,
    socket_with,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidepool_types::Deadline;
use tidepool_wire::message::{Hello, Refusal, Reply, Request, Welcome};

/// How TCP sockets are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpOptions {
    /// Bytes asked of the kernel for each direction's socket buffer; `None` leaves it to the kernel's own tuning.
    pub buffer_bytes: Option<usize>,
    /// How long a peer may leave bytes, or the kernel's questions whether it is there, without an answer. A host that lost its
    /// power or its network closes nothing: without this what it held would stay held for ever. Whole seconds count.
    pub dead_after: Duration,
}

/// Questions that go unanswered before a silent peer is dead.
const PROBES: u32 = 3;

impl Default for TcpOptions {
    fn default() -> Self {
        Self { buffer_bytes: Some(4 << 20), dead_after: Duration::from_secs(30) }
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
        self.notice_death(socket)
    }

    /// Half of the time is for silence, the other half for questions; sent bytes have all of it.
    fn notice_death(&self, socket: &impl rustix::fd::AsFd) -> Result<(), ConnError> {
        let seconds = |time: Duration| Duration::from_secs(time.as_secs().max(1));
        set_tcp_keepidle(socket, seconds(self.dead_after / 2))?;
        set_tcp_keepintvl(socket, seconds(self.dead_after / 2 / PROBES))?;
        set_tcp_keepcnt(socket, PROBES)?;
        set_socket_keepalive(socket, true)?;
        let millis = u32::try_from(self.dead_after.as_millis()).unwrap_or(u32::MAX);
        Ok(set_tcp_user_timeout(socket, millis)?)
    }
}

impl Connection {
    /// Connects to a node on this host. The descriptors are what [`Welcome`] says they are.
    pub fn connect_unix(
        path: &Path,
        hello: Hello,
        until: Deadline,
    ) -> Result<(Self, Welcome, Vec<OwnedFd>), ConnError> {
        let connection = Self::from_socket(new_socket(AddressFamily::UNIX, None)?)?;
        let address = SocketAddrUnix::new(path)?;
        connect_within(connection.socket(), |socket| connect(socket, &address), until)?;
        connection.greet(hello, until)
    }

    /// Connects to a node anywhere.
    pub fn connect_tcp(
        address: SocketAddr,
        options: &TcpOptions,
        hello: Hello,
        until: Deadline,
    ) -> Result<(Self, Welcome), ConnError> {
        Self::connect_tcp_watched(address, options, hello, until, |_| {})
    }

    /// Connects to a node anywhere; whoever is `told` of the socket may close it to end the attempt.
    pub fn connect_tcp_watched(
        address: SocketAddr,
        options: &TcpOptions,
        hello: Hello,
        until: Deadline,
        told: impl FnOnce(&Arc<Socket>),
    ) -> Result<(Self, Welcome), ConnError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let connection = Self::from_socket(new_socket(family, Some(ipproto::TCP))?)?;
        told(connection.socket());
        // Before connecting: the window that the two sides agree on depends on the buffers.
        options.apply(&**connection.socket())?;
        connect_within(connection.socket(), |socket| connect(socket, &address), until)?;
        do_not_pace_on_one_host(&**connection.socket());
        let (connection, welcome, _) = connection.greet(hello, until)?;
        Ok((connection, welcome))
    }

    /// Sends a request whose answer comes with file descriptors. [`Reply::Refused`] comes back as an error.
    pub fn call_for_fds(&mut self, request: &Request, until: Deadline) -> Result<(Reply, Vec<OwnedFd>), ConnError> {
        let mut fds = Vec::new();
        self.send(request, &[], until)?;
        match self.receiver.reply_with_fds(until, &mut fds)?.message? {
            Reply::Refused(refusal) => Err(ConnError::Refused(refusal)),
            reply => Ok((reply, fds)),
        }
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

/// Lets a connected TCP socket whose other end is on this host send as fast as it is read from. Hosts that use BBR by
/// default pace even there, where no queue needs to be protected, and lose a quarter of the speed to timers.
pub fn do_not_pace_on_one_host(socket: &impl rustix::fd::AsFd) {
    let ip = |name: Result<SocketAddrAny, Errno>| SocketAddr::try_from(name.ok()?).ok().map(|address| address.ip());
    let (here, there) = (ip(getsockname(socket)), ip(getpeername(socket).and_then(|peer| peer.ok_or(Errno::NOTCONN))));
    if here.is_some() && here == there {
        // A kernel without it goes on with its default.
        let _ = set_tcp_congestion(socket, "cubic");
    }
}

fn new_socket(family: AddressFamily, protocol: Option<rustix::net::Protocol>) -> Result<OwnedFd, ConnError> {
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, protocol)?)
}

/// Connects a socket, waiting no longer than until the deadline or until somebody closes it.
fn connect_within(
    socket: &Socket,
    connect: impl Fn(&Socket) -> Result<(), Errno>,
    until: Deadline,
) -> Result<(), ConnError> {
    ioctl_fionbio(socket, true)?;
    // A Unix socket whose backlog is full answers AGAIN and has nothing to poll for: it is tried again.
    while !start(socket, &connect)? {
        if until.has_passed() {
            return Err(ConnError::TimedOut);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    socket.wait(PollFlags::OUT, until)?;
    socket.check_open()?;
    socket_error(socket)??;
    Ok(ioctl_fionbio(socket, false)?)
}

/// Starts to connect; false when there is no room for it at the moment.
fn start(socket: &Socket, connect: impl Fn(&Socket) -> Result<(), Errno>) -> Result<bool, ConnError> {
    socket.check_open()?;
    match connect(socket) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
