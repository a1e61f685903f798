//! The nodes that this client knows.
//!
//! Nodes on this host come from the socket directory and from the catalogs' members (each names its socket); the proof is
//! that the socket answers, the node is of this pool ([`pool`]) and the memory maps. Everything else is reached over TCP. Callers work on a snapshot of the
//! [`Table`], which they get without waiting for anybody.

mod attempts;
mod context;
mod fullness;
mod health;
mod mapped_node;
mod peer;
mod pool;
mod seen;
mod way;

pub(crate) use crate::catalogs::NodeKey;
pub(crate) use context::Context;
pub(crate) use health::SILENCE;
pub(crate) use mapped_node::MappedNode;
pub(crate) use peer::{Asked, Peer};
use seen::Seen;
pub(crate) use way::Way;

use crate::catalogs::{Census, Member, Node, NodeState};
use crate::fan_out::at_once;
use attempts::Attempts;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidepool_locks::{Mutex, RwLock};
use tidepool_transfer::conn::{ConnError, resolve};
use tidepool_types::{Deadline, NodeName};

/// Nodes of this host whose memory is mapped; further ones are reached over TCP.
const MAX_LOCAL: usize = 64;
/// How long a list of members is as good as a new one: they are asked for every second.
const MEMBERS_LAST: Duration = Duration::from_secs(2);

/// The nodes known at one moment.
#[derive(Default, Clone)]
pub(crate) struct Table {
    /// Mapped nodes, in the order in which they were found.
    pub(crate) locals: Vec<Arc<Peer>>,
    remotes: HashMap<NodeKey, Arc<Peer>>,
    /// What the catalogs last said.
    pub(crate) members: Vec<Member>,
    /// When they said so, if that is all there is to know.
    complete_as_of: Option<Instant>,
    /// The nodes that they have named lately.
    seen: Seen,
}

impl Table {
    /// The node, if it has been reached before.
    pub(crate) fn find(&self, key: &NodeKey) -> Option<&Arc<Peer>> {
        self.locals.iter().find(|peer| peer.key == *key).or_else(|| self.remotes.get(key))
    }

    /// What the catalogs say about the node.
    pub(crate) fn member(&self, key: &NodeKey) -> Option<&Member> {
        self.members.iter().find(|member| member.node.name == key.name && member.node.epoch == key.epoch)
    }

    /// The one node on the network, when there is just one and it answers.
    pub(crate) fn only_remote(&self) -> Option<&Arc<Peer>> {
        let mut remotes = self.remotes.values();
        let only = remotes.next().filter(|_| remotes.next().is_none())?;
        Some(only).filter(|peer| !peer.wants_probe())
    }

    /// Whether the indexes of this host's nodes and what `target` answers leave nothing that a catalog could add: no other
    /// node lives. One that has joined since the members were last asked for may be missed.
    pub(crate) fn is_covered_by(&self, target: &NodeKey) -> bool {
        let is_mapped = |key: &NodeKey| self.locals.iter().any(|peer| peer.key == *key && peer.memory().is_some());
        let living = self.members.iter().filter(|member| member.node.state != NodeState::Dead);
        self.complete_as_of.is_some_and(|time| time.elapsed() < MEMBERS_LAST)
            && living.map(|member| NodeKey::of(&member.node)).all(|key| key == *target || is_mapped(&key))
    }

    /// Whether no catalog holds the node for living, as far as was last heard.
    pub(crate) fn is_dead(&self, key: &NodeKey) -> bool {
        let is_here = self.locals.iter().any(|peer| peer.key == *key);
        !is_here && self.member(key).is_none_or(|member| member.node.state == NodeState::Dead)
    }

    /// Every node that has been reached.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.locals.iter().chain(self.remotes.values())
    }

    /// Every node of this host, and those on the network that the catalogs do not hold for dead.
    pub(crate) fn reachable(&self) -> impl Iterator<Item = &Arc<Peer>> {
        let is_dead = |key| self.member(key).is_some_and(|member| member.node.state == NodeState::Dead);
        let remotes = self.remotes.values().filter(move |peer| !is_dead(&peer.key));
        self.locals.iter().chain(remotes)
    }

    /// Living nodes that nobody has found a way to: their addresses do not resolve.
    pub(crate) fn unreached(&self) -> impl Iterator<Item = &NodeName> {
        let living = self.members.iter().filter(|member| member.node.state != NodeState::Dead);
        living.filter(|member| self.find(&NodeKey::of(&member.node)).is_none()).map(|member| &member.node.name)
    }

    /// Every node that a catalog has named in the last ten minutes and that may hold something.
    pub(crate) fn seen(&self) -> Vec<Node> {
        self.seen.nodes().cloned().collect()
    }

    /// Bytes for blocks of the largest node, as the catalogs say.
    pub(crate) fn largest(&self) -> Option<u64> {
        let living = self.members.iter().filter(|member| member.node.state != NodeState::Dead);
        living.map(|member| member.capacity_bytes).max()
    }

    /// The node of that name that was found last.
    pub(crate) fn named(&self, name: &NodeName) -> Option<&Arc<Peer>> {
        let mut with_name = self.all().filter(|peer| peer.key.name == *name);
        // After a restart the old incarnation may linger for a moment; the members know which one is current.
        let first = with_name.next()?;
        let current = |peer: &&Arc<Peer>| self.member(&peer.key).is_some();
        [first].into_iter().chain(with_name).find(current).or(Some(first))
    }
}

/// What is done with a newly mapped node.
type OnMapped = dyn Fn(&Arc<Peer>) + Send + Sync;

/// The table, and what is needed to change it.
pub(crate) struct Peers {
    table: RwLock<Arc<Table>>,
    attempts: Attempts,
    context: Arc<Context>,
    local: bool,
    /// Sockets that are there and did not answer when last tried. Short sections.
    unheard: Mutex<BTreeSet<PathBuf>>,
    /// Sockets, or their directory, that this user may not open, and that have been warned of. Short sections.
    closed: Mutex<BTreeSet<PathBuf>>,
    /// Called with every newly mapped node.
    mapped: Box<OnMapped>,
}

impl Peers {
    pub(crate) fn new(context: Arc<Context>, local: bool, mapped: impl Fn(&Arc<Peer>) + Send + Sync + 'static) -> Self {
        let (table, attempts) = (RwLock::default(), Attempts::default());
        let (unheard, closed) = (Mutex::default(), Mutex::default());
        Self { table, attempts, context, local, unheard, closed, mapped: Box::new(mapped) }
    }

    /// The nodes known now.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read())
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.table.write();
        let mut next = Table::clone(&table);
        change(&mut next);
        let before = std::mem::replace(&mut *table, Arc::new(next));
        // MappedNode of a node that is gone is let go with it, which takes seconds where a GPU has pinned it.
        drop(table);
        drop(before);
    }

    /// The way to a node that a catalog names: known already, on this host, or over TCP.
    pub(crate) fn reach(&self, node: &Node, until: Deadline) -> Option<Arc<Peer>> {
        let key = NodeKey::of(node);
        if let Some(peer) = self.table().find(&key) {
            return Some(Arc::clone(peer));
        }
        let peer = self.find_way(node, until)?;
        self.keep([&peer]);
        self.table().find(&key).cloned()
    }

    /// Keeps nodes on the network that were found, in one change of the table.
    fn keep<'a>(&self, found: impl IntoIterator<Item = &'a Arc<Peer>>) {
        let mut found = found.into_iter().filter(|peer| matches!(peer.way, Way::Network(_))).peekable();
        if found.peek().is_some() {
            self.change(|table| {
                for peer in found {
                    if table.find(&peer.key).is_none() {
                        table.remotes.insert(peer.key.clone(), Arc::clone(peer));
                    }
                }
            });
        }
    }

    /// A way to a node that is not known yet. One on the network is to be [kept](Self::keep).
    fn find_way(&self, node: &Node, until: Deadline) -> Option<Arc<Peer>> {
        let key = NodeKey::of(node);
        if let Some(peer) = self.try_socket_of(node, until) {
            return Some(peer);
        }
        let resolve = |until| {
            let resolved = resolve(&node.data_address, until);
            resolved.inspect_err(|error| tracing::debug!(node = %key.name, %error, "the node's address")).ok()
        };
        let address = match node.data_address.parse() {
            Ok(address) => address,
            Err(_) => self.attempts.attempt(&node.data_address, until, resolve)?,
        };
        Some(Arc::new(Peer::on_the_network(key, address, &self.context)))
    }

    /// Maps the node that a catalog names, if its socket is on this host.
    fn try_socket_of(&self, node: &Node, until: Deadline) -> Option<Arc<Peer>> {
        let key = NodeKey::of(node);
        let peer = self.try_socket(node.socket.as_deref()?, Some(&key), until)?;
        Some(peer).filter(|peer| peer.key == key)
    }

    /// Maps the node behind a socket, which a catalog may have `named`, unless it is mapped already.
    fn try_socket(&self, path: &Path, named: Option<&NodeKey>, until: Deadline) -> Option<Arc<Peer>> {
        let at_path = |peer: &&Arc<Peer>| peer.memory().is_some_and(|memory| memory.socket_path == path);
        let table = self.table();
        if let Some(peer) = table.locals.iter().find(at_path) {
            return Some(Arc::clone(peer));
        }
        if !self.local || table.locals.len() >= MAX_LOCAL || !path.exists() {
            return None;
        }
        // What was not of this pool when it was found may be once a catalog names it: that is another attempt.
        let target = format!("{}{}", path.display(), if named.is_some() { " as named" } else { "" });
        self.attempts.attempt(&target, until, |until| self.map_socket(path, named, until))
    }

    fn map_socket(&self, path: &Path, named: Option<&NodeKey>, until: Deadline) -> Option<Arc<Peer>> {
        let is_named = |key: &NodeKey| named == Some(key) || self.table().member(key).is_some();
        let opened = Peer::on_this_host(path, &self.context, is_named, until);
        match &opened {
            Err(ConnError::TimedOut | ConnError::Refused(_)) => self.unheard.lock().insert(path.to_owned()),
            _ => self.unheard.lock().remove(path),
        };
        if let Err(ConnError::Io(error)) = &opened {
            self.warn_if_closed(path, error);
        }
        let peer = Arc::new(opened.inspect_err(|error| tracing::debug!(?path, %error, "not a node to map")).ok()?);
        let mut known = None;
        self.change(|table| {
            // Two paths may lead to one node.
            known = table.locals.iter().find(|local| local.key == peer.key).cloned();
            if known.is_none() {
                table.remotes.remove(&peer.key);
                table.locals.push(Arc::clone(&peer));
            }
        });
        if known.is_none() {
            tracing::debug!(node = %peer.key.name, "mapped");
            (self.mapped)(&peer);
        }
        known.or(Some(peer))
    }

    /// Maps every node of this pool that has a socket in `dir`. All are tried at once: one that hangs hides no other.
    pub(crate) fn scan(&self, dir: &Path, until: Deadline) {
        let Ok(entries) = std::fs::read_dir(dir).inspect_err(|error| self.warn_if_closed(dir, error)) else { return };
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sock");
        let table = self.table();
        let is_mapped = |path: &PathBuf| {
            table.locals.iter().filter_map(|peer| peer.memory()).any(|memory| memory.socket_path == *path)
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(is_socket);
        let unknown: Vec<PathBuf> = paths.filter(|path| !is_mapped(path)).collect();
        at_once(&unknown, |path| {
            if !until.has_passed() {
                self.try_socket(path, None, until);
            }
        });
    }

    /// Warns, once, of what this user may not open: a node behind it is read over TCP, several times as slowly.
    fn warn_if_closed(&self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return;
        }
        let mut closed = self.closed.lock();
        if closed.len() >= MAX_LOCAL || !closed.insert(path.to_owned()) {
            return;
        }
        let owner = std::fs::metadata(path).ok().map(|found| found.uid());
        tracing::warn!(path = %path.display(), owner, "no shared memory: not open to this user, see node.access");
    }

    /// Nodes of this host whose sockets are there and do not answer.
    pub(crate) fn unheard(&self) -> Vec<NodeName> {
        let mut unheard = self.unheard.lock();
        unheard.retain(|path| path.exists());
        unheard.iter().filter_map(|path| NodeName::new(path.file_stem()?.to_string_lossy()).ok()).collect()
    }

    /// Takes over what the catalogs say, which is all there is to know if it is `complete`. Nodes on the network that they no
    /// longer name are forgotten.
    pub(crate) fn update_members(&self, members: Vec<Member>, complete: bool, until: Deadline) {
        let now = Instant::now();
        let named: HashSet<NodeKey> = members.iter().map(|member| NodeKey::of(&member.node)).collect();
        self.change(|table| {
            table.members = members;
            table.complete_as_of = complete.then_some(now);
            table.seen.note(&table.members, now);
            table.remotes.retain(|key, _| named.contains(key) || table.seen.contains(key));
        });
        for member in self.table().members.iter().filter(|member| member.node.state != NodeState::Dead) {
            // A node of this host that did not answer its socket at first is reached over TCP until it does.
            if self.try_socket_of(&member.node, until).is_none() {
                self.reach(&member.node, until);
            }
        }
    }

    /// Takes over what all catalogs know, hidden nodes included.
    pub(crate) fn note_census(&self, census: &Census) {
        self.change(|table| {
            table.seen.note(&census.members, Instant::now());
            table.seen.forget(&census.forgotten, &census.members);
        });
    }

    /// The ways to many nodes, looked for at once; `None` where there is none.
    pub(crate) fn reach_all(&self, nodes: &[Node], until: Deadline) -> Vec<Option<Arc<Peer>>> {
        let table = self.table();
        let mut found: Vec<Option<Arc<Peer>>> =
            nodes.iter().map(|node| table.find(&NodeKey::of(node)).cloned()).collect();
        let unknown: Vec<usize> = (0..nodes.len()).filter(|&index| found[index].is_none()).collect();
        let ways = at_once(&unknown, |&index| self.find_way(&nodes[index], until));
        let ways: Vec<Option<Arc<Peer>>> = ways.into_iter().map(Option::flatten).collect();
        self.keep(ways.iter().flatten());
        let table = self.table();
        for (&index, way) in unknown.iter().zip(ways) {
            // Of two that were found at the same time everybody uses the one that was kept.
            found[index] = way.map(|peer| table.find(&peer.key).cloned().unwrap_or(peer));
        }
        found
    }

    /// Forgets a node; its memory stays mapped for as long as a view needs it.
    pub(crate) fn forget(&self, peer: &Arc<Peer>) {
        peer.close();
        self.change(|table| {
            table.locals.retain(|known| !Arc::ptr_eq(known, peer));
            table.remotes.retain(|_, known| !Arc::ptr_eq(known, peer));
        });
    }
}
