//! The tail of a message: fields that came after the protocol was frozen, each with its tag and length.
//!
//! A receiver skips fields that it does not know, unless their sender marked them critical. Everything else about a tail has
//! one spelling: tags ascend, a field that says nothing is left out, and a value fills its field.

use crate::codec::{Codec, Reader};
use crate::frame::{FrameError, Kind, TailError};
use crate::tags::CRITICAL;

/// The most fields of one tail.
pub(crate) const MOST_FIELDS: usize = 64;

/// A message's own tail fields; by default none.
pub(crate) trait Tail {
    /// Appends the fields that say something, in the order of their tags.
    fn put_tail(&self, _out: &mut Vec<u8>) {}

    /// The field with this number, which is its tag without the critical bit, and its whole tag.
    fn field(&mut self, _number: u16) -> Option<(u16, &mut dyn Field)> {
        None
    }

    /// Checks the fields against the rest of the message. Called only for messages that came with a tail.
    fn check_tail(&self) -> Result<(), FrameError> {
        Ok(())
    }
}

/// The place for the value of a tail field.
pub(crate) trait Field {
    /// Reads the value, and tells whether it says something.
    fn fill(&mut self, reader: &mut Reader<'_>) -> Result<bool, FrameError>;
}

impl<T: Codec + Default + PartialEq> Field for T {
    fn fill(&mut self, reader: &mut Reader<'_>) -> Result<bool, FrameError> {
        *self = <T as Codec>::take(reader)?;
        Ok(*self != T::default())
    }
}

/// A list has no fields of its own.
impl<T> Tail for Vec<T> {}

/// Implements [`Tail`] for a message with these fields, in the order of their tags.
macro_rules! tail {
    ($type:ident { $($tag:path => $field:ident),* } $(check $check:expr)?) => {
        impl $crate::tail::Tail for $type {
            fn put_tail(&self, out: &mut Vec<u8>) {
                $($crate::tail::put($tag, &self.$field, out);)*
            }

            fn field(&mut self, number: u16) -> Option<(u16, &mut dyn $crate::tail::Field)> {
                match number {
                    $(number if number == $tag & !$crate::tags::CRITICAL => Some(($tag, &mut self.$field)),)*
                    _ => None,
                }
            }

            $(fn check_tail(&self) -> Result<(), $crate::frame::FrameError> {
                $check(self)
            })?
        }
    };
}

/// Implements [`Tail`] for messages without fields of their own.
macro_rules! tailless {
    ($($type:ty),*) => {
        $(impl $crate::tail::Tail for $type {})*
    };
}

pub(crate) use {tail, tailless};

/// Appends a field, unless it says nothing.
#[inline]
pub(crate) fn put<T: Codec + Default + PartialEq>(tag: u16, value: &T, out: &mut Vec<u8>) {
    if *value == T::default() {
        return;
    }
    tag.put(out);
    let start = out.len() + u32::MIN_LEN;
    u32::put(&0, out);
    value.put(out);
    // A length that does not fit 32 bits makes a body far above its bound, which encoding refuses as a whole.
    let len = (out.len() - start) as u32;
    out[start - u32::MIN_LEN..start].copy_from_slice(&len.to_le_bytes());
}

/// Reads all that follows the fixed fields of a message into its tail fields.
#[cold]
pub(crate) fn take(kind: Kind, mut message: Option<&mut dyn Tail>, mut reader: Reader<'_>) -> Result<(), FrameError> {
    let (mut before, mut fields) = (0, 0);
    while reader.left() > 0 {
        let tag = u16::take(&mut reader)?;
        let len = u32::take(&mut reader)?;
        let value = reader.bytes(len as usize)?;
        let number = tag & !CRITICAL;
        let wrong = |error| Err(FrameError::Tail { kind, number, error });
        fields += 1;
        if fields > MOST_FIELDS {
            return wrong(TailError::TooMany);
        }
        if number <= before {
            return wrong(TailError::Order { before });
        }
        if value.is_empty() {
            return wrong(TailError::Empty);
        }
        before = number;
        match message.as_deref_mut().and_then(|message| message.field(number)) {
            Some((known, _)) if known != tag => return wrong(TailError::Mark),
            Some((_, field)) => {
                let mut value = Reader::new(value);
                let says_something = field.fill(&mut value)?;
                match value.left() {
                    0 if says_something => {}
                    0 => return wrong(TailError::Empty),
                    left => return wrong(TailError::Trailing { left }),
                }
            }
            None if tag & CRITICAL != 0 => return wrong(TailError::Unknown),
            None => {}
        }
    }
    message.map_or(Ok(()), |message| message.check_tail())
}
