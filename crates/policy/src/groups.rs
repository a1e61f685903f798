//! Groups: blocks that belong together, and so share their leases and are best evicted together.

use std::collections::HashMap;
use tidepool_types::BlockId;

/// The most members of a group; further blocks stay without a group.
const MOST_MEMBERS: usize = 4096;

/// Groups of slots.
#[derive(Debug, Default)]
pub struct Groups {
    members: HashMap<BlockId, Vec<u32>>,
    of: HashMap<u32, BlockId>,
}

impl Groups {
    /// Makes `slot` a member of `group`.
    pub fn join(&mut self, slot: u32, group: BlockId) {
        self.leave(slot);
        let members = self.members.entry(group).or_default();
        if members.len() < MOST_MEMBERS {
            members.push(slot);
            self.of.insert(slot, group);
        }
    }

    /// Takes `slot` out of its group, if it has one.
    pub fn leave(&mut self, slot: u32) {
        let Some(group) = self.of.remove(&slot) else { return };
        if let Some(members) = self.members.get_mut(&group) {
            members.retain(|member| *member != slot);
            if members.is_empty() {
                self.members.remove(&group);
            }
        }
    }

    /// The members of the group of `slot`, itself included; none when it has no group.
    #[must_use]
    pub fn members(&self, slot: u32) -> &[u32] {
        let members = self.of.get(&slot).and_then(|group| self.members.get(group));
        members.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_that_joined_and_have_not_left() {
        let group = |n| BlockId::from_words([n, n]);
        let mut groups = Groups::default();
        groups.join(1, group(1));
        groups.join(2, group(1));
        groups.join(3, group(2));
        assert_eq!(groups.members(2), [1, 2]);
        groups.join(2, group(2));
        assert_eq!(groups.members(1), [1]);
        assert_eq!(groups.members(3), [3, 2]);
        groups.leave(3);
        groups.leave(2);
        assert!(groups.members(2).is_empty() && groups.members.len() == 1);
        (0..2 * MOST_MEMBERS as u32).for_each(|slot| groups.join(slot, group(5)));
        assert_eq!(groups.members(0).len(), MOST_MEMBERS);
        assert!(groups.members(MOST_MEMBERS as u32).is_empty());
    }
}
