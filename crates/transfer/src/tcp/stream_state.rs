//! What each stream has under way, and the steps of a slice until it is answered: taken, sent, or moved to another stream.

use super::board::Board;
use super::operation::{OpKey, Slice, Work};
use crate::conn::Socket;
use crate::ops::Region;
use std::collections::VecDeque;
use std::sync::Arc;
use tidepool_types::{Deadline, chunk_count};
use tidepool_wire::checksum::BlockChecksum;
use tidepool_wire::message::{Get, GetItem, RangeItem, RangeName, ReadRange, Request, Run, SlotName};

/// Bounds of the bytes that one Get asks for, unless a single slice has more: a batch is spread over all streams, but
/// not into frames too small to be worth their overhead.
const GET_BYTES: std::ops::RangeInclusive<u64> = 128 << 10..=1 << 20;
/// The most bytes that a caller receives itself instead of leaving them to a stream's thread.
const CALLERS_BYTES: u64 = 512 << 10;
/// The most items of one Get.
const GET_ITEMS: usize = 512;

/// One stream as the board sees it.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// While connected.
    socket: Option<Arc<Socket>>,
    /// Sent and not fully answered, in order.
    pub(super) requests: VecDeque<Sent>,
    /// Charges of `requests` together.
    bytes: u64,
    /// Operations whose memory the stream's thread is touching at this moment.
    pub(super) using: Vec<OpKey>,
    /// After a failure: one request at a time until one has been answered.
    probation: bool,
    /// Whether the last request taken was a write.
    wrote_last: bool,
    /// Whether the thread waits for work, and so must be woken for it.
    pub(super) idle: bool,
}

#[derive(Debug)]
pub(super) struct Sent {
    number: u64,
    pub(super) slices: Vec<Slice>,
    pub(super) answered: usize,
    pub(super) what: What,
}

/// What a request moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Blocks,
    Ranges,
    Writes,
}

/// A batch of reads to send.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) number: u64,
    pub(super) request: Request,
    pub(super) until: Deadline,
}

/// The items of one request: blocks or pieces of ranges, not both.
#[derive(Debug, Default)]
struct Items {
    blocks: Vec<GetItem>,
    /// For which requests the blocks are used.
    runs: Vec<Run>,
    ranges: Vec<RangeItem>,
}

impl Items {
    fn len(&self) -> usize {
        self.blocks.len() + self.ranges.len()
    }

    /// Adds a slice of an operation; `false` for one that belongs to another request.
    fn add(&mut self, work: &Work, slice: &Slice) -> bool {
        match work {
            Work::Read(read) if self.ranges.is_empty() => {
                Run::note(&mut self.runs, self.blocks.len(), read.used.as_deref().copied());
                self.blocks.push(read.item(slice));
            }
            Work::ReadRange(read) if self.blocks.is_empty() => self.ranges.push(read.item(slice)),
            _ => return false,
        }
        true
    }

    fn into_request(self, wait_millis: u32) -> (Request, What) {
        let Self { blocks, runs, ranges } = self;
        match ranges.is_empty() {
            true => (Request::Get(Get { wait_millis, items: blocks, runs }), What::Blocks),
            false => (Request::ReadRange(ReadRange { wait_millis, items: ranges }), What::Ranges),
        }
    }
}

/// A slice of a write to send. The operation counts the thread as a user until [`Board::write_sent`].
#[derive(Debug)]
pub(super) struct WriteSlice {
    pub(super) number: u64,
    pub(super) op: OpKey,
    pub(super) to: WriteTo,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) regions: Vec<Region>,
    pub(super) until: Deadline,
}

/// Where a slice of a write goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteTo {
    Reservation {
        slot: SlotName,
        /// The block's.
        checksum: BlockChecksum,
    },
    Range {
        name: RangeName,
        /// Where the slice starts in the range.
        offset: u64,
    },
}

impl StreamState {
    pub(super) fn is_up(&self) -> bool {
        self.socket.is_some()
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn close(&self) {
        if let Some(socket) = &self.socket {
            socket.close();
        }
    }

    pub(super) fn close_if_using(&self, key: OpKey) {
        if self.using.contains(&key) {
            self.close();
        }
    }

    /// Whether one more request may be sent. A request larger than the window travels alone.
    fn has_window(&self, window: u64) -> bool {
        self.is_up() && (self.requests.is_empty() || (self.bytes < window && !self.probation))
    }

    fn push(&mut self, number: u64, slices: Vec<Slice>, what: What) {
        self.bytes += slices.iter().map(|slice| slice.charge).sum::<u64>();
        self.wrote_last = what == What::Writes;
        self.requests.push_back(Sent { number, slices, answered: 0, what });
    }

    pub(super) fn position(&self, number: u64) -> Option<usize> {
        self.requests.iter().position(|sent| sent.number == number)
    }

    /// Counts `answers` slices of a request as answered.
    pub(super) fn answered(&mut self, number: u64, answers: usize) -> Vec<Slice> {
        let Some(at) = self.position(number) else { return Vec::new() };
        let sent = &mut self.requests[at];
        let slices = sent.slices[sent.answered..sent.answered + answers].to_vec();
        sent.answered += answers;
        self.bytes -= slices.iter().map(|slice| slice.charge).sum::<u64>();
        if sent.answered == sent.slices.len() {
            self.requests.remove(at);
            self.probation = false;
        }
        slices
    }
}

impl Board {
    pub(super) fn stream_up(&mut self, stream: usize, socket: Arc<Socket>, probation: bool) {
        self.streams[stream] = StreamState { socket: Some(socket), probation, ..StreamState::default() };
    }

    /// Takes a failed stream's work away: its thread no longer touches any memory.
    pub(super) fn stream_down(&mut self, stream: usize) {
        let StreamState { requests, using, .. } = std::mem::take(&mut self.streams[stream]);
        self.stop_using(&using);
        self.incidents += 1;
        for sent in requests.iter().rev() {
            sent.slices[sent.answered..].iter().rev().for_each(|slice| self.move_slice(*slice));
        }
    }

    /// Leaves what is under way to the caller if it is all on one stream, whose thread idles, and so little that it waits in
    /// the socket until the caller comes for it.
    pub(super) fn leave_to_caller(&mut self) {
        let mut busy = (0..self.streams.len()).filter(|stream| self.streams[*stream].has_requests());
        let lone = busy.next().filter(|_| busy.next().is_none() && self.reads.is_empty() && self.writes.is_empty());
        let small = |stream: &usize| {
            let state = &self.streams[*stream];
            state.idle && state.bytes <= CALLERS_BYTES && !state.requests.iter().any(|sent| sent.what == What::Writes)
        };
        self.left_to_caller = lone.filter(small);
    }

    /// The caller goes; `Some` names the stream whose thread has to receive what is still under way.
    pub(super) fn caller_leaves(&mut self) -> Option<usize> {
        self.left_to_caller.take().filter(|stream| self.streams[*stream].has_requests())
    }

    pub(super) fn streams_up(&self) -> usize {
        self.streams.iter().filter(|stream| stream.is_up()).count()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether the stream may take a read or a write now. One stream never has both under way: if this side were sending a
    /// large write while the node sends a large answer, each could wait for the other to read.
    fn may_take(&self, stream: usize, write: bool) -> bool {
        let state = &self.streams[stream];
        let mixes = state.requests.back().is_some_and(|sent| (sent.what == What::Writes) != write);
        let both_wait = !self.reads.is_empty() && !self.writes.is_empty();
        // With both waiting, every second working stream writes; a single one takes turns.
        let rank = self.streams[..stream].iter().filter(|stream| stream.is_up()).count();
        let prefers_write = if self.streams_up() > 1 { rank % 2 == 1 } else { !state.wrote_last };
        state.has_window(self.limits.window) && !mixes && !(both_wait && prefers_write != write)
    }

    /// Whether the stream has no more reads under way than its share of all that is under way or waiting: the others, which
    /// may be a moment late, are to have work too.
    fn is_within_share(&self, stream: usize) -> bool {
        let under_way: u64 = self.streams.iter().map(StreamState::bytes).sum();
        self.streams[stream].bytes * self.streams_up() as u64 <= self.waiting_bytes + under_way
    }

    /// Takes reads for one Get.
    pub(super) fn take_reads(&mut self, stream: usize) -> Option<Reads> {
        if self.reads.is_empty() || !self.may_take(stream, false) || !self.is_within_share(stream) {
            return None;
        }
        let share = self.waiting_bytes / (2 * self.limits.streams as u64);
        let target = share.clamp(*GET_BYTES.start(), *GET_BYTES.end());
        let (mut items, mut slices, mut bytes, mut until) = (Items::default(), Vec::new(), 0, None::<Deadline>);
        while items.len() < GET_ITEMS && (bytes == 0 || self.reads.front().is_some_and(|s| bytes + s.charge <= target))
        {
            let Some(slice) = self.pop_read() else { break };
            let Some(operation) = self.live(slice.op) else { continue };
            if !items.add(&operation.work, &slice) {
                self.push_read_first(slice);
                break;
            }
            until = until.max(Some(operation.deadline));
            bytes += slice.charge;
            slices.push(slice);
        }
        let until = until?;
        let number = self.next_number();
        let (request, what) = items.into_request(until.remaining_millis());
        self.streams[stream].push(number, slices, what);
        Some(Reads { number, request, until })
    }

    /// Takes one slice of a write.
    pub(super) fn take_write(&mut self, stream: usize) -> Option<WriteSlice> {
        while self.may_take(stream, true) {
            let slice = self.writes.pop_front()?;
            let number = self.next_number();
            let Some(operation) = self.live(slice.op) else { continue };
            let (source, to) = match &operation.work {
                Work::Write(write) => {
                    let checksum = BlockChecksum::new(write.id, write.len);
                    (&write.source, WriteTo::Reservation { slot: write.slot, checksum })
                }
                Work::WriteRange(write) => {
                    (&write.source, WriteTo::Range { name: write.name, offset: write.offset + slice.start })
                }
                Work::Read(_) | Work::ReadRange(_) => continue,
            };
            let mut regions = Vec::new();
            source.cursor_at(slice.start).pieces(slice.len, usize::MAX, &mut regions);
            let Slice { op, start, len, .. } = slice;
            let taken = WriteSlice { number, op, to, start, len, regions, until: operation.deadline };
            operation.users += 1;
            self.streams[stream].using.push(slice.op);
            self.streams[stream].push(number, vec![slice], What::Writes);
            return Some(taken);
        }
        None
    }

    /// A write's bytes have left: its memory is no longer read.
    pub(super) fn write_sent(&mut self, stream: usize, slice: &WriteSlice, sums: &[u32]) {
        if let Some(operation) = self.get(slice.op)
            && let Work::Write(write) = &mut operation.work
        {
            debug_assert_eq!(sums.len() as u64, chunk_count(slice.len));
            write.note_checksums(slice.start, sums);
        }
        self.stop_using_all(stream);
    }

    pub(super) fn stop_using_all(&mut self, stream: usize) {
        let using = std::mem::take(&mut self.streams[stream].using);
        self.stop_using(&using);
    }

    fn stop_using(&mut self, using: &[OpKey]) {
        for key in using {
            if let Some(operation) = self.get(*key) {
                operation.users -= 1;
            }
            self.settle(*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::Connection;
    use crate::ops::{Destination, Op, ReadOp};
    use crate::tcp::TcpConfig;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use tidepool_types::BlockId;

    const LEN: u64 = 64 << 10;

    /// A board with reads waiting, and as many streams as sockets are up.
    fn board(reads: u64, streams: usize) -> Board {
        let mut board = Board::new(TcpConfig { streams, ..TcpConfig::default() }.limits());
        let later = Deadline::after(Duration::from_secs(60));
        for token in 0..reads {
            let (id, destination) = (BlockId::from_bytes([token as u8; 16]), Destination::Allocate);
            let read = ReadOp { len: Some(LEN), ..ReadOp::whole(token, id, destination) };
            board.submit(Op::Read(read), later, false).unwrap();
        }
        for stream in 0..streams {
            let (socket, _) = UnixStream::pair().unwrap();
            let connection = Connection::from_socket(socket.into()).unwrap();
            board.stream_up(stream, Arc::clone(connection.socket()), false);
        }
        board
    }

    /// The thread that woke first would have asked for all of a batch that its window has room for.
    #[test]
    fn a_stream_that_asks_first_leaves_the_others_their_share_until_they_are_done() {
        let mut board = board(32, 2);
        while board.take_reads(0).is_some() {}
        let first = board.streams[0].bytes();
        assert!((16 * LEN..=24 * LEN).contains(&first), "{first} bytes of {}", 32 * LEN);
        while board.take_reads(1).is_some() {}
        assert!(board.reads.is_empty(), "the other takes the rest");
        assert_eq!(board.streams[0].bytes() + board.streams[1].bytes(), 32 * LEN);
    }

    #[test]
    fn what_the_others_do_not_take_a_stream_takes_once_it_has_nothing_else() {
        let mut board = board(32, 4);
        while board.take_reads(0).is_some() {}
        assert!(!board.reads.is_empty());
        // As if answered, all of it.
        board.streams[0].requests.clear();
        board.streams[0].bytes = 0;
        assert!(board.take_reads(0).is_some());
        board.stream_down(1);
        board.stream_down(2);
        board.stream_down(3);
        while board.take_reads(0).is_some() {}
        assert!(board.reads.is_empty(), "alone, it has the window to itself");
    }
}
