//! The request under way: the caller uses its blocks one by one, from the last to the first.
//!
//! A node sees the blocks of a named request in parts: those that an engine loads, later those that it saves; what the engine has
//! itself, never. Uses of one session and turn are one request. A part tells nothing of blocks before its first one.

use super::kind::Kind;
use super::{Agents, Owner};
use crate::eviction::{Tag, Use};
use std::time::Duration;
use tidepool_types::Origin;

/// The request, as far as its uses have told.
pub(super) struct Current {
    /// The time of the part that is under way, and of the request's first part.
    at: u64,
    began: u64,
    origin: Option<Origin>,
    conversation: u32,
    /// Whether the conversation that goes on is known.
    known: bool,
    /// The depth of the block used last.
    depth: u32,
    length: u32,
    /// Its last two slots. The one before the last identifies the conversation, since the last block may be short.
    tail: [Option<u32>; 2],
}

pub(super) fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

impl Current {
    fn goes_on(&self, at: u64, usage: &Use) -> bool {
        let session = |origin: Option<Origin>| origin.map(|origin| origin.session);
        self.at == at && usage.depth.checked_add(1) == Some(self.depth) && session(self.origin) == session(usage.origin)
    }

    /// The kind of wait of the conversation once the request is over.
    fn kind(&self, turn: u32) -> Kind {
        self.origin.map_or_else(|| Kind::unnamed(turn, self.length), |origin| Kind::named(&origin))
    }
}

impl Agents {
    /// Notes a use of a block that was in the list `before`.
    pub(super) fn used(&mut self, slot: u32, before: Option<Owner>, usage: &Use) {
        // Time never goes back.
        self.now = self.now.max(millis(usage.at));
        self.settled = false;
        let mine = self.conversation_of(slot, usage);
        let owner = match before {
            Some(Owner::Shared) => Owner::Shared,
            Some(Owner::Conversation(id)) if id != mine => Owner::Shared,
            _ => Owner::Conversation(mine),
        };
        if before == Some(Owner::Left) {
            self.left_returns.returned(self.age(slot));
        }
        let block = &mut self.blocks[slot as usize];
        (block.used, block.depth) = (self.now, usage.depth);
        match owner {
            Owner::Conversation(id) => self.push_in_order(slot, id, usage.depth),
            _ => self.push(slot, owner),
        }
        if let Some(before) = before {
            self.pulled(before);
        }
        if usage.depth == 0 {
            self.settle();
        }
    }

    /// Adds a block to its conversation: of the request's blocks, each is colder than those before it in the prefix, in whichever
    /// order their parts come.
    fn push_in_order(&mut self, slot: u32, id: u32, depth: u32) {
        let owner = Owner::Conversation(id);
        let Some(began) = self.conversations.began(id) else { return self.push(slot, owner) };
        let at = |slot: u32| &self.blocks[slot as usize];
        let last = self.conversations.replace_last(id, slot);
        let last = last.filter(|last| at(*last).owner == Some(owner) && at(*last).depth > depth);
        let after = last.filter(|last| self.links.warmer(*last).is_none_or(|warmer| at(warmer).depth < depth));
        let coldest = self.conversations.blocks(id).coldest();
        let is_coldest = coldest.is_some_and(|coldest| at(coldest).used >= began && at(coldest).depth < depth);
        let (links, list) = self.list_mut(owner);
        match after {
            Some(colder) => links.push_after(list, colder, slot),
            None if is_coldest => links.push_coldest(list, slot),
            None => links.push(list, slot),
        }
        self.blocks[slot as usize].owner = Some(owner);
    }

    /// The conversation of a use. It begins or goes on with the first use of a request, or with the first use that
    /// identifies it.
    fn conversation_of(&mut self, slot: u32, usage: &Use) -> u32 {
        let mut current = match self.current.take() {
            Some(current) if current.goes_on(self.now, usage) => current,
            other => {
                self.current = other;
                self.settle();
                self.begin(usage)
            }
        };
        current.depth = usage.depth;
        if let Some(place) = current.tail.iter_mut().find(|place| place.is_none()) {
            *place = Some(slot);
        }
        if !current.known
            && let Some(old) = self.conversations.with_tail(Tag(self.blocks[slot as usize].tag))
        {
            self.join(current.conversation, old);
            (current.known, current.conversation) = (true, old);
        }
        self.current.insert(current).conversation
    }

    fn begin(&mut self, usage: &Use) -> Current {
        let conversation = match usage.origin {
            Some(origin) => self.conversations.named(&origin, self.now),
            None => self.conversations.unnamed(),
        };
        Current {
            at: self.now,
            began: self.conversations.began(conversation).unwrap_or(self.now),
            origin: usage.origin,
            conversation,
            known: usage.origin.is_some(),
            depth: usage.depth,
            length: usage.depth.saturating_add(1),
            tail: [None; 2],
        }
    }

    /// Moves the blocks of a conversation that seemed new to the old one that goes on.
    fn join(&mut self, new: u32, old: u32) {
        self.conversations.resume(old, self.now);
        while let Some(slot) = self.conversations.blocks(new).coldest() {
            self.pull(slot);
            self.push(slot, Owner::Conversation(old));
        }
        self.conversations.drop(new);
    }

    /// Ends the request, or a part of it: blocks that its conversation did not send again are left behind, and the conversation
    /// waits.
    pub(super) fn settle(&mut self) {
        let Some(current) = self.current.take() else { return };
        let id = current.conversation;
        let mut first_kept = None;
        while let Some(slot) = self.conversations.blocks(id).coldest() {
            if self.blocks[slot as usize].used >= current.began || first_kept == Some(slot) {
                break;
            }
            self.pull(slot);
            if self.blocks[slot as usize].depth < current.depth {
                // The prefix of what was used: sent again, as far as this part can tell.
                first_kept.get_or_insert(slot);
                self.push(slot, Owner::Conversation(id));
            } else {
                self.push(slot, Owner::Left);
                self.left_returns.waits();
            }
        }
        let kind = current.kind(self.conversations.turn(id));
        self.conversations.wait(id, kind, current.at, self.tail_of(&current));
        self.conversations.forget(self.held, self.now);
        if self.left_returns.is_stale() {
            let (blocks, now) = (&self.blocks, self.now);
            let ages = self.links.iter(&self.left).map(|slot| now.saturating_sub(blocks[slot as usize].used));
            self.left_returns.learn(ages);
        }
    }

    /// The block that identifies an unnamed conversation: its last full block, unless another conversation uses that
    /// too.
    fn tail_of(&self, current: &Current) -> Option<Tag> {
        let own = Some(Owner::Conversation(current.conversation));
        let last = current.tail.iter().rev().flatten().find(|slot| self.blocks[**slot as usize].owner == own);
        last.filter(|_| current.origin.is_none()).map(|slot| Tag(self.blocks[*slot as usize].tag))
    }
}
