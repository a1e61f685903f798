//! One read from its start to its answer: what is wanted, and what has become of it so far.

use crate::counters::{Counters, add};
use crate::error::GetError;
use std::ops::Range;
use tidepool_transfer::ops::{Completion, Destination, Done, Failure, ReadOp};
use tidepool_types::{BlockId, ClientId, CopyName, UsedFor};
use tidepool_wire::message::SlotName;

/// A block, or a range of one, that somebody wants.
pub(crate) struct Read {
    pub(crate) id: BlockId,
    pub(crate) offset: u64,
    /// Bytes wanted, or all up to the block's end.
    pub(crate) len: Option<u64>,
    /// Where they go.
    pub(crate) into: Destination,
    /// What is known of the use that it is.
    pub(crate) used: Option<Box<UsedFor>>,
    pub(crate) state: State,
}

/// What has become of a read.
pub(crate) enum State {
    /// Still wanted; the latest failure says why it will have been a miss.
    Wanted(Miss),
    /// The bytes are where they should be.
    Delivered(Delivered),
    /// It cannot be, whoever is asked.
    Refused(GetError),
}

/// What a read has brought.
pub(crate) struct Delivered {
    /// How many bytes.
    pub(crate) bytes: u64,
    /// Of which copy.
    pub(crate) copy: CopyName,
    /// The bytes, if memory was allocated for them.
    data: Option<Vec<u8>>,
}

impl Delivered {
    pub(crate) fn len(self) -> usize {
        self.bytes as usize
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.data.unwrap_or_default()
    }
}

/// Why a read is a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Miss {
    Absent,
    /// No catalog answered.
    NoCatalog,
    /// No catalog that answered is complete.
    Unsure,
    LostRace,
    Corrupt,
    Unavailable,
    TimedOut,
}

/// What a completion says about the node that it came from.
pub(crate) enum Verdict {
    Hit(Hit),
    LostRace,
    Corrupt(CopyName),
    /// Nothing that the read's block is to blame for: the node does not hold it, or did not answer, or the caller asked for
    /// too much.
    Other,
}

/// A successful read, as far as statistics go.
pub(crate) struct Hit {
    pub(crate) slot: Option<SlotName>,
    pub(crate) writer: ClientId,
    pub(crate) bytes: u64,
}

impl Read {
    pub(crate) fn whole(id: BlockId, into: Destination) -> Self {
        Self { id, offset: 0, len: None, into, used: None, state: State::Wanted(Miss::Absent) }
    }

    /// The same, as a use that is known better.
    pub(crate) fn used_for(self, used: Option<UsedFor>) -> Self {
        Self { used: used.map(Box::new), ..self }
    }

    /// Only `range` of the block, when there is one.
    pub(crate) fn part(mut self, range: Option<&Range<u64>>) -> Self {
        if let Some(range) = range {
            (self.offset, self.len) = (range.start, Some(range.end.saturating_sub(range.start)));
        }
        self
    }

    /// A read that cannot be.
    pub(crate) fn refused(error: GetError) -> Self {
        let state = State::Refused(error);
        Self { state, ..Self::whole(BlockId::from_bytes([0; BlockId::LEN]), Destination::Allocate) }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self.state, State::Wanted(_))
    }

    pub(crate) fn is_delivered(&self) -> bool {
        matches!(self.state, State::Delivered(_))
    }

    /// Remembers why it will have been a miss.
    pub(crate) fn note(&mut self, miss: Miss) {
        if let State::Wanted(latest) = &mut self.state {
            *latest = miss;
        }
    }

    /// The operation that reads it; its token is the read's place in its batch.
    pub(crate) fn op(&self, token: usize) -> ReadOp {
        let Self { id, offset, len, .. } = *self;
        let (destination, used) = (self.into.clone(), self.used.clone());
        ReadOp { offset, len, used, ..ReadOp::whole(token as u64, id, destination) }
    }

    /// Takes note of an attempt's end.
    pub(crate) fn settle(&mut self, outcome: Result<Done, Failure>) -> Verdict {
        let (miss, verdict) = match outcome {
            Ok(Done::Read { slot, writer, bytes, data, copy, .. }) => {
                self.state = State::Delivered(Delivered { bytes, copy, data });
                return Verdict::Hit(Hit { slot, writer, bytes });
            }
            Err(Failure::TooSmall { block_len }) => {
                let needed = self.len.unwrap_or_else(|| block_len.saturating_sub(self.offset));
                self.state = State::Refused(GetError::BufferTooSmall { needed });
                return Verdict::Other;
            }
            Err(Failure::BadRange { block_len: block }) => {
                let (offset, len) = (self.offset, self.len.unwrap_or(0));
                self.state = State::Refused(GetError::BadRange { offset, len, block });
                return Verdict::Other;
            }
            Err(Failure::Miss) => (Miss::Absent, Verdict::Other),
            Err(Failure::LostRace) => (Miss::LostRace, Verdict::LostRace),
            Err(Failure::Corrupt(copy)) => (Miss::Corrupt, Verdict::Corrupt(copy)),
            Err(Failure::TimedOut | Failure::Cancelled) => (Miss::TimedOut, Verdict::Other),
            Err(Failure::Unavailable | Failure::Torn) | Ok(_) => (Miss::Unavailable, Verdict::Other),
        };
        self.note(miss);
        verdict
    }

    /// The answer. Counts a miss.
    pub(crate) fn answer(self, counters: &Counters) -> Result<Option<Delivered>, GetError> {
        let counter = match self.state {
            State::Delivered(delivered) => return Ok(Some(delivered)),
            State::Refused(error) => return Err(error),
            State::Wanted(Miss::Absent) => &counters.misses_absent,
            State::Wanted(Miss::NoCatalog) => &counters.misses_no_catalog,
            State::Wanted(Miss::Unsure) => &counters.misses_unsure,
            State::Wanted(Miss::LostRace) => &counters.misses_lost_race,
            State::Wanted(Miss::Corrupt) => &counters.misses_corrupt,
            State::Wanted(Miss::Unavailable) => &counters.misses_unavailable,
            State::Wanted(Miss::TimedOut) => &counters.misses_timed_out,
        };
        add(counter, 1);
        Ok(None)
    }
}

/// The read that a completion is about, if there is such a read.
pub(crate) fn read_of<'a>(reads: &'a mut [Read], completion: &Completion) -> Option<&'a mut Read> {
    reads.get_mut(usize::try_from(completion.token).ok()?)
}
