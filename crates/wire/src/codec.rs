//! How values lie in a frame's body: little-endian, packed, nothing aligned.
//!
//! One trait writes and reads every value, so the two directions cannot drift apart. Reading takes untrusted bytes: every
//! length is checked against what is left of the body before memory is taken for it, so decoding never takes more than
//! a small multiple of the body's size.

use crate::checksum::Sums;
use crate::frame::FrameError;
use tidepool_types::{BlockId, ClientId, CopyName, Epoch, Generation, Tier, Version};

/// The part of a body that has not been read yet.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], FrameError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else { return Err(self.too_short(len)) };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let Some((head, rest)) = self.rest.split_first_chunk() else { return Err(self.too_short(N)) };
        self.rest = rest;
        Ok(*head)
    }

    /// Skips `len` bytes that must be zero, so that a message has exactly one spelling.
    pub(crate) fn padding(&mut self, len: usize) -> Result<(), FrameError> {
        match is_zero(self.bytes(len)?) {
            true => Ok(()),
            false => Err(FrameError::Padding),
        }
    }

    /// The count of a sequence whose items take at least `item` bytes each.
    #[inline]
    fn count(&mut self, item: usize) -> Result<usize, FrameError> {
        let count = u32::take(self)?;
        match (count as usize).checked_mul(item) {
            Some(needed) if needed <= self.left() => Ok(count as usize),
            _ => Err(FrameError::Count { count, item, left: self.left() }),
        }
    }

    #[cold]
    fn too_short(&self, needed: usize) -> FrameError {
        FrameError::Truncated { needed, left: self.left() }
    }
}

/// Without a branch per byte, so that a few bytes of a known length become a few wide instructions.
#[inline]
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

/// A value with one spelling on the wire.
pub(crate) trait Codec: Sized {
    /// The fewest bytes the value can take: bounds a sequence's count before memory is taken for it.
    const MIN_LEN: usize;

    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the value and checks it.
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError>;

    /// Appends values back to back; types that are plain bytes do it at the speed of a copy.
    fn put_all(items: &[Self], out: &mut Vec<u8>) {
        out.reserve(items.len() * Self::MIN_LEN);
        items.iter().for_each(|item| item.put(out));
    }

    /// Reads `count` values, a number already checked against the bytes left.
    fn take_all(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, FrameError> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(Self::take(reader)?);
        }
        Ok(items)
    }
}

/// Implements [`Codec`] for types that are a fixed array of bytes.
macro_rules! plain {
    ($($type:ty, $len:literal: |$value:ident| $to:expr, |$array:ident| $from:expr;)*) => {$(
        impl Codec for $type {
            const MIN_LEN: usize = $len;

            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                let $value = self;
                out.extend_from_slice(&$to);
            }

            #[inline]
            fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let $array: [u8; $len] = reader.array()?;
                Ok($from)
            }

            fn put_all(items: &[Self], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + items.len() * $len, 0);
                let (places, _) = out[start..].as_chunks_mut::<$len>();
                places.iter_mut().zip(items).for_each(|(place, $value)| *place = $to);
            }

            fn take_all(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, FrameError> {
                let (arrays, _) = reader.bytes(count * $len)?.as_chunks::<$len>();
                Ok(arrays.iter().map(|&$array| $from).collect())
            }
        }
    )*};
}

plain! {
    u8, 1: |value| [*value], |array| array[0];
    u16, 2: |value| value.to_le_bytes(), |array| u16::from_le_bytes(array);
    u32, 4: |value| value.to_le_bytes(), |array| u32::from_le_bytes(array);
    u64, 8: |value| value.to_le_bytes(), |array| u64::from_le_bytes(array);
    BlockId, 16: |id| *id.as_bytes(), |array| BlockId::from_bytes(array);
    Epoch, 8: |epoch| epoch.0.to_le_bytes(), |array| Epoch(u64::from_le_bytes(array));
    Generation, 8: |generation| generation.0.to_le_bytes(), |array| Generation(u64::from_le_bytes(array));
    ClientId, 8: |client| client.0.to_le_bytes(), |array| ClientId(u64::from_le_bytes(array));
    Version, 8: |version| version.0.to_le_bytes(), |array| Version(u64::from_le_bytes(array));
}

impl Codec for Tier {
    const MIN_LEN: usize = 1;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Tier::try_from(u8::take(reader)?).map_err(|value| FrameError::Tag { what: "Tier", value })
    }
}

impl Codec for bool {
    const MIN_LEN: usize = 1;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(FrameError::Tag { what: "flag", value }),
        }
    }
}

impl<T: Codec> Codec for Vec<T> {
    const MIN_LEN: usize = 4;

    /// A count that does not fit 32 bits makes a body far above its bound, which encoding refuses as a whole.
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        T::put_all(self, out);
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        const { assert!(T::MIN_LEN > 0, "items without bytes would leave their count unbounded") };
        let count = reader.count(T::MIN_LEN)?;
        T::take_all(reader, count)
    }
}

/// As a `Vec<u32>`.
impl Codec for Sums {
    const MIN_LEN: usize = 4;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        u32::put_all(self, out);
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let count = reader.count(u32::MIN_LEN)?;
        let (sums, _) = reader.bytes(count * u32::MIN_LEN)?.as_chunks();
        Ok(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }
}

impl Codec for String {
    const MIN_LEN: usize = 4;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let len = reader.count(1)?;
        str::from_utf8(reader.bytes(len)?).map(str::to_owned).map_err(|_| FrameError::Utf8)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    const MIN_LEN: usize = A::MIN_LEN + B::MIN_LEN;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok((A::take(reader)?, B::take(reader)?))
    }
}

/// An option whose absence is spelled by zero bytes in the place of the value, so that every item of a batch has the
/// same width. `None` comes back when the value's place holds zeros; a value never does.
impl<T: Codec + Absent> Codec for Option<T> {
    const MIN_LEN: usize = T::MIN_LEN;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.put(out),
            None => out.resize(out.len() + T::MIN_LEN, 0),
        }
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        if reader.rest.get(..T::MIN_LEN).is_some_and(is_zero) {
            reader.bytes(T::MIN_LEN)?;
            return Ok(None);
        }
        T::take(reader).map(Some)
    }
}

/// Types of a fixed width whose values are never all zero bytes.
pub(crate) trait Absent {}

/// Generation zero names no copy.
impl Absent for CopyName {}
impl Absent for (CopyName, u64) {}
/// No client has number zero, no version is zero, and no key hashes to zeros.
impl Absent for ClientId {}
impl Absent for Version {}
impl Absent for BlockId {}
/// The cursor of a next page: zero is the first page, which is never next.
impl Absent for u64 {}

impl Codec for CopyName {
    const MIN_LEN: usize = Epoch::MIN_LEN + Generation::MIN_LEN;

    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.epoch.put(out);
        self.generation.put(out);
    }

    #[inline]
    fn take(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let copy = Self { epoch: Epoch::take(reader)?, generation: Generation::take(reader)? };
        match copy.generation {
            Generation(0) => Err(FrameError::NoCopy),
            _ => Ok(copy),
        }
    }
}
