//! Who holds a block, in two bytes: the slot of an inventory stream and a tier.

use tidepool_types::Tier;

/// A small number for one inventory stream, chosen so that four holders fit beside an id.
///
/// A slot means one stream number at a time: it is handed out again only after every entry that carries it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamSlot(u16);

impl StreamSlot {
    /// How many slots there are. The two values left out of 14 bits stand for "nobody" and "see the overflow table".
    pub const COUNT: usize = (1 << 14) - 2;

    /// The slot with this index, which is below [`StreamSlot::COUNT`].
    #[must_use]
    pub fn new(index: usize) -> Self {
        assert!(index < Self::COUNT, "slot {index} of {}", Self::COUNT);
        Self(index as u16)
    }

    /// The slot's index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One holder of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The stream that said so.
    pub slot: StreamSlot,
    /// Where the holder keeps the block.
    pub tier: Tier,
}

/// A [`Holder`] as entries keep it: `(slot + 1) << 2 | tier`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub(super) struct Packed(u16);

impl Packed {
    /// Nobody.
    pub(super) const NONE: Self = Self(0);
    /// In an entry's last place: further holders are in the overflow table.
    pub(super) const OVERFLOW: Self = Self(u16::MAX);

    pub(super) const fn new(holder: Holder) -> Self {
        Self((holder.slot.0 + 1) << 2 | holder.tier as u16)
    }

    /// The holder; `None` for [`Packed::NONE`] and [`Packed::OVERFLOW`].
    #[inline]
    pub(super) const fn get(self) -> Option<Holder> {
        let tier = match self.0 & 3 {
            0 => Tier::Dram,
            1 => Tier::Disk,
            2 => Tier::Object,
            _ => return None,
        };
        match (self.0 >> 2).checked_sub(1) {
            Some(slot) => Some(Holder { slot: StreamSlot(slot), tier }),
            None => None,
        }
    }

    #[inline]
    pub(super) fn is_slot(self, slot: StreamSlot) -> bool {
        self.0 >> 2 == slot.0 + 1 && self != Self::OVERFLOW
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_holder_survives_packing() {
        for index in [0, 1, 1000, StreamSlot::COUNT - 1] {
            for tier in [Tier::Dram, Tier::Disk, Tier::Object] {
                let holder = Holder { slot: StreamSlot::new(index), tier };
                let packed = Packed::new(holder);
                assert_eq!(packed.get(), Some(holder));
                assert!(packed.is_slot(holder.slot));
                assert!(packed != Packed::NONE && packed != Packed::OVERFLOW);
            }
        }
        assert_eq!(Packed::NONE.get(), None);
        assert_eq!(Packed::OVERFLOW.get(), None);
    }
}
