//! Blocks over TCP: several streams per peer, received straight into their destinations and verified on arrival.
//!
//! *Client.* [`TcpTransport`] cuts operations into slices. Many small reads share one Get; a large block is read in slices
//! over all streams, the first of which names the copy that the others then ask for. Each stream has a thread, on a share of
//! the cores, that receives the answers; whoever submits a few reads sends the requests, for many the streams' threads do. A
//! stream has a bounded number of bytes under way, and of a batch no more than its share; streams take slices as they get
//! room, so a slow one takes fewer. What a failing stream had under way moves to the others at once
//! (reads, and writes to a reservation, can be repeated); it reconnects and is trusted with one request at first. When no
//! stream is left and none can be connected, the peer is given up.
//!
//! *Node.* [`serve`] answers Get and receives Write, [`serve_ranges`] the same for registered ranges.
//!
//! Where things are: `board` and `stream_state` keep the books under one lock, `operation` is the life of one operation,
//! `rail` is a stream's thread, `landing` receives an answer, `answer` enters it in the books, `ranges` are operations on registered ranges, `shared` ties them together.

mod answer;
mod board;
mod landing;
mod operation;
mod rail;
mod ranges;
pub mod serve;
pub mod serve_ranges;
mod shared;
mod stream_state;

use crate::conn::{ConnError, TcpOptions};
use crate::ops::{Completion, Op, Refused};
use crate::transport::{Health, Transport};
use rail::Rail;
use shared::Shared;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tidepool_types::{CHUNK_LEN, ClientId, Deadline, Epoch};

/// How a transport uses the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConfig {
    /// Streams to the peer, 1 to 16.
    pub streams: usize,
    /// Bytes that one stream may have under way.
    pub window_bytes: u64,
    /// A block longer than this is read in slices of this many bytes.
    pub slice_bytes: u64,
    /// How the sockets are set up.
    pub socket: TcpOptions,
    /// A stream that should send and is silent for this long has failed.
    pub stall: Duration,
    /// How long a connection may take to be made and welcomed.
    pub connect: Duration,
    /// Operations under way at once; more are refused.
    pub max_ops: usize,
    /// Bytes under way at once; once reached, more operations are refused.
    pub max_bytes: u64,
    /// Milliseconds for which the node leases what is read; zero for none.
    pub lease_millis: u32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            streams: 4,
            window_bytes: 4 << 20,
            slice_bytes: 4 << 20,
            socket: TcpOptions::default(),
            stall: Duration::from_secs(2),
            connect: Duration::from_secs(1),
            max_ops: 1 << 16,
            max_bytes: 4 << 30,
            lease_millis: 0,
        }
    }
}

impl TcpConfig {
    fn limits(&self) -> Limits {
        Limits {
            streams: self.streams,
            window: self.window_bytes,
            // Ends of slices are ends of chunks, so that no chunk is verified in parts.
            slice: self.slice_bytes.max(1).next_multiple_of(CHUNK_LEN),
            write_slice: WRITE_BYTES,
            max_ops: self.max_ops,
            max_bytes: self.max_bytes,
        }
    }
}

/// Bytes of one Write frame.
const WRITE_BYTES: u64 = 1 << 20;
/// The first operations of a batch are sent while the rest is still being queued.
const SUBMIT_STEP: usize = 128;
/// The most streams to one peer.
const MAX_STREAMS: usize = 16;

/// The numbers of a [`TcpConfig`] that the board needs.
#[derive(Debug, Clone, Copy)]
struct Limits {
    streams: usize,
    window: u64,
    slice: u64,
    write_slice: u64,
    max_ops: usize,
    max_bytes: u64,
}

/// Moves blocks to and from one node over TCP.
#[derive(Debug)]
pub struct TcpTransport {
    shared: Arc<Shared>,
    rails: Vec<JoinHandle<()>>,
}

impl TcpTransport {
    /// Connects to the node of incarnation `epoch` at `address`. Returns with the first stream; the others follow.
    pub fn connect(
        address: SocketAddr,
        epoch: Epoch,
        client: ClientId,
        config: TcpConfig,
        until: Deadline,
    ) -> Result<Self, ConnError> {
        let streams = config.streams.clamp(1, MAX_STREAMS);
        let shared = Arc::new(Shared::new(address, epoch, client, TcpConfig { streams, ..config })?);
        shared.connect_until(0, false, until)?;
        let mut transport = Self { shared, rails: Vec::new() };
        for stream in 0..streams {
            let rail = Rail { shared: Arc::clone(&transport.shared), stream };
            let thread = std::thread::Builder::new().name(format!("tcp-{stream}"));
            transport.rails.push(thread.spawn(move || rail.run())?);
        }
        Ok(transport)
    }
}

impl Transport for TcpTransport {
    fn submit(&mut self, ops: Vec<Op>, deadline: Deadline) -> Vec<Result<(), Refused>> {
        let mut answers = Vec::with_capacity(ops.len());
        let mut ops = ops.into_iter().peekable();
        while ops.peek().is_some() {
            let late = deadline.has_passed();
            let mut board = self.shared.board.lock();
            answers.extend(ops.by_ref().take(SUBMIT_STEP).map(|op| board.submit(op, deadline, late)));
            drop(board);
            self.shared.dispatch_for_caller();
        }
        answers
    }

    fn poll(&mut self, done: &mut Vec<Completion>, until: Deadline) -> usize {
        self.poll_many(done, 1, until)
    }

    fn poll_many(&mut self, done: &mut Vec<Completion>, least: usize, until: Deadline) -> usize {
        let mut board = self.shared.board.lock();
        board.awaited = least.max(1);
        loop {
            board.expire();
            if board.is_worth_a_wake() || board.under_way() == 0 {
                break;
            }
            let end = board.next_expiry;
            let wake = end.map_or(until, |earliest| earliest.min(until));
            if let Some(stream) = board.left_to_caller {
                drop(board);
                // What has arrived is taken in also when it is late: nobody else does.
                let received = self.shared.receive_for_caller(stream, wake, end);
                board = self.shared.board.lock();
                if received {
                    continue;
                }
            }
            if until.has_passed() {
                break;
            }
            if board.left_to_caller.is_none() {
                self.shared.changed.wait_until(&mut board, wake.instant());
            }
        }
        let finished = board.finished.len();
        done.append(&mut board.finished);
        let left = board.caller_leaves();
        drop(board);
        left.into_iter().for_each(|stream| self.shared.wake(stream));
        finished
    }

    fn cancel(&mut self, token: u64) {
        self.shared.board.lock().cancel(token);
    }

    fn cancel_all(&mut self) {
        self.shared.board.lock().cancel_all();
    }

    fn health(&self) -> Health {
        let board = self.shared.board.lock();
        match board.streams_up() {
            _ if board.closed => Health::Down,
            up if up == board.streams.len() => Health::Up,
            _ => Health::Degraded,
        }
    }
}

impl Drop for TcpTransport {
    /// Waits until no thread is left that could touch a caller's memory.
    fn drop(&mut self) {
        self.shared.stop();
        for rail in self.rails.drain(..) {
            // A rail that panicked has let go of everything too.
            let _ = rail.join();
        }
    }
}
