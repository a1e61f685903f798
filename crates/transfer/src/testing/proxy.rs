//! A TCP proxy that passes bytes on until it breaks the connection in a chosen way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidepool_locks::{Condvar, Mutex};

/// What happens to the bytes from the node to the client, or in one case to those from the client. Both are counted over all
/// connections of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Nothing: all bytes pass.
    Never,
    /// The byte with this number has a bit flipped.
    Flip(u64),
    /// The byte with this number, of those from the client, has a bit flipped.
    FlipRequest(u64),
    /// From this byte on nothing passes; the connections stay open.
    Stall(u64),
    /// From this byte on bytes pass one at a time, with this pause before each.
    Trickle(u64, Duration),
    /// At this byte the connection that carries it is closed; later bytes pass.
    Close(u64),
}

/// A running proxy; dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    node: Mutex<SocketAddr>,
    how: Mutex<Break>,
    /// It breaks in another way from now on, or stops.
    changed: Condvar,
    passed: AtomicU64,
    requested: AtomicU64,
    stop: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Forwards connections on a free loopback port to `node`.
    ///
    /// # Panics
    /// If there is no free port: a test cannot go on without.
    #[must_use]
    pub fn start(node: SocketAddr, how: Break) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            node: Mutex::new(node),
            how: Mutex::new(how),
            changed: Condvar::new(),
            passed: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            streams: Mutex::new(Vec::new()),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that came from the node so far.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Acquire)
    }

    /// Bytes that came from clients so far.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.shared.requested.load(Ordering::Acquire)
    }

    /// Connections that were made and not closed by the proxy.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.streams.lock().len() / 2
    }

    /// Changes how the proxy breaks, from now on.
    pub fn set(&self, how: Break) {
        *self.shared.how.lock() = how;
        self.shared.changed.notify_all();
    }

    /// Closes the connections and sends new ones to another node.
    pub fn redirect(&self, node: SocketAddr) {
        *self.shared.node.lock() = node;
        self.shared.streams.lock().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Closes the oldest connection and sends new ones to another node.
    pub fn redirect_first(&self, node: SocketAddr) {
        *self.shared.node.lock() = node;
        // Each connection has two ends here.
        self.shared.streams.lock().drain(..2).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            // Whoever waits for a change has either seen the stop or sleeps by now.
            let _how = self.shared.how.lock();
            self.shared.stop.store(true, Ordering::Release);
        }
        self.shared.changed.notify_all();
        let close = |stream: &TcpStream| drop(stream.shutdown(Shutdown::Both));
        self.shared.streams.lock().iter().for_each(close);
        // Wakes the acceptor, which then finds that it is to stop.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Pauses, unless the proxy stops; whether it has.
    fn stops_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut how = self.how.lock();
        while !self.has_stopped() && !self.changed.wait_until(&mut how, until).timed_out() {}
        self.has_stopped()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for client in listener.incoming() {
        if shared.has_stopped() {
            break;
        }
        let Ok(pumps) = client.and_then(|client| connect(client, shared)) else { continue };
        threads.extend(pumps);
    }
    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
}

fn connect(client: TcpStream, shared: &Arc<Shared>) -> std::io::Result<[JoinHandle<()>; 2]> {
    let node = TcpStream::connect(*shared.node.lock())?;
    client.set_nodelay(true)?;
    node.set_nodelay(true)?;
    shared.streams.lock().extend([client.try_clone()?, node.try_clone()?]);
    let (requests, to_node) = (client.try_clone()?, node.try_clone()?);
    let (shared, of_requests) = (Arc::clone(shared), Arc::clone(shared));
    Ok([
        std::thread::spawn(move || {
            // However it ends, the other direction hears of it.
            let _ = pass_requests(&requests, &to_node, &of_requests);
            let _ = to_node.shutdown(Shutdown::Both);
        }),
        std::thread::spawn(move || {
            let _ = pass_replies(&node, &client, &shared);
            let _ = client.shutdown(Shutdown::Both);
            let _ = node.shutdown(Shutdown::Both);
        }),
    ])
}

fn pass_requests(mut client: &TcpStream, mut node: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = match client.read(&mut buffer)? {
            0 => return Ok(()),
            len => len,
        };
        let first = shared.requested.fetch_add(len as u64, Ordering::AcqRel);
        if let Break::FlipRequest(number) = *shared.how.lock()
            && (first..first + len as u64).contains(&number)
        {
            buffer[(number - first) as usize] ^= 0x10;
        }
        node.write_all(&buffer[..len])?;
    }
}

fn pass_replies(mut node: &TcpStream, mut client: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = match node.read(&mut buffer)? {
            0 => return Ok(()),
            len => len,
        };
        let first = shared.passed.fetch_add(len as u64, Ordering::AcqRel);
        let bytes = &mut buffer[..len];
        let how = *shared.how.lock();
        let at = |number: u64| number.checked_sub(first).filter(|at| *at < len as u64).map(|at| at as usize);
        match how {
            Break::Flip(number) if at(number).is_some() => {
                bytes[at(number).unwrap_or(0)] ^= 0x10;
                client.write_all(bytes)?;
            }
            Break::Close(number) if at(number).is_some() => return client.write_all(&bytes[..at(number).unwrap_or(0)]),
            Break::Stall(number) if first + len as u64 > number => {
                client.write_all(&bytes[..number.saturating_sub(first) as usize])?;
                shared.changed.wait_while(&mut shared.how.lock(), |now| !shared.has_stopped() && *now == how);
                client.write_all(&bytes[number.saturating_sub(first) as usize..])?;
            }
            Break::Trickle(number, pause) if first + len as u64 > number => {
                for byte in bytes.chunks(1) {
                    if shared.stops_within(pause) {
                        return Ok(());
                    }
                    client.write_all(byte)?;
                }
            }
            _ => client.write_all(bytes)?,
        }
    }
}
