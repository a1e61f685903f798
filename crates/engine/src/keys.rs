//! Keys of KV blocks: a prefix that stands for interchangeable bytes, then the engine's hash of the block in
//! hexadecimal.

/// Block hashes of one length, packed end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hashes {
    bytes: Vec<u8>,
    width: usize,
}

impl Hashes {
    /// Hashes of `width` bytes each; `None` unless `bytes` is a whole number of them.
    #[must_use]
    pub fn new(bytes: Vec<u8>, width: usize) -> Option<Self> {
        let whole = if width == 0 { bytes.is_empty() } else { bytes.len().is_multiple_of(width) };
        whole.then_some(Self { bytes, width })
    }

    /// Number of hashes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len().checked_div(self.width).unwrap_or(0)
    }

    /// Whether there are no hashes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The hash at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(index * self.width..(index + 1) * self.width)
    }

    /// The last hash. Hashes are chained, so it stands for all before it.
    #[must_use]
    pub fn last(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Every `step`-th hash, from the end of the first group of `step` on. The last of its hashes names a block of
    /// `step` hashed blocks.
    pub fn every(&self, step: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.width.max(1)).skip(step - 1).step_by(step)
    }
}

/// The prefix of all keys of one chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPrefix(String);

impl KeyPrefix {
    /// Keys that start with `prefix`.
    #[must_use]
    pub fn new(prefix: impl Into<String>) -> Self {
        Self(prefix.into())
    }

    /// The key of the block with this hash.
    #[must_use]
    pub fn key(&self, hash: &[u8]) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = Vec::with_capacity(self.0.len() + 2 * hash.len());
        key.extend_from_slice(self.0.as_bytes());
        for byte in hash {
            key.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_prefix_and_the_hash_in_hexadecimal() {
        assert_eq!(KeyPrefix::new("vllm/ab/").key(&[0x00, 0x9f, 0xff]), b"vllm/ab/009fff");
    }

    #[test]
    fn a_block_of_several_hashed_blocks_is_named_by_the_last() {
        let hashes = Hashes::new((0..10).collect(), 2).unwrap();
        assert_eq!(hashes.len(), 5);
        assert_eq!(hashes.every(1).count(), 5);
        assert_eq!(hashes.every(2).collect::<Vec<_>>(), [[2, 3], [6, 7]]);
        assert_eq!(hashes.last(), Some(&[8, 9][..]));
    }

    #[test]
    fn hashes_that_are_not_whole_are_refused() {
        assert!(Hashes::new(vec![0; 5], 2).is_none());
        assert!(Hashes::new(vec![0; 5], 0).is_none());
        assert!(Hashes::new(Vec::new(), 0).is_some_and(|hashes| hashes.is_empty() && hashes.last().is_none()));
    }
}
