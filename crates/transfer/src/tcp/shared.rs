//! What a transport's caller and its stream threads share besides the board: the sending halves and the wake-ups.

use super::TcpConfig;
use super::board::Board;
use super::landing::Lander;
use crate::conn::dial::{Dial, Place};
use crate::conn::{ConnError, FrameReceiver, FrameSender, Socket};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidepool_locks::{Condvar, Mutex};
use tidepool_types::{BlockId, ClientId, CopyName, Deadline, Epoch};
use tidepool_wire::message::Request;

/// How long a peer may keep silent inside an answer that the caller receives: it should not hold the caller for as long as a
/// thread that has nothing else to do.
const CALLERS_PATIENCE: Duration = Duration::from_millis(250);

/// How long a caller looks again and again whether its answer has come before it sleeps. A small answer takes about as long,
/// and a core that goes to sleep meanwhile takes half of that to wake up, most of all a virtual one.
const CALLERS_SPIN: Duration = Duration::from_micros(150);

/// Bytes from which on the threads of the streams ask for them: beside that many it matters little when they begin.
const ASKED_BY_STREAMS: u64 = 2 << 20;

/// Locks are taken in this order: a receiver, a sender, then the board. The board's is never held while bytes move.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: TcpConfig,
    address: SocketAddr,
    epoch: Epoch,
    client: ClientId,
    pub(super) board: Mutex<Board>,
    /// Completions have come in, or the transport is over.
    pub(super) changed: Condvar,
    /// The sending half of each stream, while it is up. Held while a frame is sent: frames never mix.
    pub(super) senders: Vec<Mutex<Option<FrameSender>>>,
    /// The receiving half of each stream, while it is up. Held while an answer is received.
    pub(super) receivers: Vec<Mutex<Option<FrameReceiver>>>,
    /// The socket of each stream that is being connected.
    dialling: Vec<Mutex<Option<Arc<Socket>>>>,
    /// Wakes each stream's thread.
    pub(super) wakes: Vec<OwnedFd>,
    stop: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        address: SocketAddr,
        epoch: Epoch,
        client: ClientId,
        config: TcpConfig,
    ) -> Result<Self, ConnError> {
        let wakes = (0..config.streams).map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC));
        Ok(Self {
            address,
            epoch,
            client,
            board: Mutex::new(Board::new(config.limits())),
            changed: Condvar::new(),
            senders: (0..config.streams).map(|_| Mutex::new(None)).collect(),
            receivers: (0..config.streams).map(|_| Mutex::new(None)).collect(),
            dialling: (0..config.streams).map(|_| Mutex::new(None)).collect(),
            wakes: wakes.collect::<Result<_, _>>()?,
            stop: AtomicBool::new(false),
            config,
        })
    }

    /// Connects a stream within the connect budget and puts it to use.
    pub(super) fn connect(&self, stream: usize, probation: bool) -> Result<(), ConnError> {
        self.connect_until(stream, probation, Deadline::after(self.config.connect))
    }

    pub(super) fn connect_until(&self, stream: usize, probation: bool, until: Deadline) -> Result<(), ConnError> {
        let dial = Dial { client: self.client, epoch: Some(self.epoch), lease_millis: self.config.lease_millis };
        let dialling = |socket: &Arc<Socket>| {
            *self.dialling[stream].lock() = Some(Arc::clone(socket));
            if self.is_over() {
                socket.close();
            }
        };
        let dialled = dial.watched(Place::Network(self.address, &self.config.socket), until, dialling);
        *self.dialling[stream].lock() = None;
        let (sender, mut receiver) = dialled?.connection.into_halves();
        receiver.set_frame_budget(self.config.stall);
        let mut slot = self.receivers[stream].lock();
        self.board.lock().stream_up(stream, Arc::clone(receiver.socket()), probation);
        *self.senders[stream].lock() = Some(sender);
        if self.is_over() {
            // The transport was dropped meanwhile and may have closed the sockets before this one was among them.
            receiver.socket().close();
        }
        *slot = Some(receiver);
        Ok(())
    }

    /// Takes a failed stream out of use and its work to the others, unless somebody has done so before.
    pub(super) fn detach(&self, stream: usize, socket: &Socket) {
        socket.close();
        // Whoever was receiving has let go before the board hears that nobody touches any memory.
        let mut slot = self.receivers[stream].lock();
        if !slot.as_ref().is_some_and(|receiver| std::ptr::eq(&raw const **receiver.socket(), socket)) {
            return;
        }
        *slot = None;
        *self.senders[stream].lock() = None;
        self.settle(|board| board.stream_down(stream));
        drop(slot);
        self.dispatch();
        self.wake(stream);
    }

    /// Receives an answer that was left to the caller, who waits for it no longer than `until`; an answer that has begun
    /// must be whole at `end`. Sends what it gave cause to ask for. `false`: nothing came in time.
    pub(super) fn receive_for_caller(&self, stream: usize, until: Deadline, end: Option<Deadline>) -> bool {
        let mut slot = self.receivers[stream].lock();
        let Some(receiver) = slot.as_mut() else {
            self.board.lock().left_to_caller = None;
            return true;
        };
        if !receiver.has_buffered() && matches!(wait_for_bytes(receiver.socket(), until), Err(ConnError::TimedOut)) {
            return false;
        }
        let patience = CALLERS_PATIENCE.min(self.config.stall);
        receiver.set_frame_budget(patience);
        let received = Lander { shared: self, stream, patience, end, scratch: Vec::new() }.receive(receiver);
        receiver.set_frame_budget(self.config.stall);
        if let Err(error) = received {
            tracing::debug!(stream, %error, "stream down");
            let socket = Arc::clone(receiver.socket());
            drop(slot);
            self.board.lock().left_to_caller = None;
            self.detach(stream, &socket);
            return true;
        }
        drop(slot);
        if !self.board.lock().reads.is_empty() {
            self.dispatch_for_caller();
        }
        true
    }

    /// A stream cannot be connected: without any other, or with another incarnation in the peer's place, that is the end.
    pub(super) fn unreachable(&self, error: &ConnError) {
        let wrong_epoch = matches!(error, ConnError::WrongEpoch(_));
        let over = self.settle(|board| {
            if wrong_epoch || board.streams_up() == 0 {
                board.close();
            }
            board.closed
        });
        if over {
            self.changed.notify_all();
            (0..self.wakes.len()).for_each(|stream| self.wake(stream));
        }
    }

    /// Whether the threads are to end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.board.lock().closed
    }

    /// Ends all threads, whatever they wait for.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.board.lock().streams.iter().for_each(|stream| stream.close());
        self.dialling.iter().filter_map(|socket| socket.lock().clone()).for_each(|socket| socket.close());
        (0..self.wakes.len()).for_each(|stream| self.wake(stream));
    }

    /// Changes the board and tells the caller if operations have completed by it.
    pub(super) fn settle<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let mut board = self.board.lock();
        let result = change(&mut board);
        let finished = board.is_worth_a_wake();
        drop(board);
        if finished {
            self.changed.notify_one();
        }
        result
    }

    /// As [`Shared::dispatch`], for a caller who is about to poll: a lone small answer is left to it, which spares the
    /// caller one of the two threads that would have to wake up. What keeps all streams busy their threads ask for: whoever
    /// answers on this host starts on the core of the one who asks, and they have cores of their own.
    pub(super) fn dispatch_for_caller(&self) {
        let is_for_all = {
            let mut board = self.board.lock();
            let is_much = board.waiting_bytes >= ASKED_BY_STREAMS && board.reads.len() >= self.config.streams;
            let is_for_all = self.config.streams > 1 && is_much;
            if is_for_all {
                board.left_to_caller = None;
            }
            is_for_all
        };
        if !is_for_all {
            self.send_all_reads();
            self.board.lock().leave_to_caller();
        }
        self.wake_for_work();
    }

    /// Sends waiting reads, and wakes idle threads for answers and writes.
    pub(super) fn dispatch(&self) {
        self.send_all_reads();
        self.wake_for_work();
    }

    /// Sends waiting reads on the least busy streams, one request each in turn.
    fn send_all_reads(&self) {
        let mut order: Vec<usize> = (0..self.senders.len()).collect();
        {
            let board = self.board.lock();
            order.sort_by_key(|stream| board.streams[*stream].bytes());
        }
        let mut sending = true;
        while sending {
            sending = false;
            for stream in &order {
                // A stream whose sender is busy takes reads itself once it is done.
                if let Some(mut sender) = self.senders[*stream].try_lock()
                    && let Some(sender) = sender.as_mut()
                {
                    // An error has closed the socket; the stream's thread finds out and moves what it had.
                    sending |= self.send_reads(*stream, sender).unwrap_or(false);
                }
            }
        }
    }

    /// Wakes idle threads that have an answer to receive, and as many more as there is work waiting for.
    fn wake_for_work(&self) {
        let board = self.board.lock();
        let idle = (0..self.senders.len()).filter(|stream| board.streams[*stream].idle);
        let due = |stream: &usize| board.streams[*stream].has_requests() && board.left_to_caller != Some(*stream);
        let (mut woken, others): (Vec<usize>, Vec<usize>) = idle.partition(due);
        woken.extend(others.into_iter().take(board.writes.len() + board.reads.len()));
        drop(board);
        woken.into_iter().for_each(|stream| self.wake(stream));
    }

    /// Sends one Get on a stream; `false` if there is nothing to send or no room for it.
    pub(super) fn send_reads(&self, stream: usize, sender: &mut FrameSender) -> Result<bool, ConnError> {
        let Some(reads) = self.board.lock().take_reads(stream) else { return Ok(false) };
        let until = reads.until.capped(self.config.stall);
        sender.request(reads.number, &reads.request, &[], until)?;
        Ok(true)
    }

    /// Tells the owner of copies that did not match their checksums, if that needs no waiting.
    pub(super) fn report_corrupt(&self, stream: usize, copies: Vec<(BlockId, CopyName)>) {
        let mut sender = self.senders[stream].lock();
        let sent = sender.as_mut().map(|sender| sender.one_way(0, &Request::ReportCorrupt(copies)));
        if !matches!(sent, Some(Ok(true))) {
            tracing::debug!(stream, "could not report corrupt blocks");
        }
    }

    pub(super) fn wake(&self, stream: usize) {
        // It fails only if the counter is full, and then the thread is being woken already.
        let _ = rustix::io::write(&self.wakes[stream], &1u64.to_ne_bytes());
    }

    pub(super) fn clear_wake(&self, stream: usize) {
        // It fails only if there was nothing to clear.
        let _ = rustix::io::read(&self.wakes[stream], &mut [0u8; 8]);
    }
}

/// Waits for bytes, without sleeping at first.
fn wait_for_bytes(socket: &Socket, until: Deadline) -> Result<(), ConnError> {
    let asleep = until.capped(CALLERS_SPIN);
    while !asleep.has_passed() {
        if socket.is_ready(PollFlags::IN) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    socket.wait(PollFlags::IN, until)
}
