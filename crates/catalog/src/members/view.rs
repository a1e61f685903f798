//! The members as one look-up sees them: a snapshot that does not change under it.

use super::health::Health;
use super::state::{NodeState, Standing};
use crate::index::{Holder, StreamSlot};
use std::sync::Arc;
use tidepool_schema as wire;

/// One member in a [`View`].
#[derive(Debug)]
pub(crate) struct ViewMember {
    pub(crate) info: Arc<wire::NodeInfo>,
    pub(crate) state: NodeState,
    pub(crate) stream: u64,
    pub(crate) health: Arc<Health>,
}

impl ViewMember {
    pub(crate) fn standing(&self) -> Standing {
        self.health.standing(self.state)
    }

    /// The member as look-ups name it.
    pub(crate) fn node(&self) -> wire::Node {
        wire::Node {
            name: self.info.name.clone(),
            epoch: self.info.epoch,
            data_address: self.info.data_address.clone(),
            socket_path: self.info.socket_path.clone(),
            state: wire::NodeState::from(self.state).into(),
            host_hint: self.info.host_hint.clone(),
        }
    }
}

const NOBODY: u16 = u16::MAX;

/// See the file's head.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) version: u64,
    pub(crate) members: Vec<ViewMember>,
    /// By slot: the index of the member whose valid stream it is.
    owners: Vec<u16>,
    /// The members that are not dead, of which there may be many more.
    living: Vec<u16>,
}

impl View {
    pub(crate) fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// Adds a member and, unless it is dead, its valid slot.
    pub(crate) fn push(&mut self, member: ViewMember, slot: Option<StreamSlot>) {
        if let Some(slot) = slot {
            if self.owners.len() <= slot.index() {
                self.owners.resize(slot.index() + 1, NOBODY);
            }
            self.owners[slot.index()] = self.members.len() as u16;
        }
        if member.state != NodeState::Dead {
            self.living.push(self.members.len() as u16);
        }
        self.members.push(member);
    }

    /// The members that are not dead.
    pub(crate) fn living(&self) -> impl Iterator<Item = &ViewMember> {
        self.living.iter().map(|index| &self.members[usize::from(*index)])
    }

    /// The member that a holder stands for; `None` when the stream is no longer valid.
    #[inline]
    pub(crate) fn owner(&self, holder: Holder) -> Option<u16> {
        self.owners.get(holder.slot.index()).copied().filter(|owner| *owner != NOBODY)
    }
}
