//! A block's bytes in the caller's memory: in one place, or scattered over several; in the host's memory, or in a device's.

use crate::device::DeviceParts;
use std::io::IoSlice;
use tidepool_transfer::ops::{Region, Regions};

/// The bytes of a block to be stored: one slice, or several that make up the block in order.
#[derive(Debug, Clone)]
pub enum Parts<'a> {
    /// All bytes in one place.
    One(&'a [u8]),
    /// Bytes over several places, in order.
    Many(Vec<&'a [u8]>),
    /// Bytes in a device's memory. They can be stored on a node of this host only, from where further copies are made.
    Device(DeviceParts<'a>),
}

impl<'a> Parts<'a> {
    /// The parts that this process can address: all of them, or none.
    fn as_slice(&self) -> &[&'a [u8]] {
        match self {
            Self::One(bytes) => std::slice::from_ref(bytes),
            Self::Many(parts) => parts,
            Self::Device(_) => &[],
        }
    }

    /// The bytes, if they are in a device's memory.
    pub(crate) fn on_device(&self) -> Option<&DeviceParts<'a>> {
        if let Self::Device(parts) = self { Some(parts) } else { None }
    }

    /// Bytes in all parts together.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Self::Device(parts) => tidepool_transfer::door::total(&parts.pieces),
            parts => parts.as_slice().iter().map(|part| part.len() as u64).sum(),
        }
    }

    pub(crate) fn regions(&self) -> Regions {
        match self {
            Self::One(bytes) => Regions::One(Region::of(bytes)),
            parts => Regions::Many(parts.as_slice().iter().map(|part| Region::of(part)).collect()),
        }
    }

    /// The parts one after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.as_slice().iter().copied()
    }

    /// `len` bytes at `start`, as the pieces that they lie in.
    pub(crate) fn slices(&self, start: u64, len: u64) -> Vec<IoSlice<'a>> {
        let (mut skip, mut left) = (start, len);
        let mut pieces = Vec::new();
        for part in self.iter() {
            let from = skip.min(part.len() as u64);
            let piece = &part[from as usize..];
            let piece = &piece[..piece.len().min(left as usize)];
            skip -= from;
            left -= piece.len() as u64;
            if !piece.is_empty() {
                pieces.push(IoSlice::new(piece));
            }
        }
        pieces
    }
}

impl<'a> From<&'a [u8]> for Parts<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::One(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Parts<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::One(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Parts<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::One(bytes)
    }
}

impl<'a> From<Vec<&'a [u8]>> for Parts<'a> {
    fn from(parts: Vec<&'a [u8]>) -> Self {
        Self::Many(parts)
    }
}

/// Where a block's bytes go: one buffer, or several that are filled in order.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// One buffer.
    One(&'a mut [u8]),
    /// Several, filled in order.
    Many(Vec<&'a mut [u8]>),
}

impl Buffers<'_> {
    pub(crate) fn regions(&mut self) -> Regions {
        match self {
            Self::One(bytes) => Regions::One(Region::of_mut(bytes)),
            Self::Many(parts) => Regions::Many(parts.iter_mut().map(|part| Region::of_mut(part)).collect()),
        }
    }
}

impl<'a> From<&'a mut [u8]> for Buffers<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::One(bytes)
    }
}

impl<'a> From<&'a mut Vec<u8>> for Buffers<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Self::One(bytes)
    }
}

impl<'a> From<Vec<&'a mut [u8]>> for Buffers<'a> {
    fn from(parts: Vec<&'a mut [u8]>) -> Self {
        Self::Many(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_of_scattered_parts_is_found() {
        let whole: Vec<u8> = (0..40).collect();
        let parts = Parts::from(vec![&whole[..7], &whole[7..7], &whole[7..30], &whole[30..]]);
        assert_eq!(parts.total(), 40);
        for start in 0..40 {
            for len in 0..=40 - start {
                let found: Vec<u8> = parts.slices(start, len).iter().flat_map(|piece| piece.iter().copied()).collect();
                assert_eq!(found, whole[start as usize..(start + len) as usize]);
            }
        }
    }
}
