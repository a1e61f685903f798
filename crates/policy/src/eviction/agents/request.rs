//! The request that is being told: its blocks are used one by one, from the last to the first.

use super::kind::Kind;
use super::{Agents, Owner};
use crate::eviction::{Tag, Use};
use std::time::Duration;
use tidepool_types::Origin;

/// What is known so far of the request.
pub(super) struct Current {
    at: u64,
    origin: Option<Origin>,
    conversation: u32,
    /// Whether it is known which conversation goes on.
    known: bool,
    /// Of the block used last.
    depth: u32,
    length: u32,
    /// Its last two slots: by the one before the last the conversation is known again, for the last may be short.
    tail: [Option<u32>; 2],
}

pub(super) fn millis(at: Duration) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
}

impl Current {
    fn goes_on(&self, at: u64, usage: &Use) -> bool {
        let session = |origin: Option<Origin>| origin.map(|origin| origin.session);
        self.at == at && self.depth == usage.depth + 1 && session(self.origin) == session(usage.origin)
    }

    /// What the conversation waits for once the request is over.
    fn kind(&self, turn: u32) -> Kind {
        self.origin.map_or_else(|| Kind::unnamed(turn, self.length), |origin| Kind::named(&origin))
    }
}

impl Agents {
    /// A block is used, which was in the hands of `before`.
    pub(super) fn used(&mut self, slot: u32, before: Option<Owner>, usage: &Use) {
        // Time stands still rather than go back.
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
        self.push(slot, owner);
        let block = &mut self.blocks[slot as usize];
        (block.used, block.depth) = (self.now, usage.depth);
        if let Some(before) = before {
            self.pulled(before);
        }
        if usage.depth == 0 {
            self.settle();
        }
    }

    /// The conversation that a use belongs to. It begins or goes on with the first use of a request, or with the first one that
    /// tells which it is.
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
            Some(origin) => self.conversations.named(origin.session, self.now),
            None => self.conversations.unnamed(),
        };
        Current {
            at: self.now,
            origin: usage.origin,
            conversation,
            known: usage.origin.is_some(),
            depth: usage.depth,
            length: usage.depth + 1,
            tail: [None; 2],
        }
    }

    /// What looked like a new conversation is an old one that goes on, to which its blocks go over.
    fn join(&mut self, new: u32, old: u32) {
        self.conversations.resume(old, self.now);
        while let Some(slot) = self.conversations.blocks(new).coldest() {
            self.pull(slot);
            self.push(slot, Owner::Conversation(old));
        }
        self.conversations.drop(new);
    }

    /// The request is over: what its conversation no longer sends is left behind, and it waits.
    pub(super) fn settle(&mut self) {
        let Some(current) = self.current.take() else { return };
        let id = current.conversation;
        while let Some(slot) = self.conversations.blocks(id).coldest() {
            if self.blocks[slot as usize].used >= current.at {
                break;
            }
            self.pull(slot);
            self.push(slot, Owner::Left);
            self.left_returns.waits();
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

    /// The block by which an unnamed conversation is known again: the last full one, if it is nobody else's.
    fn tail_of(&self, current: &Current) -> Option<Tag> {
        let own = Some(Owner::Conversation(current.conversation));
        let last = current.tail.iter().rev().flatten().find(|slot| self.blocks[**slot as usize].owner == own);
        last.filter(|_| current.origin.is_none()).map(|slot| Tag(self.blocks[*slot as usize].tag))
    }
}
