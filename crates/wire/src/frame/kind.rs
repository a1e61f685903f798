//! The numbers of the messages on the wire. They are frozen: a number is never reused or given another meaning.

use crate::codec::{Codec, Reader};
use crate::frame::FrameError;
use crate::message::{
    Blocks, Found, Get, Hello, Ids, Judge, Judgement, Keys, List, Offer, Pattern, Pull, PullIds, PullOutcome,
    RangeBytes, ReadRange, Refusal, Reply, Request, Reserve, ReserveAs, ReserveOutcome, Seal, SealOutcome, SlotName,
    Superseded, Touch, ViewOutcome, Welcome, Write, WriteRange,
};
use crate::tail::{self, Tail};
use tidepool_types::{BlockId, CopyName, Version};

/// From this number on, messages are replies.
const FIRST_REPLY: u8 = 0x80;

/// What a frame's body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A [`Request`].
    Request(RequestKind),
    /// A [`Reply`].
    Reply(ReplyKind),
    /// A message with a number that this side does not know. Its body is read and verified, its payload skipped.
    Unknown(u8),
}

impl Kind {
    /// The message with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        let known =
            RequestKind::from_code(code).map(Self::Request).or_else(|| ReplyKind::from_code(code).map(Self::Reply));
        known.unwrap_or(Self::Unknown(code))
    }

    /// The message's number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Request(kind) => kind as u8,
            Self::Reply(kind) => kind as u8,
            Self::Unknown(code) => code,
        }
    }

    /// Whether nodes send it; otherwise clients do.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.code() >= FIRST_REPLY
    }
}

/// Gives each message of one direction its number, and writes and reads its body: the variant's only field, if it has
/// one, and a tail.
macro_rules! messages {
    ($message:ident, $kind:ident: $($code:literal => $variant:ident $(($name:ident: $body:ty))?,)*) => {
        #[doc = concat!("The number of each [`", stringify!($message), "`].")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $kind {
            $(#[doc = concat!("[`", stringify!($message), "::", stringify!($variant), "`].")] $variant = $code,)*
        }

        impl $kind {
            /// Every number there is, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $message {
            /// The message's number on the wire.
            #[must_use]
            pub fn kind(&self) -> $kind {
                match self {
                    $(Self::$variant { .. } => $kind::$variant,)*
                }
            }

            pub(super) fn put_body(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($name))? => {
                        $($name.put(out);)?
                        $($name.put_tail(out);)?
                    })*
                }
            }

            pub(super) fn take_body(kind: $kind, body: &[u8]) -> Result<Self, FrameError> {
                let mut reader = Reader::new(body);
                let mut message = match kind {
                    $($kind::$variant => Self::$variant $((<$body as Codec>::take(&mut reader)?))?,)*
                };
                if reader.left() > 0 {
                    tail::take(Kind::$message(kind), message.tail(), reader)?;
                }
                Ok(message)
            }

            fn tail(&mut self) -> Option<&mut dyn Tail> {
                match self {
                    $(Self::$variant $(($name))? => None $(.or(Some($name as &mut dyn Tail)))?,)*
                }
            }
        }
    };
}

messages! { Request, RequestKind:
    0x01 => Hello(hello: Hello),
    0x02 => Reserve(reserve: Reserve),
    0x03 => Write(write: Write),
    0x04 => Seal(seal: Seal),
    0x05 => Abort(slots: Vec<SlotName>),
    0x06 => Get(get: Get),
    0x07 => Confirm(ids: Ids),
    0x08 => View(ids: Ids),
    0x09 => Unview(slots: Vec<SlotName>),
    0x0a => Touch(touch: Touch),
    0x0b => Remove(ids: Vec<BlockId>),
    0x0c => RemoveMatching(pattern: Pattern),
    0x0d => List(list: List),
    0x0e => Pull(pull: Pull),
    0x0f => ReportCorrupt(copies: Vec<(BlockId, CopyName)>),
    0x10 => Stat,
    0x11 => Describe(id: BlockId),
    0x12 => Lease(millis: u32),
    0x13 => LeaseRing,
    0x14 => Judge(judge: Judge),
    0x15 => ReserveAs(reserve: ReserveAs),
    0x16 => Supersede(items: Vec<(BlockId, Version)>),
    0x17 => Offer(offer: Offer),
    0x18 => Catalogs,
    0x19 => Fill(seal: Seal),
    0x1a => Drain(millis: u32),
    0x1b => ReadRange(read: ReadRange),
    0x1c => WriteRange(write: WriteRange),
    0x1d => Cancel(number: u64),
    0x1e => PullIds(pull: PullIds),
}

messages! { Reply, ReplyKind:
    0x80 => Refused(refusal: Refusal),
    0x81 => Welcome(welcome: Welcome),
    0x82 => Reserved(outcomes: Vec<ReserveOutcome>),
    0x83 => Written,
    0x84 => Sealed(outcomes: Vec<SealOutcome>),
    0x85 => Done,
    0x86 => Blocks(blocks: Blocks),
    0x87 => Found(found: Found),
    0x88 => Views(outcomes: Vec<ViewOutcome>),
    0x89 => Removed(flags: Vec<bool>),
    0x8a => Count(count: u64),
    0x8b => Keys(keys: Keys),
    0x8c => Pulled(outcomes: Vec<PullOutcome>),
    0x8d => Stat(numbers: Vec<(String, u64)>),
    0x8e => Ring,
    0x8f => Judged(judgements: Vec<Judgement>),
    0x90 => Superseded(superseded: Superseded),
    0x91 => Catalogs(addresses: Vec<String>),
    0x92 => RangeBytes(bytes: RangeBytes),
}
