//! The list behind a directory: its members, the lives that may not come back, and since when nobody was lost from it.

use super::health::Health;
use super::lease::Lease;
use super::state::{Link, NodeState};
use super::view::View;
use crate::index::Index;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidepool_schema as wire;
use tokio::sync::oneshot;

/// Incarnations that a directory refuses at most; past them the oldest are admitted again.
const MOST_BARRED: usize = 4096;

pub(super) struct Member {
    pub(super) info: Arc<wire::NodeInfo>,
    pub(super) state: NodeState,
    pub(super) health: Arc<Health>,
    pub(super) number: u64,
    /// Present as long as the stream's entries count.
    pub(super) lease: Option<Arc<Lease>>,
    pub(super) end: Option<oneshot::Sender<&'static str>>,
}

impl Member {
    /// Invalidates the stream and ends it.
    pub(super) fn retire(&mut self, index: &Index, reason: &'static str) {
        if let Some(lease) = self.lease.take() {
            index.live().remove(lease.slot());
        }
        if let Some(end) = self.end.take() {
            let _ = end.send(reason);
        }
    }

    /// Whether the node said goodbye: it holds nothing, and nothing of it can come back.
    pub(super) fn left(&self) -> bool {
        self.health.link() == Link::Left
    }
}

/// See the file's head.
#[derive(Default)]
pub(super) struct List {
    pub(super) members: BTreeMap<String, Member>,
    pub(super) version: u64,
    pub(super) old_views: Vec<Weak<View>>,
    pub(super) barred: Barred,
    /// Every node that was heard of at this time or later, and did not say goodbye, is a member or barred.
    pub(super) known_since: Duration,
}

impl List {
    /// Drops the members of which `is_over` says yes; how many there were.
    pub(super) fn drop_where(&mut self, is_over: impl Fn(&Member) -> bool) -> usize {
        let dropped = self.members.extract_if(.., |_, member| is_over(member));
        let heard: Vec<(bool, Duration)> = dropped.map(|(_, member)| (member.left(), member.health.heard())).collect();
        let lost = heard.iter().filter(|(left, _)| !left).map(|(_, heard)| *heard + Duration::from_micros(1));
        self.known_since = lost.fold(self.known_since, Duration::max);
        heard.len()
    }

    /// Drops a dead member: one that left if there is one, else the one that has been silent for the longest. False when
    /// all members live.
    pub(super) fn make_room(&mut self) -> bool {
        let dead = self.members.values().filter(|member| member.state == NodeState::Dead);
        let Some(first) = dead.min_by_key(|member| (!member.left(), member.health.heard())) else { return false };
        let number = first.number;
        self.drop_where(|member| member.number == number) > 0
    }
}

/// Incarnations that may not come back, the oldest first: a newer one took their place, or an operator had them forgotten.
#[derive(Default)]
pub(super) struct Barred(VecDeque<Bar>);

struct Bar {
    name: String,
    epoch: u64,
    /// Whether an operator wished it.
    by_wish: bool,
}

impl Barred {
    pub(super) fn push(&mut self, name: &str, epoch: u64, by_wish: bool) {
        self.0.retain(|bar| bar.name != name || bar.epoch != epoch);
        if self.0.len() == MOST_BARRED {
            self.0.pop_front();
        }
        self.0.push_back(Bar { name: name.to_owned(), epoch, by_wish });
    }

    pub(super) fn contains(&self, name: &str, epoch: u64) -> bool {
        self.0.iter().any(|bar| bar.name == name && bar.epoch == epoch)
    }

    /// Those that an operator wished.
    pub(super) fn by_wish(&self) -> Vec<wire::Incarnation> {
        let wished = self.0.iter().filter(|bar| bar.by_wish);
        wished.map(|bar| wire::Incarnation { name: bar.name.clone(), epoch: bar.epoch }).collect()
    }
}
