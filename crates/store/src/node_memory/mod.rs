//! The owner's side of a node's memory.
//!
//! One mutex guards everything that only the owner changes: the heap, the order of eviction, holds, the journal. Sections
//! are short (no copying, no waiting), and readers on the same host never take it. It also orders the changes of slower
//! tiers, where a node has some ([`Holdings`]). Life cycle of a slot: free ->
//! [`Reservation`] -> sealed -> free, with two detours: *withdrawn* while a removed block is still held, and *damaged*,
//! which is final. A reservation or hold that is dropped gives its space back.

mod browse;
mod evict;
mod files;
mod hold;
mod holdings;
mod marked;
mod mount;
#[cfg(test)]
mod policies;
mod reserve;
#[cfg(test)]
mod sessions;
mod stats;
mod terms;
#[cfg(test)]
pub(crate) mod tests;

pub use files::{NodeMemoryConfig, OpenError};
pub use hold::Hold;
pub use holdings::{Cold, ColdCursor, Commit, Holdings, Reading};
pub use marked::clear_socket;
pub use reserve::{NoRoom, Reservation, Sealed, Unnamed};
pub use stats::NodeMemoryStats;
pub use terms::BlockTerms;

use crate::heap::{FreeRun, Heap, RunId};
use crate::inventory::Change;
use crate::journal::Journal;
use crate::layout::{CONTROL_BYTES, Shape};
use crate::memory_file::MemoryFile;
use crate::protocol::{Described, Index, LINE_WORDS, State, load_sealed, retire, stamp};
use crate::ring::host_time;
use crate::sync::AtomicU64;
use crate::tier::{Place, SlowerTiers};
use files::Files;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use terms::{Incoming, Kept};
use tidepool_locks::{Condvar, Mutex};
use tidepool_policy::admission::Admission;
use tidepool_policy::eviction::{Eviction, Use};
use tidepool_policy::{Groups, SlotList, SoftPins};
use tidepool_types::{BlockId, CopyName, Epoch, Generation, TenantSecret, Tier, UsedFor};

/// A node's memory, as its owner sees it.
pub struct NodeMemory {
    /// Blocks have their ids under it.
    secret: TenantSecret,
    shape: Shape,
    map: MemoryFile,
    slab: MemoryFile,
    files: Files,
    /// The tiers below this memory.
    slower: SlowerTiers,
    /// Short sections only: see the module's head.
    inner: Mutex<Inner>,
    /// Signalled when space may have become free without an eviction.
    freed: Condvar,
    /// Signalled when the journal has grown.
    changed: Condvar,
}

struct Inner {
    last_generation: u64,
    heap: Heap,
    /// The sealed blocks in the order in which they go. One that is held stays in it and is passed over; if its turn comes
    /// meanwhile, it is out of the order until it is let go.
    order: Box<dyn Eviction>,
    admission: Box<dyn Admission>,
    /// Those that go only after all others.
    soft: SoftPins,
    /// Whether softly pinned blocks are being spared.
    sparing: bool,
    /// How many blocks may still be passed over, while room is made, because slower tiers are about to have them.
    patience: Cell<u32>,
    /// What eviction has to work around, in no order that matters: held, reserved, pinned for good, damaged.
    walls: SlotList,
    /// What was wanted for sealed blocks, by slot; most have no terms and are not here.
    terms: HashMap<u32, Kept>,
    groups: Groups,
    /// Blocks that are being copied from other nodes or slower tiers, by slot: up to a thousand for each pull.
    incoming: HashMap<u32, Incoming>,
    /// The slots of holds that do not count as a use: few, and short. Their blocks keep their places in the order.
    looked_at: Vec<u32>,
    slots: Vec<Slot>,
    /// Oldest first, so that a slow reader's slot is reused as late as possible.
    free_slots: VecDeque<u32>,
    /// One past the highest slot that was ever taken: what lies behind it need not be looked at.
    slots_used: u64,
    journal: Journal,
    uses: u64,
    /// The time since any fixed start.
    clock: fn() -> Duration,
    stats: NodeMemoryStats,
}

/// What only the owner knows of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    run: Option<RunId>,
    /// The generation of the current reservation or block; zero when free.
    generation: u64,
    state: SlotState,
    /// All holds.
    holds: u32,
    /// Those that are more than a look.
    firm_holds: u32,
    /// When it was last used, as a count of uses.
    last_use: u64,
    /// The block's name for the order of eviction.
    tag: u64,
}

/// The owner's word on a slot's state; the header's stamp says the same to readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SlotState {
    #[default]
    Free,
    Reserved,
    Sealed,
    Withdrawn,
    Damaged,
}

impl NodeMemory {
    /// The node's incarnation.
    pub fn epoch(&self) -> Epoch {
        self.shape.epoch
    }

    /// The secret under which blocks have their ids.
    pub fn secret(&self) -> &TenantSecret {
        &self.secret
    }

    /// Bytes for blocks.
    pub fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    /// Descriptors for a client: the map and the slab, read-only.
    pub fn readable(&self) -> [BorrowedFd<'_>; 2] {
        self.files.readable()
    }

    /// The slab once more, writable, for a client that fills reservations itself.
    pub fn writable(&self) -> BorrowedFd<'_> {
        self.files.writable()
    }

    /// A snapshot of the pool's numbers.
    pub fn stats(&self) -> NodeMemoryStats {
        let inner = self.inner.lock();
        NodeMemoryStats { free_bytes: inner.heap.free_bytes(), ..inner.stats }
    }

    fn name(&self, generation: u64) -> CopyName {
        CopyName { epoch: self.shape.epoch, generation: Generation(generation) }
    }

    fn header(&self, slot: u32) -> &[AtomicU64] {
        let start = CONTROL_BYTES as usize / 8 + slot as usize * LINE_WORDS;
        &self.map.words()[start..start + LINE_WORDS]
    }

    fn index(&self) -> Index<'_> {
        let start = self.shape.index_at() as usize / 8;
        Index(&self.map.words()[start..])
    }

    /// The slot and description of a sealed block. Exact, because the caller holds the lock that every change needs.
    fn lookup(&self, _inner: &Inner, id: &BlockId) -> Option<(u32, Described)> {
        let id = id.words();
        self.index().find(id, |slot| {
            let (_, described) = load_sealed(self.header(slot))?;
            (described.id == id).then_some((slot, described))
        })
    }

    /// Where memory has the block of a sealed slot.
    fn place_of(&self, inner: &Inner, slot: u32, described: &Described) -> Place {
        let copy = self.name(inner.slots[slot as usize].generation);
        Place { tier: TIER, copy, len: described.len, version: inner.version(slot) }
    }

    /// The fastest tier that has a block.
    fn fastest(&self, inner: &Inner, id: &BlockId) -> Option<Tier> {
        self.lookup(inner, id).map(|_| TIER).or_else(|| Some(self.slower.place(id)?.tier))
    }

    /// Takes a sealed block out of sight: out of the index, then out of the readers' reach. The node still holds it if a slower
    /// tier has it. Nobody is woken for it: what is evicted for a block that comes is announced with that block.
    fn withdraw(&self, inner: &mut Inner, slot: u32, state: State) {
        if let Some((_, described)) = load_sealed(self.header(slot)) {
            self.index().remove(described.id, slot);
            let id = BlockId::from_words(described.id);
            inner.journal.push(Change::to(id, self.slower.place(&id).map(|place| place.tier)));
            inner.stats.blocks -= 1;
            inner.stats.block_bytes -= described.len;
        }
        inner.drop_terms(slot);
        let generation = inner.next_generation();
        retire(self.header(slot), stamp(generation, state));
        inner.order.remove(slot);
        inner.wall_in(slot);
    }

    /// Gives a slot and its space back. Returns the free run that its space is now part of.
    fn release(&self, inner: &mut Inner, slot: u32) -> Option<FreeRun> {
        let was = std::mem::take(&mut inner.slots[slot as usize]);
        inner.walls.remove(slot);
        let freed = was.run.map(|run| inner.heap.give_back(run));
        inner.free_slots.push_back(slot);
        self.freed.notify_all();
        freed
    }
}

impl Inner {
    fn empty(shape: Shape, config: &NodeMemoryConfig) -> Self {
        let slots = shape.slots as u32;
        Self {
            last_generation: 0,
            heap: Heap::new(shape.capacity),
            order: config.eviction.build_for(slots),
            admission: config.admission.build(shape.slots),
            soft: SoftPins::default(),
            sparing: false,
            patience: Cell::new(0),
            walls: SlotList::new(slots),
            terms: HashMap::new(),
            groups: Groups::default(),
            incoming: HashMap::new(),
            looked_at: Vec::new(),
            slots: vec![Slot::default(); slots as usize],
            free_slots: (0..slots).collect(),
            slots_used: 0,
            journal: Journal::default(),
            uses: 0,
            clock: host_time,
            stats: NodeMemoryStats::default(),
        }
    }

    fn next_generation(&mut self) -> u64 {
        self.last_generation += 1;
        self.last_generation
    }

    /// Makes a slot one that eviction works around.
    fn wall_in(&mut self, slot: u32) {
        self.soft.remove(slot);
        if !self.walls.contains(slot) {
            self.walls.insert(slot);
        }
    }

    /// A use now of which nothing else is known.
    fn use_now(&self) -> Use {
        Use { at: (self.clock)(), ..Use::default() }
    }

    /// A use now, and what is known of it.
    fn use_for(&self, used: Option<&UsedFor>) -> Use {
        used.map_or_else(|| self.use_now(), |used| self.use_now().known_as(used))
    }

    fn mark_used(&mut self, slot: u32, usage: &Use) {
        self.count_use(slot);
        self.order.touch(slot, usage);
        if !self.soft.is_empty() {
            self.soft.touch(slot, self.uses);
        }
    }

    /// As [`Inner::mark_used`], with what is known of this use.
    fn mark_used_for(&mut self, slot: u32, usage: &Use, used: Option<&UsedFor>) {
        match used {
            None => self.mark_used(slot, usage),
            Some(used) => self.mark_used(slot, &usage.known_as(used)),
        }
    }

    fn count_use(&mut self, slot: u32) {
        self.uses += 1;
        self.slots[slot as usize].last_use = self.uses;
    }
}

const TIER: Tier = Tier::Dram;
