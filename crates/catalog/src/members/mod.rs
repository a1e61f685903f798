//! The nodes a catalog knows, and the one valid stream of each.
//!
//! A node that connects gets a new stream number; whatever it had before is invalid from then on. Look-ups read an
//! immutable view, replaced whenever a node's state or stream changes, and never take the lock of the list itself.

mod health;
mod lease;
mod list;
mod rivals;
pub mod state;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use health::Health;
pub(crate) use lease::{Lease, Slots};
use list::{List, Member};
pub use rivals::NameConflict;
pub(crate) use view::{View, ViewMember};

use crate::config::CatalogConfig;
use crate::index::{Index, StreamSlot};
use rivals::Rivals;
use state::{Limits, Link, NodeState, is_complete, next_state};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_locks::{Mutex, RwLock};
use tidepool_schema as wire;
use tokio::sync::{oneshot, watch};

/// Why a node's stream is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another incarnation of that name is connected and talking: where it serves.
    NameInUse(String),
    /// There are as many nodes or streams as there may be.
    TooMany,
    /// An operator had this incarnation forgotten.
    Forgotten,
}

/// A stream's place in the directory.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) lease: Arc<Lease>,
    pub(crate) health: Arc<Health>,
    /// Resolves, with the reason, when the stream is to end.
    pub(crate) ended: oneshot::Receiver<&'static str>,
}

/// See the module's head.
pub(crate) struct Directory {
    config: CatalogConfig,
    index: Arc<Index>,
    slots: Arc<Slots>,
    start: Instant,
    // Taken per stream event and per tick; look-ups take only `view`, for as long as it takes to clone a pointer.
    list: Mutex<List>,
    view: RwLock<Arc<View>>,
    /// The version of `view`, for those who wait for another one.
    versions: watch::Sender<u64>,
    rivals: Rivals,
}

impl Directory {
    pub(crate) fn new(config: CatalogConfig, index: Arc<Index>) -> Self {
        Self {
            config,
            index,
            slots: Arc::default(),
            start: Instant::now(),
            list: Mutex::default(),
            view: RwLock::default(),
            versions: watch::Sender::new(0),
            rivals: Rivals::default(),
        }
    }

    /// The time since the catalog's start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Tells when there is another view.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Whether every node stands as [`is_complete`] asks.
    pub(crate) fn is_complete(&self, view: &View) -> bool {
        let standings = view.living().map(ViewMember::standing);
        is_complete(standings, self.now(), self.config.settle)
    }

    /// A node says hello, and for how long it waits for acknowledgements: it gets a new stream number, and what it had before
    /// is invalid.
    pub(crate) fn connect(&self, info: wire::NodeInfo, waits: Duration) -> Result<Admission, Refused> {
        let mut list = self.list.lock();
        if list.barred.contains(&info.name, info.epoch) {
            return Err(Refused::Forgotten);
        }
        self.check_admission(&mut list, &info)?;
        let lease = self.slots.lease(self.config.max_streams).ok_or(Refused::TooMany)?;
        let health = Arc::new(Health::new(self.now(), info.used_bytes, self.config.proof_counts_for(waits)));
        let (end, ended) = oneshot::channel();
        let name = info.name.clone();
        let member = Member {
            info: Arc::new(info),
            state: NodeState::Alive,
            health: health.clone(),
            number: lease.number(),
            lease: Some(lease.clone()),
            end: Some(end),
        };
        self.index.live().insert(lease.slot());
        self.rivals.admitted(&name);
        let epoch = member.info.epoch;
        if let Some(mut old) = list.members.insert(name, member) {
            old.retire(&self.index, "the node has opened a newer stream");
            if old.info.epoch != epoch {
                // Whoever asks is told of the new life only: the old one must not come back.
                list.barred.push(&old.info.name, old.info.epoch, false);
            }
        }
        self.publish(&mut list);
        Ok(Admission { lease, health, ended })
    }

    fn check_admission(&self, list: &mut List, info: &wire::NodeInfo) -> Result<(), Refused> {
        match list.members.get(&info.name) {
            Some(known) => {
                let talking = known.state == NodeState::Alive && known.health.link() == Link::Open;
                if !talking || known.info.epoch == info.epoch {
                    return Ok(());
                }
                let holder = &known.info.data_address;
                self.rivals.refused(&info.name, holder, &info.data_address, self.now());
                Err(Refused::NameInUse(holder.clone()))
            }
            None if list.members.len() < self.config.max_nodes => Ok(()),
            None => list.make_room().then_some(()).ok_or(Refused::TooMany),
        }
    }

    /// Names that two live nodes claim.
    pub(crate) fn name_conflicts(&self) -> Vec<NameConflict> {
        self.rivals.current(self.now())
    }

    /// The stream that holds `old` starts over: it gets a new number. `None` when the stream is no longer valid, or when
    /// there is no number left.
    pub(crate) fn renumber(&self, name: &str, old: &Lease) -> Option<Arc<Lease>> {
        let mut list = self.list.lock();
        let member = list.members.get_mut(name).filter(|member| member.number == old.number())?;
        let current = member.lease.as_ref()?.slot();
        let fresh = self.slots.lease(self.config.max_streams)?;
        self.index.live().remove(current);
        self.index.live().insert(fresh.slot());
        member.lease = Some(fresh.clone());
        member.number = fresh.number();
        self.publish(&mut list);
        Some(fresh)
    }

    /// The stream with this number ended.
    pub(crate) fn disconnect(&self, name: &str, number: u64, link: Link) {
        let mut list = self.list.lock();
        if let Some(member) = list.members.get_mut(name).filter(|member| member.number == number) {
            member.health.close(link);
            self.refresh(&mut list);
        }
    }

    /// Brings every node's state up to date, and forgets those that have been dead for long.
    pub(crate) fn tick(&self) {
        self.refresh(&mut self.list.lock());
    }

    fn refresh(&self, list: &mut List) {
        let now = self.now();
        let limits = Limits { suspect_after: self.config.suspect_after, dead_after: self.config.dead_after };
        let mut changed = false;
        for member in list.members.values_mut() {
            let heard = member.health.heard();
            let state = next_state(member.state, member.health.link(), heard, now, limits);
            changed |= std::mem::replace(&mut member.state, state) != state;
            if state == NodeState::Dead {
                member.retire(&self.index, "the node was silent for too long");
            }
        }
        let is_over = |member: &Member| {
            let kept = if member.left() { self.config.hide_after } else { self.config.forget_after };
            member.state == NodeState::Dead && now.saturating_sub(member.health.heard()) > self.config.dead_after + kept
        };
        changed |= list.drop_where(is_over) > 0;
        if changed {
            self.publish(list);
        }
    }

    /// Whether lists show a node: the dead are shown for a while.
    pub(crate) fn shows(&self, member: &ViewMember, now: Duration) -> bool {
        let silent = now.saturating_sub(member.health.heard());
        member.state != NodeState::Dead || silent <= self.config.dead_after + self.config.hide_after
    }

    /// Forgets an incarnation of a node and refuses it from now on. Whether it was known; an error when it is not dead.
    pub(crate) fn forget(&self, name: &str, epoch: u64) -> Result<bool, NodeState> {
        let mut list = self.list.lock();
        self.refresh(&mut list);
        let known = list.members.get(name).filter(|member| member.info.epoch == epoch).map(|member| member.state);
        match known {
            Some(NodeState::Dead) => drop(list.members.remove(name)),
            Some(state) => return Err(state),
            None => {}
        }
        list.barred.push(name, epoch, true);
        self.publish(&mut list);
        Ok(known.is_some())
    }

    /// The incarnations that operators had forgotten.
    pub(crate) fn forgotten(&self) -> Vec<wire::Incarnation> {
        self.list.lock().barred.by_wish()
    }

    /// For how long the directory has known every node that may come back.
    pub(crate) fn known_for(&self) -> Duration {
        self.now().saturating_sub(self.list.lock().known_since)
    }

    /// Ends every stream: the catalog stops.
    pub(crate) fn end_all(&self) {
        for member in self.list.lock().members.values_mut() {
            if let Some(end) = member.end.take() {
                let _ = end.send("the catalog is stopping");
            }
        }
    }

    fn publish(&self, list: &mut List) {
        list.version += 1;
        let mut view = View::new(list.version);
        for member in list.members.values() {
            let lease = member.lease.as_ref();
            let (info, health) = (member.info.clone(), member.health.clone());
            let seen = ViewMember { info, state: member.state, stream: member.number, health };
            view.push(seen, lease.map(|lease| lease.slot()));
        }
        let old = std::mem::replace(&mut *self.view.write(), Arc::new(view));
        list.old_views.retain(|view| view.strong_count() > 0);
        list.old_views.push(Arc::downgrade(&old));
        self.versions.send_replace(list.version);
    }

    /// Whether a look-up may still read a view from before the current one.
    pub(crate) fn old_view_in_use(&self) -> bool {
        self.list.lock().old_views.iter().any(|view| view.strong_count() > 0)
    }

    /// Gives swept slots back for new streams.
    pub(crate) fn free(&self, slots: Vec<StreamSlot>) {
        self.slots.free(slots);
    }
}
