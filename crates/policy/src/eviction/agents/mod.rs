//! The eviction policy for agents: evicts the blocks of the conversation that is the least likely to come back soon.
//!
//! An agent sends its whole conversation with every turn, then waits for a tool. Its blocks are worth more the sooner
//! the conversation comes back. The policy learns return times for every tool, for ended conversations and, where
//! requests name no session, for conversations by their number of turns. A request without a session continues the
//! conversation whose last full block it has.
//!
//! - The least recently used block goes, as with LRU, unless another block is clearly less worth its place. A policy
//!   that has learnt nothing yet is LRU.
//! - A conversation's blocks go from its end: a suffix is useless without its prefix.
//! - Blocks that a conversation no longer sends are a kind of their own.
//! - A block of several conversations goes only as the oldest of all: more than the block itself is lost with it.

mod conversations;
mod kind;
mod lists;
mod request;
mod returns;
#[cfg(test)]
mod tests;

use super::{Eviction, Tag, Use, entry};
use conversations::Conversations;
use lists::{Links, List};
use request::Current;
use returns::Returns;
use std::time::Duration;

/// A younger block goes before the oldest if its rate of return is below this share of the oldest's: rates are
/// estimates.
const CLEARLY: f32 = 0.8;

/// The order of eviction of a pool that agents use.
pub struct Agents {
    blocks: Vec<Block>,
    links: Links,
    /// Number of blocks in the order.
    held: u32,
    /// Blocks that go before all others.
    chilled: List,
    /// Blocks that their conversations no longer send, by last use, and how they come back all the same.
    left: List,
    left_returns: Returns,
    /// Blocks of several conversations, by last use.
    shared: List,
    conversations: Conversations,
    current: Option<Current>,
    /// The latest time that the caller passed in.
    now: u64,
    /// The list of the last victim, and whether nothing has been used since.
    first: Option<Owner>,
    settled: bool,
    cost_of_depth: f32,
}

/// The block in a slot.
#[derive(Clone, Default)]
struct Block {
    tag: u64,
    owner: Option<Owner>,
    /// The last use, in milliseconds.
    used: u64,
    depth: u32,
}

/// The list that a block is in.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Chilled,
    Left,
    Shared,
    Conversation(u32),
}

/// A list whose coldest block may go: the age of that block, and the worth of its place.
#[derive(Clone, Copy)]
struct Candidate {
    owner: Owner,
    age: u64,
    worth: f32,
}

impl Default for Agents {
    fn default() -> Self {
        Self::weighing(0.0)
    }
}

impl Agents {
    /// An empty order with memory for slots `0..slots`.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { blocks: vec![Block::default(); slots as usize], links: Links::new(slots), ..Self::default() }
    }

    /// An empty order that weighs the cost of computing a block again: a block behind `n` others costs `1 + n *
    /// cost_of_depth` times as much as the first block. With 0, the default, all blocks cost the same, which makes the
    /// most hits.
    #[must_use]
    pub fn weighing(cost_of_depth: f32) -> Self {
        Self {
            blocks: Vec::new(),
            links: Links::default(),
            held: 0,
            chilled: List::default(),
            left: List::default(),
            left_returns: Returns::new(),
            shared: List::default(),
            conversations: Conversations::default(),
            current: None,
            now: 0,
            first: None,
            settled: false,
            cost_of_depth,
        }
    }

    fn list(&self, owner: Owner) -> &List {
        match owner {
            Owner::Chilled => &self.chilled,
            Owner::Left => &self.left,
            Owner::Shared => &self.shared,
            Owner::Conversation(id) => self.conversations.blocks(id),
        }
    }

    fn list_mut(&mut self, owner: Owner) -> (&mut Links, &mut List) {
        let list = match owner {
            Owner::Chilled => &mut self.chilled,
            Owner::Left => &mut self.left,
            Owner::Shared => &mut self.shared,
            Owner::Conversation(id) => self.conversations.blocks_mut(id),
        };
        (&mut self.links, list)
    }

    fn push(&mut self, slot: u32, owner: Owner) {
        let (links, list) = self.list_mut(owner);
        links.push(list, slot);
        self.blocks[slot as usize].owner = Some(owner);
    }

    /// Takes a block out of its list. If that list is a conversation's, the caller calls [`Self::pulled`] afterwards.
    fn pull(&mut self, slot: u32) -> Option<Owner> {
        let owner = self.blocks.get_mut(slot as usize)?.owner.take()?;
        let (links, list) = self.list_mut(owner);
        links.remove(list, slot);
        Some(owner)
    }

    fn pulled(&mut self, owner: Owner) {
        if let Owner::Conversation(id) = owner {
            self.conversations.refresh(id);
        }
    }

    fn age(&self, slot: u32) -> u64 {
        self.now.saturating_sub(self.blocks[slot as usize].used)
    }

    /// The worth of the place of a list's coldest block: returns in a millisecond, times the cost that each saves.
    fn worth(&self, owner: Owner, rate: f32) -> f32 {
        let depth = self.list(owner).coldest().map_or(0, |slot| self.blocks[slot as usize].depth);
        rate * (1.0 + self.cost_of_depth * depth as f32)
    }

    /// The lists whose coldest block may go before an older one.
    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let left = self.left.coldest().map(|slot| self.age(slot));
        let left = left.map(|age| (Owner::Left, age, self.left_returns.rate(age)));
        let waiting = self.conversations.ends(self.now);
        let waiting = waiting.map(|(id, age, rate)| (Owner::Conversation(id), age, rate));
        left.into_iter().chain(waiting).map(|(owner, age, rate)| Candidate {
            owner,
            age,
            worth: self.worth(owner, rate),
        })
    }

    /// The list whose coldest block goes next.
    fn next_list(&self) -> Option<Owner> {
        if !self.chilled.is_empty() {
            return Some(Owner::Chilled);
        }
        let (mut oldest, mut least): (Option<Candidate>, Option<Candidate>) = (None, None);
        for candidate in self.candidates() {
            oldest = oldest.filter(|oldest| oldest.age >= candidate.age).or(Some(candidate));
            least = least.filter(|least| least.worth <= candidate.worth).or(Some(candidate));
        }
        let shared = self.shared.coldest().map(|slot| self.age(slot));
        match (oldest, least) {
            (Some(oldest), _) if shared.is_some_and(|shared| shared > oldest.age) => Some(Owner::Shared),
            (Some(oldest), Some(least)) if least.worth < oldest.worth * CLEARLY => Some(least.owner),
            (Some(oldest), _) => Some(oldest.owner),
            (None, _) => shared.map(|_| Owner::Shared),
        }
    }

    /// Whether the last victim's list is still the next: blocks of one conversation go one after another.
    fn goes_on(&self, at: u64) -> bool {
        let conversation = matches!(self.first, Some(owner @ Owner::Conversation(_)) if !self.list(owner).is_empty());
        self.settled && conversation && at <= self.now
    }

    /// The next list with blocks, in a fixed order; the first of all lists for `None`.
    fn following(&self, owner: Option<Owner>) -> Option<Owner> {
        let others = [Owner::Chilled, Owner::Left, Owner::Shared];
        let conversation = |id| self.conversations.next(id).map(Owner::Conversation);
        let from = match owner {
            Some(Owner::Conversation(id)) => return conversation(Some(id)),
            Some(other) => others.iter().position(|owner| *owner == other).map_or(0, |at| at + 1),
            None => 0,
        };
        let other = others[from..].iter().copied().find(|owner| !self.list(*owner).is_empty());
        other.or_else(|| conversation(None))
    }
}

impl Eviction for Agents {
    fn insert(&mut self, slot: u32, tag: Tag, usage: &Use) {
        entry(&mut self.blocks, slot).tag = tag.0;
        self.held += 1;
        self.used(slot, None, usage);
    }

    fn touch(&mut self, slot: u32, usage: &Use) {
        if let Some(before) = self.pull(slot) {
            self.used(slot, Some(before), usage);
        }
    }

    fn remove(&mut self, slot: u32) {
        if let Some(owner) = self.pull(slot) {
            self.held -= 1;
            self.pulled(owner);
        }
    }

    fn evict(&mut self, slot: u32) {
        if self.blocks.get(slot as usize).is_some_and(|block| block.owner == Some(Owner::Left)) {
            self.left_returns.lost(self.age(slot));
        }
        self.remove(slot);
    }

    fn chill(&mut self, slot: u32) {
        let Some(owner) = self.pull(slot) else { return };
        self.settled = false;
        self.links.push_coldest(&mut self.chilled, slot);
        self.blocks[slot as usize].owner = Some(Owner::Chilled);
        self.pulled(owner);
    }

    fn contains(&self, slot: u32) -> bool {
        self.blocks.get(slot as usize).is_some_and(|block| block.owner.is_some())
    }

    fn victim(&mut self, at: Duration) -> Option<u32> {
        let at = request::millis(at);
        if !self.goes_on(at) {
            self.settle();
            self.now = self.now.max(at);
            self.first = self.next_list();
            self.settled = true;
        }
        self.list(self.first?).coldest()
    }

    fn after(&self, slot: u32) -> Option<u32> {
        let owner = self.blocks.get(slot as usize)?.owner?;
        if let Some(warmer) = self.links.warmer(slot) {
            return Some(warmer);
        }
        // The victim's list came first; all other lists follow from the start.
        let start = Some(owner).filter(|owner| Some(*owner) != self.first);
        let mut lists = std::iter::successors(self.following(start), |owner| self.following(Some(*owner)));
        let next = lists.find(|owner| Some(*owner) != self.first)?;
        self.list(next).coldest()
    }
}
