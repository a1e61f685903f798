//! Conversations that may come back: which kind of wait each is in, and which one is the least worth waiting for.
//!
//! A waiting conversation stands in a queue of its kind, by the start of its wait: in one queue while it has blocks, in
//! another once it has lost them. The policy watches both, or it would learn only from what it keeps.

use super::kind::Kind;
use super::lists::{Links, List};
use super::returns::Returns;
use crate::eviction::Tag;
use std::collections::HashMap;
use tidepool_types::{Origin, SessionId};

/// How long after the first part of a turn parts of earlier ones may come.
const LATE_MILLIS: u64 = 60_000;

/// Conversations without blocks that are always watched, however few blocks there are.
const LEAST_WATCHED: u32 = 1024;

/// One conversation.
struct Conversation {
    blocks: List,
    turn: u32,
    name: Option<SessionId>,
    /// The latest request of a named conversation.
    asked: Option<Asked>,
    /// The block that identifies an unnamed conversation: its next request has it.
    tail: Option<Tag>,
    wait: Wait,
    since: u64,
}

/// A request of a named conversation, whose uses may come in several parts.
#[derive(Clone, Copy)]
struct Asked {
    turn: u32,
    /// The time of its first use.
    began: u64,
    /// The slot that it used last.
    last: Option<u32>,
}

/// The queue in which a conversation waits.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// None: its request is under way.
    No,
    Held(Kind),
    Gone(Kind),
}

/// All conversations that wait in one way.
struct Queue {
    returns: Returns,
    held: List,
    gone: List,
}

pub(super) struct Conversations {
    all: Vec<Conversation>,
    free: Vec<u32>,
    links: Links,
    queues: Vec<Queue>,
    /// A bit for every queue with conversations that have blocks: there are many queues and few are used.
    busy: u128,
    names: HashMap<SessionId, u32>,
    tails: HashMap<Tag, u32>,
    gone: u32,
}

impl Default for Conversations {
    fn default() -> Self {
        let queue = || Queue { returns: Returns::new(), held: List::default(), gone: List::default() };
        Self {
            all: Vec::new(),
            free: Vec::new(),
            links: Links::default(),
            queues: std::iter::repeat_with(queue).take(Kind::COUNT).collect(),
            busy: 0,
            names: HashMap::new(),
            tails: HashMap::new(),
            gone: 0,
        }
    }
}

impl Conversations {
    /// A conversation's blocks as it sent them last, the deepest first.
    pub(super) fn blocks(&self, id: u32) -> &List {
        &self.all[id as usize].blocks
    }

    pub(super) fn blocks_mut(&mut self, id: u32) -> &mut List {
        &mut self.all[id as usize].blocks
    }

    /// Number of known conversations.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// How often a conversation has gone on.
    pub(super) fn turn(&self, id: u32) -> u32 {
        self.all[id as usize].turn
    }

    /// The conversation that a request of this session belongs to, or a new one. It goes on, unless this is one more part of the
    /// request that it has made last, or a late part of an earlier one: saves come after the loads of the next turn.
    pub(super) fn named(&mut self, origin: &Origin, at: u64) -> u32 {
        let known = self.names.get(&origin.session).copied();
        let id = known.unwrap_or_else(|| self.unnamed());
        let conversation = &mut self.all[id as usize];
        let is_late = |asked: Asked| origin.turn < asked.turn && at.saturating_sub(asked.began) < LATE_MILLIS;
        if conversation.asked.is_some_and(|asked| asked.turn == origin.turn || is_late(asked)) {
            self.stop_waiting(id);
            return id;
        }
        conversation.asked = Some(Asked { turn: origin.turn, began: at, last: None });
        match known {
            Some(id) => self.resume(id, at),
            None => {
                conversation.name = Some(origin.session);
                self.names.insert(origin.session, id);
            }
        }
        id
    }

    /// The time at which the latest request of a named conversation began.
    pub(super) fn began(&self, id: u32) -> Option<u64> {
        Some(self.all[id as usize].asked?.began)
    }

    /// Notes the slot that a request uses. Returns the one that it used before that.
    pub(super) fn replace_last(&mut self, id: u32, slot: u32) -> Option<u32> {
        self.all[id as usize].asked.as_mut()?.last.replace(slot)
    }

    /// A new conversation.
    pub(super) fn unnamed(&mut self) -> u32 {
        let (blocks, wait) = (List::default(), Wait::No);
        let new = Conversation { blocks, turn: 0, name: None, asked: None, tail: None, wait, since: 0 };
        let Some(id) = self.free.pop() else {
            self.all.push(new);
            return self.all.len() as u32 - 1;
        };
        self.all[id as usize] = new;
        id
    }

    /// The conversation whose tail is this block.
    pub(super) fn with_tail(&self, tag: Tag) -> Option<u32> {
        self.tails.get(&tag).copied()
    }

    /// Notes that a conversation goes on.
    pub(super) fn resume(&mut self, id: u32, at: u64) {
        let conversation = &mut self.all[id as usize];
        conversation.turn += 1;
        let age = at.saturating_sub(conversation.since);
        if let Some(tail) = conversation.tail.take() {
            self.tails.remove(&tail);
        }
        if let Wait::Held(kind) | Wait::Gone(kind) = self.stop_waiting(id) {
            self.queues[kind.index()].returns.returned(age);
        }
    }

    /// Notes that a conversation's request is over: the conversation waits from now on.
    pub(super) fn wait(&mut self, id: u32, kind: Kind, at: u64, tail: Option<Tag>) {
        self.stop_waiting(id);
        let conversation = &mut self.all[id as usize];
        (conversation.since, conversation.tail) = (at, tail);
        if let Some(other) = tail.and_then(|tail| self.tails.insert(tail, id)).filter(|other| *other != id) {
            self.all[other as usize].tail = None;
        }
        self.enter(id, kind);
        let queue = &mut self.queues[kind.index()];
        queue.returns.waits();
        if queue.returns.is_stale() {
            let waiting = self.links.iter(&queue.held).chain(self.links.iter(&queue.gone));
            queue.returns.learn(waiting.map(|id| at.saturating_sub(self.all[id as usize].since)));
        }
    }

    /// Moves a conversation whose blocks came or went to the queue where it belongs.
    pub(super) fn refresh(&mut self, id: u32) {
        let conversation = &self.all[id as usize];
        match (conversation.wait, conversation.blocks.is_empty()) {
            (Wait::Held(kind), true) | (Wait::Gone(kind), false) => {
                self.stop_waiting(id);
                self.enter(id, kind);
            }
            _ => {}
        }
    }

    fn enter(&mut self, id: u32, kind: Kind) {
        let conversation = &mut self.all[id as usize];
        let queue = &mut self.queues[kind.index()];
        if conversation.blocks.is_empty() {
            conversation.wait = Wait::Gone(kind);
            self.links.push(&mut queue.gone, id);
            self.gone += 1;
        } else {
            conversation.wait = Wait::Held(kind);
            self.links.push(&mut queue.held, id);
            self.busy |= 1 << kind.index();
        }
    }

    fn stop_waiting(&mut self, id: u32) -> Wait {
        let wait = std::mem::replace(&mut self.all[id as usize].wait, Wait::No);
        match wait {
            Wait::No => {}
            Wait::Held(kind) => {
                let held = &mut self.queues[kind.index()].held;
                self.links.remove(held, id);
                self.busy &= !(u128::from(held.is_empty()) << kind.index());
            }
            Wait::Gone(kind) => {
                self.gone -= 1;
                self.links.remove(&mut self.queues[kind.index()].gone, id);
            }
        }
        wait
    }

    /// Forgets the longest-waiting conversations without blocks while those outnumber the blocks.
    pub(super) fn forget(&mut self, blocks: u32, at: u64) {
        while self.gone > blocks.max(LEAST_WATCHED) {
            let oldest = self.queues.iter().filter_map(|queue| queue.gone.coldest());
            let Some(id) = oldest.min_by_key(|id| self.all[*id as usize].since) else { return };
            let age = at.saturating_sub(self.all[id as usize].since);
            if let Wait::Gone(kind) = self.stop_waiting(id) {
                self.queues[kind.index()].returns.lost(age);
            }
            self.drop(id);
        }
    }

    /// Forgets a conversation that has no blocks and does not wait.
    pub(super) fn drop(&mut self, id: u32) {
        let Conversation { name, tail, .. } = &mut self.all[id as usize];
        if let Some(name) = name.take() {
            self.names.remove(&name);
        }
        if let Some(tail) = tail.take() {
            self.tails.remove(&tail);
        }
        self.free.push(id);
    }

    /// The first and the last conversation with blocks of every queue, each with its age and its rate of return. The
    /// least worthy and the oldest of all conversations are among them.
    ///
    /// A kind's rate rises while the time comes at which its conversations return, and falls after it: the least of a queue is at
    /// one of its ends.
    pub(super) fn ends(&self, at: u64) -> impl Iterator<Item = (u32, u64, f32)> {
        let ends = |queue: &Queue| [queue.held.coldest(), queue.held.warmest()].into_iter().flatten();
        let after = |busy: &u128| Some(busy & (busy - 1)).filter(|busy| *busy != 0);
        let busy = std::iter::successors(Some(self.busy).filter(|busy| *busy != 0), after);
        busy.map(|busy| &self.queues[busy.trailing_zeros() as usize]).flat_map(move |queue| {
            ends(queue).map(move |id| {
                let age = at.saturating_sub(self.all[id as usize].since);
                (id, age, queue.returns.rate(age))
            })
        })
    }

    /// The conversation with blocks that follows `id`, queue by queue; the very first for `None`.
    pub(super) fn next(&self, id: Option<u32>) -> Option<u32> {
        let mut first = 0;
        if let Some(id) = id {
            let Wait::Held(kind) = self.all[id as usize].wait else { return None };
            if let Some(next) = self.links.warmer(id) {
                return Some(next);
            }
            first = kind.index() + 1;
        }
        self.queues[first..].iter().find_map(|queue| queue.held.coldest())
    }
}
