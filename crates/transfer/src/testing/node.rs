//! A node in the test's own process: a [`MemoryNode`] behind a TCP listener, one thread per connection.

use crate::conn::{ConnError, Connection, Socket, TcpOptions};
use crate::memory::MemoryNode;
use crate::ops::Region;
use crate::tcp::serve::{recv_write, serve_get};
use crate::tcp::serve_ranges::{recv_range, serve_ranges};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tidepool_locks::{Condvar, Mutex};
use tidepool_types::Deadline;
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{Reason, Reply, Request, Welcome, Write, WriteRange};

/// How long a connection of a test may be idle, and a frame take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that ends when it is dropped.
#[derive(Debug)]
pub struct TestNode {
    /// What the node holds.
    pub memory: MemoryNode,
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// While set, writes are received and not applied.
    writes_suspended: Mutex<bool>,
    writes_resumed: Condvar,
    waiting_writes: AtomicUsize,
    sockets: Mutex<Vec<Arc<Socket>>>,
    accepted: AtomicUsize,
}

impl TestNode {
    /// Serves `memory` on a free port of the loopback interface.
    ///
    /// # Panics
    /// If there is none: a test cannot go on without.
    #[must_use]
    pub fn start(memory: MemoryNode, options: TcpOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
        // Buffers are inherited by what is accepted.
        options.apply(&listener).expect("a fresh listener takes options");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let (memory, shared) = (memory.clone(), Arc::clone(&shared));
            std::thread::spawn(move || accept(&listener, &memory, &shared))
        };
        Self { memory, address, shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops or resumes applying writes. While stopped, their bytes are received and put aside.
    pub fn suspend_writes(&self, suspended: bool) {
        *self.shared.writes_suspended.lock() = suspended;
        self.shared.writes_resumed.notify_all();
    }

    /// Writes that are received and wait to be applied.
    #[must_use]
    pub fn waiting_writes(&self) -> usize {
        self.shared.waiting_writes.load(Ordering::Acquire)
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Acquire)
    }

    /// Closes the connections it has, and goes on accepting.
    pub fn close_connections(&self) {
        self.shared.sockets.lock().drain(..).for_each(|socket| socket.close());
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.suspend_writes(false);
        self.close_connections();
        // Wakes the acceptor, which then finds that it is to stop.
        let _ = std::net::TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, memory: &MemoryNode, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let (memory, shared) = (memory.clone(), Arc::clone(shared));
        threads.push(std::thread::spawn(move || {
            // A connection that ends in an error is what many tests are about.
            let _ = serve(stream.into(), &memory, &shared);
        }));
    }
    shared.sockets.lock().drain(..).for_each(|socket| socket.close());
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn serve(fd: rustix::fd::OwnedFd, memory: &MemoryNode, shared: &Shared) -> Result<(), ConnError> {
    let until = Deadline::after(PATIENCE);
    let (mut connection, _hello) = Connection::accept(fd, until)?;
    shared.sockets.lock().push(Arc::clone(connection.socket()));
    shared.accepted.fetch_add(1, Ordering::AcqRel);
    let welcome = Welcome {
        node: "test".to_owned(),
        epoch: memory.epoch(),
        memory: false,
        writable: false,
        build: String::new(),
    };
    connection.welcome(welcome, &[], until)?;
    connection.set_frame_budget(PATIENCE);
    while !shared.stop.load(Ordering::Acquire) {
        let incoming = connection.recv_request(Deadline::after(PATIENCE))?;
        let (number, until) = (incoming.number, Deadline::after(PATIENCE));
        match incoming.message? {
            Request::Get(get) => {
                serve_get(&mut connection, number, &get, memory, until)?;
            }
            Request::Write(write) => {
                let applied = receive(&mut connection, memory, shared, &write, incoming.payload_len, until)?;
                match applied {
                    true => connection.send_reply(number, &Reply::Written, &[], &[], until)?,
                    false => connection.refuse(number, Reason::Invalid, "no such reservation".to_owned(), until)?,
                }
            }
            Request::ReadRange(read) => serve_ranges(&mut connection, number, &read, memory, until)?,
            Request::WriteRange(write) => {
                match receive_range(&mut connection, memory, &write, incoming.payload_len, until)? {
                    true => connection.send_reply(number, &Reply::Written, &[], &[], until)?,
                    false => connection.refuse(number, Reason::Invalid, "no such range".to_owned(), until)?,
                }
            }
            Request::Cancel(_) => {}
            Request::ReportCorrupt(copies) => memory.report(&copies),
            _ => connection.refuse(number, Reason::NotHere, "not served by a test".to_owned(), until)?,
        }
    }
    Ok(())
}

/// Receives a piece of a range; `false` if there is no room for it, or it did not come as it left.
fn receive_range(
    connection: &mut Connection,
    memory: &MemoryNode,
    write: &WriteRange,
    len: u64,
    until: Deadline,
) -> Result<bool, ConnError> {
    let mut bytes = vec![0; len as usize];
    // SAFETY: the buffer is this call's own.
    let is_intact = unsafe { recv_range(connection.receiver(), Region::of_mut(&mut bytes), write, until)? };
    Ok(is_intact && memory.write_range(&write.name, write.offset, &bytes))
}

fn receive(
    connection: &mut Connection,
    memory: &MemoryNode,
    shared: &Shared,
    write: &Write,
    len: u64,
    until: Deadline,
) -> Result<bool, ConnError> {
    let Some((id, block_len)) = memory.reservation(&write.slot) else {
        connection.receiver().discard_payload(until)?;
        return Ok(false);
    };
    let mut bytes = vec![0; len as usize];
    let checksum = BlockChecksum::new(id, block_len);
    // SAFETY: the buffer is this call's own.
    unsafe { recv_write(connection.receiver(), Region::of_mut(&mut bytes), &checksum, write.offset, until)? };
    let mut suspended = shared.writes_suspended.lock();
    if *suspended {
        shared.waiting_writes.fetch_add(1, Ordering::AcqRel);
        shared.writes_resumed.wait_while(&mut suspended, |suspended| *suspended);
        shared.waiting_writes.fetch_sub(1, Ordering::AcqRel);
    }
    drop(suspended);
    Ok(memory.write(&write.slot, write.offset, &bytes))
}
