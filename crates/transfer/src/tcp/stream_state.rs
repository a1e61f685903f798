//! What each stream has under way, and the steps of a slice: taken, sent, landed or moved to another stream.

use super::board::Board;
use super::operation::{OpKey, Slice, Work};
use crate::conn::Socket;
use crate::ops::{Failure, Region};
use std::collections::VecDeque;
use std::sync::Arc;
use tidepool_types::{BlockId, CopyName, Deadline, chunk_count};
use tidepool_wire::checksum::{BlockChecksum, Sums};
use tidepool_wire::message::{Blocks, Get, GetOutcome, SlotName};

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
    requests: VecDeque<Sent>,
    /// Charges of `requests` together.
    bytes: u64,
    /// Operations whose memory the stream's thread is touching at this moment.
    using: Vec<OpKey>,
    /// After a failure: one request at a time until one has been answered.
    probation: bool,
    /// Whether the last request taken was a write.
    wrote_last: bool,
    /// Whether the thread waits for work, and so must be woken for it.
    pub(super) idle: bool,
}

#[derive(Debug)]
struct Sent {
    number: u64,
    slices: Vec<Slice>,
    answered: usize,
    write: bool,
}

/// A batch of reads to send.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) number: u64,
    pub(super) get: Get,
    pub(super) until: Deadline,
}

/// A slice of a write to send. The operation counts the thread as a user until [`Board::write_sent`].
#[derive(Debug)]
pub(super) struct WriteSlice {
    pub(super) number: u64,
    pub(super) op: OpKey,
    pub(super) slot: SlotName,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) regions: Vec<Region>,
    pub(super) checksum: BlockChecksum,
    pub(super) until: Deadline,
}

/// An answer whose payload is about to be received. The operations count the thread as a user until [`Board::landed`] or
/// [`Board::stream_down`].
#[derive(Debug)]
pub(super) struct Landing {
    number: u64,
    pub(super) answers: usize,
    /// The hits, in order of the payload.
    pub(super) items: Vec<LandingItem>,
    /// Where the payload goes, in order; empty for an item that nobody wants any more.
    pub(super) regions: Vec<Region>,
}

#[derive(Debug)]
pub(super) struct LandingItem {
    op: OpKey,
    pub(super) id: BlockId,
    pub(super) copy: CopyName,
    /// Where the range starts in the block.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) block_len: u64,
    pub(super) checksums: Sums,
    /// Whether the bytes are still wanted: they land in `regions` of the landing, else nowhere.
    pub(super) wanted: bool,
    /// Set by the receiver when the bytes do not match their checksums.
    pub(super) corrupt: bool,
}

/// The node answered something that was not asked.
#[derive(Debug)]
pub(super) struct Nonsense;

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

    fn push(&mut self, number: u64, slices: Vec<Slice>, write: bool) {
        self.bytes += slices.iter().map(|slice| slice.charge).sum::<u64>();
        self.wrote_last = write;
        self.requests.push_back(Sent { number, slices, answered: 0, write });
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.requests.iter().position(|sent| sent.number == number)
    }

    /// Counts `answers` slices of a request as answered.
    fn answered(&mut self, number: u64, answers: usize) -> Vec<Slice> {
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
            state.idle && state.bytes <= CALLERS_BYTES && !state.requests.iter().any(|sent| sent.write)
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
        let mixes = state.requests.back().is_some_and(|sent| sent.write != write);
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
        let (mut items, mut slices, mut bytes, mut until) = (Vec::new(), Vec::new(), 0, None::<Deadline>);
        while items.len() < GET_ITEMS && (bytes == 0 || self.reads.front().is_some_and(|s| bytes + s.charge <= target))
        {
            let Some(slice) = self.pop_read() else { break };
            let Some(operation) = self.live(slice.op) else { continue };
            let Work::Read(read) = &operation.work else { continue };
            items.push(read.item(&slice));
            until = until.max(Some(operation.deadline));
            bytes += slice.charge;
            slices.push(slice);
        }
        let until = until?;
        let number = self.next_number();
        self.streams[stream].push(number, slices, false);
        Some(Reads { number, get: Get { wait_millis: until.remaining_millis(), items, ..Get::default() }, until })
    }

    /// Takes one slice of a write.
    pub(super) fn take_write(&mut self, stream: usize) -> Option<WriteSlice> {
        while self.may_take(stream, true) {
            let slice = self.writes.pop_front()?;
            let number = self.next_number();
            let Some(operation) = self.live(slice.op) else { continue };
            let Work::Write(write) = &operation.work else { continue };
            let mut regions = Vec::new();
            write.source.cursor_at(slice.start).pieces(slice.len, usize::MAX, &mut regions);
            let taken = WriteSlice {
                number,
                op: slice.op,
                slot: write.slot,
                start: slice.start,
                len: slice.len,
                regions,
                checksum: BlockChecksum::new(write.id, write.len),
                until: operation.deadline,
            };
            operation.users += 1;
            self.streams[stream].using.push(slice.op);
            self.streams[stream].push(number, vec![slice], true);
            return Some(taken);
        }
        None
    }

    /// A write's bytes have left: its memory is no longer read.
    pub(super) fn write_sent(&mut self, stream: usize, slice: &WriteSlice, sums: &[u32]) {
        debug_assert_eq!(sums.len() as u64, chunk_count(slice.len));
        if let Some(operation) = self.get(slice.op)
            && let Work::Write(write) = &mut operation.work
        {
            write.note_checksums(slice.start, sums);
        }
        self.stop_using_all(stream);
    }

    /// The node has acknowledged a write.
    pub(super) fn written(&mut self, stream: usize, number: u64) -> Result<(), Nonsense> {
        let state = &mut self.streams[stream];
        if !state.position(number).is_some_and(|at| state.requests[at].write) {
            return Err(Nonsense);
        }
        for slice in state.answered(number, 1) {
            if let Some(operation) = self.live(slice.op) {
                operation.advance(slice.len);
            }
            self.settle(slice.op);
        }
        Ok(())
    }

    /// The node will not serve a request.
    pub(super) fn refused(&mut self, stream: usize, number: u64) -> Result<(), Nonsense> {
        let state = &mut self.streams[stream];
        let at = state.position(number).ok_or(Nonsense)?;
        let left = state.requests[at].slices.len() - state.requests[at].answered;
        for slice in state.answered(number, left) {
            self.fail(slice.op, Failure::Unavailable);
        }
        Ok(())
    }

    /// Matches an answer with its request and says where its bytes go.
    pub(super) fn begin_landing(&mut self, stream: usize, number: u64, blocks: Blocks) -> Result<Landing, Nonsense> {
        let slices = self.answered_by(stream, number, &blocks).ok_or(Nonsense)?;
        let mut landing = Landing { number, answers: slices.len(), items: Vec::new(), regions: Vec::new() };
        for (slice, outcome) in slices.into_iter().zip(blocks.items) {
            match outcome {
                GetOutcome::Hit(hit) => landing.items.push(self.place(slice, hit, &mut landing.regions)),
                GetOutcome::BadRange { block_len } => self.fail(slice.op, Failure::BadRange { block_len }),
                // The owner has put a damaged copy aside: for a reader it is not there.
                GetOutcome::Miss | GetOutcome::Damaged => self.fail(slice.op, Failure::Miss),
            }
        }
        let wanted = landing.items.iter().filter(|item| item.wanted);
        self.streams[stream].using = wanted.map(|item| item.op).collect();
        Ok(landing)
    }

    fn answered_by(&self, stream: usize, number: u64, blocks: &Blocks) -> Option<Vec<Slice>> {
        let state = &self.streams[stream];
        let sent = &state.requests[state.position(number)?];
        let first = blocks.first as usize;
        let in_turn = !sent.write && first == sent.answered && !blocks.items.is_empty();
        let slices = sent.slices.get(first..first + blocks.items.len())?;
        in_turn.then(|| slices.to_vec())
    }

    fn place(&mut self, slice: Slice, hit: tidepool_wire::message::Hit, regions: &mut Vec<Region>) -> LandingItem {
        self.typical_len = (self.typical_len * 7 + hit.len) / 8;
        let mut item = LandingItem {
            op: slice.op,
            id: BlockId::from_bytes([0; 16]),
            copy: hit.copy,
            offset: 0,
            len: hit.len,
            block_len: hit.block_len,
            checksums: Sums::new(),
            wanted: false,
            corrupt: false,
        };
        let Some(operation) = self.live(slice.op) else { return item };
        let Work::Read(read) = &mut operation.work else { return item };
        let is_first = read.total().is_none();
        if let Err(failure) = read.place(&slice, &hit, regions) {
            self.fail(slice.op, failure);
            return item;
        }
        (item.id, item.offset) = (read.id, read.offset + slice.start);
        (item.checksums, item.wanted) = (hit.checksums, true);
        operation.users += 1;
        if is_first {
            self.enqueue_rest(slice.op, hit.len);
        }
        item
    }

    /// The payload has been received whole; `corrupt` items have failed their checksums.
    pub(super) fn landed(&mut self, stream: usize, landing: &Landing) {
        self.streams[stream].answered(landing.number, landing.answers);
        for item in landing.items.iter().filter(|item| item.wanted) {
            let Some(operation) = self.get(item.op) else { continue };
            match item.corrupt {
                true => operation.fail(Failure::Corrupt(item.copy)),
                false => operation.advance(item.len),
            }
        }
        self.stop_using_all(stream);
    }

    fn stop_using_all(&mut self, stream: usize) {
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

    const LEN: u64 = 64 << 10;

    /// A board with reads waiting, and as many streams as sockets are up.
    fn board(reads: u64, streams: usize) -> Board {
        let mut board = Board::new(TcpConfig { streams, ..TcpConfig::default() }.limits());
        let later = Deadline::after(Duration::from_secs(60));
        for token in 0..reads {
            let (id, destination) = (BlockId::from_bytes([token as u8; 16]), Destination::Allocate);
            let read = ReadOp { token, id, copy: None, offset: 0, len: Some(LEN), destination };
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
