//! Listening: one thread per socket accepts, one thread per connection serves, and the number of both is bounded.

use crate::config::NodeConfig;
use crate::node::{Shared, StartError};
use crate::process::add;
use crate::serving::Serving;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidepool_transfer::conn::{Connection, TcpOptions, do_not_pace_on_one_host};
use tidepool_types::Deadline;
use tidepool_wire::message::Reason;

/// How often a listener looks whether the node is stopping.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Connections that wait to be accepted. One over TCP that finds no room is tried again by its own kernel, a second later.
const BACKLOG: i32 = 4096;
/// How long a refused client may take to hear of it.
const REFUSAL_BUDGET: Duration = Duration::from_millis(20);
/// Stack of a connection's thread: its buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// The sockets that a node listens on.
pub(crate) struct Listeners {
    pub(crate) unix: UnixListener,
    pub(crate) tcp: TcpListener,
    pub(crate) data_address: SocketAddr,
    pub(crate) socket: SocketFile,
}

/// The name of the Unix socket; dropping it removes it.
pub(crate) struct SocketFile(pub(crate) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listeners {
    pub(crate) fn open(config: &NodeConfig) -> Result<Self, StartError> {
        let socket_path = config.dir.join(format!("{}.sock", config.name));
        let address = socket_path.display().to_string();
        let at_path = |source| StartError::Listen { field: "dir", address, source };
        let at_address =
            |source| StartError::Listen { field: "data-listen", address: config.data_listen.clone(), source };
        // The one without a file first: if it fails, nothing is left behind.
        let tcp = listen_tcp(&config.data_listen).map_err(at_address)?;
        let data_address = tcp.local_addr()?;
        let unix = listen_unix(&socket_path).map_err(at_path)?;
        let socket = SocketFile(socket_path);
        let (dir, access) = (&config.dir, config.access);
        let closed = |source| StartError::Listen { field: "access", address: access.to_string(), source };
        access.open(&socket.0).map_err(closed)?;
        if !access.reaches_into(dir) {
            tracing::warn!(dir = %dir.display(), %access, "the mode of node.dir keeps out users that node.access lets in");
        }
        Ok(Self { unix, tcp, data_address, socket })
    }
}

fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    // The node's lock is held, so a socket of this name was left by a dead node. Anything else is somebody else's.
    if !tidepool_store::clear_socket(path)? {
        return Err(io::Error::other("is in the way, and is no socket: move it, or choose another name or directory"));
    }
    let listener = UnixListener::bind(path)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen_tcp(address: &str) -> io::Result<TcpListener> {
    let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves the Unix socket until the node stops.
pub(crate) fn accept_unix(shared: &Arc<Shared>, listener: &UnixListener) {
    accept(shared, listener, true, || Ok(listener.accept()?.0.into()));
}

/// Serves the TCP address until the node stops.
pub(crate) fn accept_tcp(shared: &Arc<Shared>, listener: &TcpListener) {
    accept(shared, listener, false, || {
        let (stream, _) = listener.accept()?;
        // They fail for a socket that is dead already: its thread finds out.
        let _ = TcpOptions::default().apply(&stream);
        do_not_pace_on_one_host(&stream);
        Ok(stream.into())
    });
}

fn accept(shared: &Arc<Shared>, listener: impl AsFd, local: bool, next: impl Fn() -> io::Result<OwnedFd>) {
    while !shared.stop.is_set() {
        let mut fds = [PollFd::new(&listener, PollFlags::IN)];
        if !matches!(rustix::event::poll(&mut fds, Some(&TICK)), Ok(1..)) {
            continue;
        }
        match next() {
            Ok(socket) => admit(shared, socket, local),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of descriptors, most likely: the connection waits in the queue until some are free.
                tracing::warn!(%error, "accepting a connection");
                shared.stop.wait(Duration::from_millis(50));
            }
        }
    }
}

/// Gives a connection a thread, or refuses it.
fn admit(shared: &Arc<Shared>, socket: OwnedFd, local: bool) {
    let Ok(connection) = Connection::from_socket(socket) else { return };
    let Some((seat, evicted)) = shared.seats.admit(Arc::clone(connection.socket())) else {
        return refuse(shared, connection);
    };
    if let Some(silent) = evicted {
        // Its thread wakes, finds the socket closed and ends.
        silent.close();
        add(&shared.counters.connections_refused, 1);
        tracing::debug!("a silent connection made room");
    }
    add(&shared.counters.connections_total, 1);
    let served = Arc::clone(shared);
    let serve = move || Serving::serve(&served, connection, local, seat.voice());
    let thread = std::thread::Builder::new().name("serving".to_owned()).stack_size(STACK_BYTES).spawn(serve);
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for a connection");
    }
}

fn refuse(shared: &Shared, mut connection: Connection) {
    add(&shared.counters.connections_refused, 1);
    let message = format!("the node serves {} connections at most", shared.config.max_connections);
    // Whether the client hears of it changes nothing here. Its hello is read first, if it is there: closing a socket
    // with unread bytes in it would take the refusal back.
    let _ = connection.accept_hello(Deadline::after(REFUSAL_BUDGET));
    let _ = connection.refuse(0, Reason::Overloaded, message, Deadline::after(REFUSAL_BUDGET));
}
