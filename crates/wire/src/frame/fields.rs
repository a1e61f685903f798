//! How each struct and enum of [`crate::message`] lies in a body: its fields in the order given here.

use super::runs::check_runs;
use crate::checksum::Sums;
use crate::codec::{Codec, Reader};
use crate::frame::FrameError;
use crate::message::{
    Blocks, Found, Get, GetItem, GetOutcome, Hello, Hit, Ids, Judge, Judgement, KeyEntry, Keys, List, Offer, Pattern,
    Pin, Pull, PullIds, PullOutcome, RangeBytes, RangeItem, RangeName, RangeOutcome, ReadRange, Reason, Refusal,
    Reserve, ReserveAs, ReserveItem, ReserveOutcome, Seal, SealItem, SealOutcome, SlotName, SupersedeOutcome,
    Superseded, Terms, Touch, ViewOutcome, Welcome, Write, WriteRange,
};
use crate::tags;
use crate::tail::{Field, Tail, tail, tailless};
use tidepool_types::{
    BlockId, ClientId, CopyName, Epoch, Generation, InvalidInput, Key, MAX_BLOCK_LEN, Tier, Version, check_block_len,
    chunk_count,
};

/// A struct: its fields one after the other, then a check of what was read. A message's own tail fields, with a check of the
/// whole message, come last; they are not part of the struct where it lies inside another message.
macro_rules! record {
    ($type:ident { $($field:ident: $of:ty),* } $(check $check:expr)?
     $(; tail { $($tag:path => $late:ident),* } $(check $whole:expr)?)?) => {
        impl Codec for $type {
            const MIN_LEN: usize = 0 $(+ <$of>::MIN_LEN)*;

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(<$of as Codec>::put(&self.$field, out);)*
            }

            #[inline]
            fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                $(let $field = <$of as Codec>::take(reader)?;)*
                let value = Self { $($field,)* $($($late: Default::default(),)*)? };
                $($check(&value)?;)?
                Ok(value)
            }
        }

        $(tail!($type { $($tag => $late),* } $(check $whole)?);)?
    };
}

/// An enum: a tag, then the case's fields, then zeros up to `$least` bytes, then a check of what was read. Cases of one width keep what decoding takes
/// in memory near the size of the body.
macro_rules! choice {
    ($type:ident, $least:expr;
     $($tag:literal => $case:ident $({ $($field:ident: $of:ty),* })? $(($item:ident: $is:ty))?,)*
     $(check $check:expr)?) => {
        impl Codec for $type {
            const MIN_LEN: usize = $least;

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                let start = out.len();
                match self {
                    $(Self::$case $({ $($field),* })? $(($item))? => {
                        out.push($tag);
                        $($($field.put(out);)*)?
                        $($item.put(out);)?
                    })*
                }
                out.resize(out.len().max(start + Self::MIN_LEN), 0);
            }

            #[inline]
            fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let before = reader.left();
                let value = match u8::take(reader)? {
                    $($tag => {
                        $($(let $field = <$of as Codec>::take(reader)?;)*)?
                        $(let $item = <$is as Codec>::take(reader)?;)?
                        Self::$case $({ $($field),* })? $(($item))?
                    })*
                    value => return Err(FrameError::Tag { what: stringify!($type), value }),
                };
                reader.padding(Self::MIN_LEN.saturating_sub(before - reader.left()))?;
                $($check(&value)?;)?
                Ok(value)
            }
        }
    };
}

record!(Hello { client: ClientId, wants_memory: bool });
record!(Welcome { node: String, epoch: Epoch, memory: bool, writable: bool };
    tail { tags::welcome::BUILD => build });
record!(SlotName { slot: u32, generation: Generation });

record!(Reserve { wait_millis: u32, mapped: bool, items: Vec<ReserveItem> };
    tail { tags::reserve::RUNS => runs } check |reserve: &Reserve| check_runs(&reserve.runs, reserve.items.len()));
record!(ReserveItem { key: Vec<u8>, len: u64 } check |item: &ReserveItem| {
    check_key(&item.key)?;
    check_block_len(item.len)
});
choice! { ReserveOutcome, 1 + SlotName::MIN_LEN + 8;
    0 => Taken { slot: SlotName, offset: u64 },
    1 => Held(copy: CopyName),
    2 => NoSpace,
    3 => TooLarge,
    4 => UseSocket,
    5 => Declined,
}

record!(ReserveAs { terms: Terms, reserve: Reserve });
/// That of the request for the space alone.
impl Tail for ReserveAs {
    fn put_tail(&self, out: &mut Vec<u8>) {
        self.reserve.put_tail(out);
    }

    fn field(&mut self, number: u16) -> Option<(u16, &mut dyn Field)> {
        self.reserve.field(number)
    }

    fn check_tail(&self) -> Result<(), FrameError> {
        self.reserve.check_tail()
    }
}
record!(Terms { version: Option<Version>, pin: Pin, groups: Vec<Option<BlockId>> });
choice! { Pin, 5;
    0 => None,
    1 => Soft { millis: u32 },
    2 => Hard,
}
record!(Superseded { items: Vec<SupersedeOutcome>, pullers: Vec<String> });
choice! { SupersedeOutcome, 1 + Version::MIN_LEN;
    0 => Absent,
    1 => Removed,
    2 => Kept(version: Version),
}
record!(Offer { node: String, ids: Vec<BlockId> }; tail { tags::offer::KEYS_WANTED => keys_wanted });
record!(Ids { ids: Vec<BlockId> };
    tail { tags::ids::RUNS => runs } check |ids: &Ids| check_runs(&ids.runs, ids.ids.len()));
record!(Found { copies: Vec<Option<(CopyName, u64)>> } check |found: &Found| {
    found.copies.iter().flatten().try_for_each(|(_, len)| check_block_len(*len))
}; tail { tags::found::KEYS => keys } check check_found_keys);

record!(Write { slot: SlotName, offset: u64 });
record!(Seal { wait_millis: u32, items: Vec<SealItem> });
record!(SealItem { slot: SlotName, checksums: Sums });
choice! { SealOutcome, 1 + CopyName::MIN_LEN;
    0 => Sealed(copy: CopyName),
    1 => Unknown,
    2 => Corrupt,
    3 => Held(copy: CopyName),
}

record!(Get { wait_millis: u32, items: Vec<GetItem> };
    tail { tags::get::RUNS => runs } check |get: &Get| check_runs(&get.runs, get.items.len()));
record!(GetItem { id: BlockId, copy: Option<CopyName>, offset: u64, len: u64 });
record!(Blocks { first: u32, items: Vec<GetOutcome> });
choice! { GetOutcome, 1 + Hit::MIN_LEN;
    0 => Hit(hit: Hit),
    1 => Miss,
    2 => BadRange { block_len: u64 },
    3 => Damaged,
    check |outcome: &GetOutcome| match outcome {
        GetOutcome::BadRange { block_len } => check_block_len(*block_len),
        _ => Ok(()),
    }
}
record!(Hit { copy: CopyName, writer: ClientId, block_len: u64, len: u64, checksums: Sums } check check_hit);

choice! { ViewOutcome, 1 + SlotName::MIN_LEN + 16;
    0 => Pinned { slot: SlotName, offset: u64, len: u64 },
    1 => Miss,
    2 => OverLimit,
    check |outcome: &ViewOutcome| match outcome {
        ViewOutcome::Pinned { len, .. } => check_block_len(*len),
        _ => Ok(()),
    }
}
record!(Touch { slots: Vec<SlotName>, hits: u64, foreign_hits: u64, bytes: u64, lost_races: u64 };
    tail { tags::touch::RUNS => runs, tags::touch::IDS => ids }
    check |touch: &Touch| check_runs(&touch.runs, touch.slots.len() + touch.ids.len()));

record!(Judge { remove: bool, writer: Option<ClientId>, ids: Vec<BlockId> });
choice! { Judgement, 1;
    0 => Absent,
    1 => Free,
    2 => Leased,
    3 => Foreign,
}

choice! { Pattern, 1;
    0 => All,
    1 => Regex(expression: String),
}
record!(List { pattern: Pattern, cursor: u64, limit: u32 });
record!(Keys { entries: Vec<KeyEntry>, next: Option<u64> }; tail { tags::keys::TIERS => tiers } check check_tiers);
record!(KeyEntry { key: Vec<u8>, len: u64, copy: CopyName, writer: ClientId, views: u32 } check |entry: &KeyEntry| {
    check_key(&entry.key)?;
    check_block_len(entry.len)
});

record!(Pull { wait_millis: u32, source: String, epoch: Epoch, remove_source: bool, keys: Vec<Vec<u8>> }
    check |pull: &Pull| pull.keys.iter().try_for_each(|key| check_key(key)));
record!(PullIds { wait_millis: u32, source: String, epoch: Epoch, remove_source: bool, ids: Vec<BlockId> });
choice! { PullOutcome, 1;
    0 => Copied,
    1 => Held,
    2 => Missing,
    3 => NoSpace,
    4 => Unavailable,
    5 => Joined,
}

record!(Refusal { reason: Reason, message: String });
choice! { Reason, 1;
    0 => Malformed,
    1 => Version,
    2 => Invalid,
    3 => Overloaded,
    4 => Stopping,
    5 => NotHere,
    6 => GivenUp,
}

record!(RangeName { range: u64, key: u64 });
record!(ReadRange { wait_millis: u32, items: Vec<RangeItem> });
record!(RangeItem { name: RangeName, offset: u64, len: u64 } check |item: &RangeItem| check_piece(item.offset, item.len));
record!(WriteRange { name: RangeName, offset: u64, checksums: Sums });
record!(RangeBytes { first: u32, items: Vec<RangeOutcome> });
choice! { RangeOutcome, 1 + u64::MIN_LEN + Sums::MIN_LEN;
    0 => Hit { len: u64, checksums: Sums },
    1 => Miss,
    2 => BadRange { range_len: u64 },
    check |outcome: &RangeOutcome| match outcome {
        RangeOutcome::Hit { len, checksums } => check_piece(0, *len).and_then(|()| check_checksums(checksums, *len)),
        _ => Ok(()),
    }
}

// Messages without tail fields of their own, as yet.
tailless!(Hello, Write, Seal, Judge, Superseded, Blocks, List, Pull, PullIds, Refusal, Pattern);
tailless!(ReadRange, WriteRange, RangeBytes, BlockId, u32, u64);

/// One tier for each block, and at least one that is not memory: otherwise there is nothing to say.
fn check_tiers(keys: &Keys) -> Result<(), FrameError> {
    let (tiers, entries) = (keys.tiers.len(), keys.entries.len());
    match tiers {
        0 => Ok(()),
        _ if tiers == entries && keys.tiers.iter().any(|tier| *tier != Tier::Dram) => Ok(()),
        _ => Err(FrameError::Tiers { tiers, entries }),
    }
}

fn check_found_keys(found: &Found) -> Result<(), FrameError> {
    found.keys.iter().try_for_each(|key| check_key(key))?;
    match (found.keys.len(), found.copies.iter().flatten().count()) {
        (0, _) => Ok(()),
        (keys, found) if keys == found => Ok(()),
        (keys, found) => Err(FrameError::FoundKeys { keys, found }),
    }
}

pub(super) fn check_piece(offset: u64, len: u64) -> Result<(), FrameError> {
    match len {
        1..=MAX_BLOCK_LEN if offset.checked_add(len).is_some() => Ok(()),
        len => Err(FrameError::Piece { offset, len }),
    }
}

/// Checks that a piece has a checksum for each of its chunks, which start where it starts.
pub(super) fn check_checksums(checksums: &Sums, len: u64) -> Result<(), FrameError> {
    match checksums.len() {
        found if found as u64 == chunk_count(len) => Ok(()),
        found => Err(FrameError::Checksums { found, len }),
    }
}

fn check_key(key: &[u8]) -> Result<(), InvalidInput> {
    Key::new(key).map(|_| ())
}

/// Checks what is known without the request: where the range starts decides between two possible numbers of checksums.
fn check_hit(hit: &Hit) -> Result<(), FrameError> {
    check_block_len(hit.block_len)?;
    tidepool_types::check_range(0, hit.len, hit.block_len)?;
    let fewest = chunk_count(hit.len);
    match hit.checksums.len() as u64 {
        found if found == fewest || found == fewest + 1 => Ok(()),
        _ => Err(FrameError::Checksums { found: hit.checksums.len(), len: hit.len }),
    }
}
