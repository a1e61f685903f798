//! The messages of the data plane, as values. [`crate::frame`] says how they lie on the wire.
//!
//! One request is answered by one reply with the same request number. [`Request::Touch`], [`Request::Unview`],
//! [`Request::ReportCorrupt`], [`Request::Lease`] and [`Request::Cancel`] are not answered. [`Request::Get`] and
//! [`Request::ReadRange`] may be answered by several frames, which together cover the items in order. Batches answer per item, in
//! the order of the request.

mod pull;
mod range;
mod usage;

pub use pull::{Offer, Pull, PullIds, PullOutcome};
pub use range::{RangeBytes, RangeItem, RangeName, RangeOutcome, ReadRange, WriteRange};
pub use usage::{Ids, Run};

use crate::checksum::Sums;
use tidepool_types::{BlockId, ClientId, CopyName, Epoch, Generation, Tier, Version};

/// The most ids in one [`Request::Confirm`], [`Request::View`] or [`Request::Remove`] that a client sends: request and reply
/// each fit a frame's body several times over, so neither side holds a large batch whole.
pub const BATCH_IDS: usize = 1 << 16;
/// The same for keys, of whatever lengths: the blocks of one [`Request::Reserve`], [`Request::Seal`] or [`Request::Pull`].
pub const BATCH_KEYS: usize = 4096;

/// What a client asks of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The first frame of every connection.
    Hello(Hello),
    /// Takes space for blocks about to be written; answered by [`Reply::Reserved`].
    Reserve(Reserve),
    /// Bytes for a reservation: the frame's payload; answered by [`Reply::Written`] once they are in place.
    Write(Write),
    /// Makes written reservations visible; answered by [`Reply::Sealed`].
    Seal(Seal),
    /// Gives reservations back; answered by [`Reply::Done`]. An empty list gives back everything that closed connections
    /// of the same client in the same process have left behind: the client promises that it no longer writes to it.
    Abort(Vec<SlotName>),
    /// Reads blocks or parts of them; answered by one or more [`Reply::Blocks`].
    Get(Get),
    /// Asks which blocks are held, and counts as a use of those that are; answered by [`Reply::Found`].
    Confirm(Ids),
    /// Pins blocks for borrowed views (Unix sockets only); answered by [`Reply::Views`].
    View(Ids),
    /// Lets views go. Not answered.
    Unview(Vec<SlotName>),
    /// What a reader on this host has read since its last report. Not answered.
    Touch(Touch),
    /// Removes blocks; answered by [`Reply::Removed`] with one flag per id.
    Remove(Vec<BlockId>),
    /// Removes every block whose key matches; answered by [`Reply::Count`].
    RemoveMatching(Pattern),
    /// Lists keys; answered by [`Reply::Keys`].
    List(List),
    /// Has the node copy blocks from another node; answered by [`Reply::Pulled`].
    Pull(Pull),
    /// A reader found a copy's checksum wrong; the owner checks it. Not answered.
    ReportCorrupt(Vec<(BlockId, CopyName)>),
    /// Asks for the node's numbers; answered by [`Reply::Stat`].
    Stat,
    /// Asks what the node knows about one block; answered by [`Reply::Keys`] with at most one entry.
    Describe(BlockId),
    /// From now on, what this connection reads, views or has described is leased for so many milliseconds. Not answered.
    Lease(u32),
    /// Asks for a ring to note leases of same-host reads in (Unix sockets only); answered by [`Reply::Ring`].
    LeaseRing,
    /// Asks which blocks are leased, and removes the others if told to; answered by [`Reply::Judged`].
    Judge(Judge),
    /// As [`Request::Reserve`], for blocks with [`Terms`]; answered by [`Reply::Reserved`].
    ReserveAs(ReserveAs),
    /// Removes copies that are older than a version, each block its own; answered by [`Reply::Superseded`].
    Supersede(Vec<(BlockId, Version)>),
    /// As [`Request::Confirm`], from a node that is about to copy the blocks; answered by [`Reply::Found`].
    Offer(Offer),
    /// Asks which pool the node is of; answered by [`Reply::Catalogs`].
    Catalogs,
    /// The bytes of whole reservations, one after the other as the frame's payload, which are made visible once they are in
    /// place: Writes and a [`Request::Seal`] in one, for small blocks; answered by [`Reply::Sealed`].
    Fill(Seal),
    /// For so many milliseconds from now, an hour at most, the node takes no new blocks; zero: it does again. Answered by
    /// [`Reply::Count`]: how many blocks are still on their way in.
    Drain(u32),
    /// Reads pieces of registered ranges; answered by one or more [`Reply::RangeBytes`].
    ReadRange(ReadRange),
    /// Writes the frame's payload into a registered range; answered by [`Reply::Written`] once all bytes are in place and
    /// match their checksums.
    WriteRange(WriteRange),
    /// The answer to the request of this connection with this number is no longer wanted. Not answered; that request still is, by
    /// what it would have been or by [`Reply::Refused`] with [`Reason::GivenUp`].
    Cancel(u64),
    /// As [`Request::Pull`], by id; a block that another pull is bringing already is waited for. Answered by [`Reply::Pulled`].
    PullIds(PullIds),
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::Hello`].
    Welcome(Welcome),
    /// To [`Request::Reserve`].
    Reserved(Vec<ReserveOutcome>),
    /// To [`Request::Write`] and [`Request::WriteRange`].
    Written,
    /// To [`Request::Seal`] and [`Request::Fill`].
    Sealed(Vec<SealOutcome>),
    /// To [`Request::Abort`].
    Done,
    /// To [`Request::Get`]: the items' bytes follow as the frame's payload, hits only, in order.
    Blocks(Blocks),
    /// To [`Request::Confirm`] and [`Request::Offer`].
    Found(Found),
    /// To [`Request::View`].
    Views(Vec<ViewOutcome>),
    /// To [`Request::Remove`]: whether each block was there.
    Removed(Vec<bool>),
    /// To [`Request::RemoveMatching`] and [`Request::Drain`].
    Count(u64),
    /// To [`Request::List`] and [`Request::Describe`].
    Keys(Keys),
    /// To [`Request::Pull`] and [`Request::PullIds`].
    Pulled(Vec<PullOutcome>),
    /// To [`Request::Stat`]: named numbers, the same names as the node's metrics.
    Stat(Vec<(String, u64)>),
    /// To [`Request::LeaseRing`]: one file descriptor travels with this frame, the ring, writable.
    Ring,
    /// To [`Request::Judge`].
    Judged(Vec<Judgement>),
    /// To [`Request::Supersede`].
    Superseded(Superseded),
    /// To [`Request::Catalogs`]: the addresses of the catalogs that the node announces to, `host:port` each.
    Catalogs(Vec<String>),
    /// To [`Request::ReadRange`]: the items' bytes follow as the frame's payload, hits only, in order.
    RangeBytes(RangeBytes),
    /// The request as a whole could not be served.
    Refused(Refusal),
}

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The client's incarnation: all its connections carry the same.
    pub client: ClientId,
    /// Whether the client wants the node's memory mapped (Unix sockets only).
    pub wants_memory: bool,
}

/// Who answers. On a Unix socket that wants memory, file descriptors travel with this frame: the map file and the slab,
/// read-only, and then, if `writable`, the slab once more, writable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The node's name.
    pub node: String,
    /// The node's incarnation.
    pub epoch: Epoch,
    /// Whether file descriptors come with this frame.
    pub memory: bool,
    /// Whether the slab comes writable and views may be asked for.
    pub writable: bool,
    /// The release that the node was built from; empty if it does not say.
    pub build: String,
}

/// A reservation or a view by its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotName {
    /// The slot's number.
    pub slot: u32,
    /// The slot's incarnation.
    pub generation: Generation,
}

/// Space for a batch of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserve {
    /// How long the node may wait for space.
    pub wait_millis: u32,
    /// Whether the writer has the slab mapped writable and will copy the bytes in itself.
    pub mapped: bool,
    /// The blocks.
    pub items: Vec<ReserveItem>,
    /// Whose uses they are.
    pub runs: Vec<Run>,
}

/// Space for one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveItem {
    /// The block's key.
    pub key: Vec<u8>,
    /// The block's length.
    pub len: u64,
}

/// What became of one item of a [`Reserve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// Space is taken: write `len` bytes at `offset` of the slab.
    Taken {
        /// The reservation.
        slot: SlotName,
        /// Where the bytes go in the slab.
        offset: u64,
    },
    /// The node holds the block already; nothing need be written.
    Held(CopyName),
    /// No space could be made before the deadline.
    NoSpace,
    /// The block is larger than the node's whole pool.
    TooLarge,
    /// The writer has too much in quarantine to be given mapped space: send the bytes through the socket.
    UseSocket,
    /// The node is full and does not give up another block for this one: as if it had been evicted at once.
    Declined,
}

/// A piece of a reservation's bytes; the payload is the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The reservation.
    pub slot: SlotName,
    /// Where in the block the piece starts.
    pub offset: u64,
}

/// Reservations to make visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// How long the node may wait for catalogs to hear of the blocks.
    pub wait_millis: u32,
    /// The reservations, each with its chunk checksums.
    pub items: Vec<SealItem>,
}

/// One reservation to make visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealItem {
    /// The reservation.
    pub slot: SlotName,
    /// One checksum per chunk of the block, made from the bytes that the writer meant to write.
    pub checksums: Sums,
}

/// What became of one item of a [`Seal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealOutcome {
    /// The block is visible under this name.
    Sealed(CopyName),
    /// The reservation is not (or no longer) the writer's.
    Unknown,
    /// The number of checksums does not fit the block's length, or bytes sent through the socket do not match them.
    Corrupt,
    /// Another writer sealed the same block first: that copy stays, and what this writer wrote is gone.
    Held(CopyName),
}

/// A batch of reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Get {
    /// How long the reader will wait for the whole batch.
    pub wait_millis: u32,
    /// The reads.
    pub items: Vec<GetItem>,
    /// Whose uses they are.
    pub runs: Vec<Run>,
}

/// One read: a range of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetItem {
    /// The block.
    pub id: BlockId,
    /// The copy that an earlier answer named, when this read continues it.
    pub copy: Option<CopyName>,
    /// First byte.
    pub offset: u64,
    /// The most bytes wanted; a block that ends earlier gives fewer.
    pub len: u64,
}

/// Answers to consecutive items of a [`Get`], starting with item `first`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// The first item answered by this frame.
    pub first: u32,
    /// One outcome per item.
    pub items: Vec<GetOutcome>,
}

/// What became of one [`GetItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetOutcome {
    /// `len` bytes of the payload.
    Hit(Hit),
    /// The node does not hold the block, or not that copy of it.
    Miss,
    /// The range does not lie in the block.
    BadRange {
        /// The block's length.
        block_len: u64,
    },
    /// The owner found its copy damaged and has quarantined it.
    Damaged,
}

/// A range of a block that follows as payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// The copy the bytes are from.
    pub copy: CopyName,
    /// Who wrote the block.
    pub writer: ClientId,
    /// The whole block's length.
    pub block_len: u64,
    /// Bytes of the range.
    pub len: u64,
    /// One checksum per chunk that the range touches: the block's own where the range covers the whole chunk, and one
    /// over just the covered part (after the owner has verified the chunk) at a ragged end.
    pub checksums: Sums,
}

/// What became of one item of a [`Request::View`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewOutcome {
    /// The block is pinned at this place of the slab.
    Pinned {
        /// The pinned slot.
        slot: SlotName,
        /// Where the block starts in the slab.
        offset: u64,
        /// The block's length.
        len: u64,
    },
    /// The node does not hold the block.
    Miss,
    /// The client holds as many pinned bytes as it may: copy instead.
    OverLimit,
}

/// What a same-host reader has done since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touch {
    /// Blocks read, in order.
    pub slots: Vec<SlotName>,
    /// Reads that hit.
    pub hits: u64,
    /// Of these, reads of blocks that another client wrote.
    pub foreign_hits: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Reads that lost a race against reuse of the slot.
    pub lost_races: u64,
    /// Whose uses they are: runs over the blocks of `slots`, then those of `ids`.
    pub runs: Vec<Run>,
    /// Further blocks that were used, in order, for readers that do not know their slots.
    pub ids: Vec<BlockId>,
}

/// Blocks that somebody would like to see gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judge {
    /// Whether blocks that nothing protects are removed.
    pub remove: bool,
    /// Only blocks that this client wrote, if one is named.
    pub writer: Option<ClientId>,
    /// The blocks.
    pub ids: Vec<BlockId>,
}

/// What a node makes of one block of a [`Judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Judgement {
    /// The node does not hold it.
    Absent = 0,
    /// Nothing protects it: it is gone, if it was to be removed.
    Free = 1,
    /// Somebody has read it lately: it stays.
    Leased = 2,
    /// Another client wrote it: it stays.
    Foreign = 3,
}

/// What a writer wants for its blocks beyond their being stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// The blocks' version, if they are to take the place of older ones. Otherwise a block that is held already stays.
    pub version: Option<Version>,
    /// What keeps them from being evicted.
    pub pin: Pin,
    /// The group of each block, if any of them has one: blocks that are leased together and are best evicted together.
    pub groups: Vec<Option<BlockId>>,
}

/// What keeps a block from being evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pin {
    /// Nothing but its being used.
    #[default]
    None,
    /// It goes last, for so long.
    Soft {
        /// Milliseconds from when it is sealed.
        millis: u32,
    },
    /// It stays until it is removed.
    Hard,
}

/// Space for a batch of blocks with [`Terms`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveAs {
    /// What is wanted for them.
    pub terms: Terms,
    /// The blocks.
    pub reserve: Reserve,
}

/// What became of a [`Request::Supersede`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superseded {
    /// One per block.
    pub items: Vec<SupersedeOutcome>,
    /// Nodes that lately copied any of the blocks from this one.
    pub pullers: Vec<String>,
}

/// What became of one block of a [`Request::Supersede`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupersedeOutcome {
    /// The node does not hold it.
    Absent,
    /// An older copy was there, and is gone.
    Removed,
    /// The node holds this version of it, which is no older.
    Kept(Version),
}

/// Which blocks are held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The copy and length of each block that is held.
    pub copies: Vec<Option<(CopyName, u64)>>,
    /// The keys of those that are, in order, if they were wanted.
    pub keys: Vec<Vec<u8>>,
}

impl From<Vec<Option<(CopyName, u64)>>> for Found {
    fn from(copies: Vec<Option<(CopyName, u64)>>) -> Self {
        Self { copies, ..Self::default() }
    }
}

/// Which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Every key.
    All,
    /// Keys in which this regular expression is found.
    Regex(String),
}

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// Which keys.
    pub pattern: Pattern,
    /// Where the previous page ended; zero to start.
    pub cursor: u64,
    /// At most this many keys.
    pub limit: u32,
}

/// Keys of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    /// The blocks.
    pub entries: Vec<KeyEntry>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<u64>,
    /// The tier of each block; empty when all are in memory.
    pub tiers: Vec<Tier>,
}

/// A block as its owner lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The block's length.
    pub len: u64,
    /// The copy.
    pub copy: CopyName,
    /// Who wrote it.
    pub writer: ClientId,
    /// Views held on it.
    pub views: u32,
}

/// Why a request as a whole was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The case, for programs.
    pub reason: Reason,
    /// The sentence, for people: what was wrong and what is allowed.
    pub message: String,
}

/// The cases of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The frame or message makes no sense.
    Malformed = 0,
    /// The protocol version, the message or a critical field of it is not known here.
    Version = 1,
    /// The request is well formed and asks for something that is not allowed.
    Invalid = 2,
    /// The node serves as many connections or bytes as it may.
    Overloaded = 3,
    /// The node is stopping.
    Stopping = 4,
    /// The request is only served on a Unix socket with mapped memory.
    NotHere = 5,
    /// The client gave the request up.
    GivenUp = 6,
}
