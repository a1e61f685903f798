//! Keys, and the checks that every entry point makes on a caller's input.

use crate::{MAX_BLOCK_LEN, MAX_KEY_LEN};
use thiserror::Error;

/// Invalid input of a caller. The message names the wrong value and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidInput {
    /// A key that is empty or longer than [`MAX_KEY_LEN`].
    #[error("key of {0} bytes: a key has 1 to {MAX_KEY_LEN} bytes")]
    KeyLength(usize),
    /// A block that is empty or larger than [`MAX_BLOCK_LEN`].
    #[error("block of {0} bytes: a block has 1 to {MAX_BLOCK_LEN} bytes")]
    BlockLength(u64),
    /// A range that does not lie inside its block.
    #[error(
        "range of {len} bytes at {offset} in a block of {block} bytes: a range has at least 1 byte and ends inside its block"
    )]
    Range {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes in the block.
        block: u64,
    },
    /// Text that is no name of a node.
    #[error(
        "node name {0:?}: a name has 1 to 64 characters out of a-z A-Z 0-9 . _ - :, and starts with a letter or a digit"
    )]
    NodeName(String),
}

/// A key whose length has been checked: 1 to [`MAX_KEY_LEN`] bytes of any value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// Checks the length of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, InvalidInput> {
        match bytes.len() {
            1..=MAX_KEY_LEN => Ok(Self(bytes)),
            len => Err(InvalidInput::KeyLength(len)),
        }
    }

    /// The key's bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl AsRef<[u8]> for Key<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

/// Checks that a block may have `len` bytes.
pub fn check_block_len(len: u64) -> Result<(), InvalidInput> {
    match len {
        1..=MAX_BLOCK_LEN => Ok(()),
        len => Err(InvalidInput::BlockLength(len)),
    }
}

/// Checks that `len` bytes at `offset` lie inside a block of `block` bytes.
pub fn check_range(offset: u64, len: u64, block: u64) -> Result<(), InvalidInput> {
    match offset.checked_add(len) {
        Some(end) if len > 0 && end <= block => Ok(()),
        _ => Err(InvalidInput::Range { offset, len, block }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_1024_bytes() {
        assert_eq!(Key::new(b""), Err(InvalidInput::KeyLength(0)));
        assert!(Key::new(&[0]).is_ok());
        assert!(Key::new(&[0xff; 1024]).is_ok());
        let error = Key::new(&[0; 1025]).unwrap_err();
        assert_eq!(error.to_string(), "key of 1025 bytes: a key has 1 to 1024 bytes");
    }

    #[test]
    fn a_block_has_1_byte_to_1_gib() {
        assert!(check_block_len(0).is_err());
        assert!(check_block_len(1).is_ok());
        assert!(check_block_len(1 << 30).is_ok());
        assert!(check_block_len((1 << 30) + 1).is_err());
    }

    #[test]
    fn a_range_ends_inside_its_block() {
        assert!(check_range(0, 10, 10).is_ok());
        assert!(check_range(10, 1, 10).is_err());
        assert!(check_range(0, 0, 10).is_err());
        assert!(check_range(u64::MAX, 2, 10).is_err());
    }
}
