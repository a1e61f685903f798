//! A subscriber ends equal to the catalog, whatever nodes do and however slow it is.

use crate::config::CatalogConfig;
use crate::core::Core;
use crate::members::state::NodeState;
use crate::service::watch::{Events, subscribe_with};
use crate::streams::Intake;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidepool_schema::inventory_up::Message;
use tidepool_schema::watch_event::Event;
use tidepool_schema::{self as wire, Deltas, Goodbye, Heartbeat, Hello, InventoryUp, NodeInfo, REMOVED, SnapshotPage};
use tidepool_types::{BlockId, Random};
use tokio_stream::StreamExt;

/// Blocks that there are.
const IDS: u64 = 300;
const TIERS: u64 = 3;

/// What a subscriber or a model knows of a node: the state as messages have it, and the tier of each block.
type Of = (i32, BTreeMap<BlockId, u8>);
/// The same of all nodes, by name.
type Known = BTreeMap<String, Of>;

fn id(n: u64) -> BlockId {
    BlockId::from_words([n, !n])
}

/// Nodes are dead only when they say so: no test waits for time to pass.
fn core(subscriber_queue_bytes: usize) -> Arc<Core> {
    let (suspect_after, dead_after) = (Duration::from_secs(3000), Duration::from_secs(6000));
    Arc::new(Core::new(&CatalogConfig {
        suspect_after,
        dead_after,
        subscriber_queue_bytes,
        ..CatalogConfig::default()
    }))
}

/// A subscriber that believes what it is told.
struct Follower {
    events: Events,
    nodes: BTreeMap<String, (i32, u64)>,
    streams: BTreeMap<u64, BTreeMap<BlockId, u8>>,
    gaps: usize,
}

impl Follower {
    fn new(core: &Arc<Core>) -> Self {
        let events = subscribe_with(core, Duration::from_millis(1)).unwrap();
        Self { events, nodes: BTreeMap::new(), streams: BTreeMap::new(), gaps: 0 }
    }

    /// Follows one event; whether it was the word that all has been told.
    async fn follow(&mut self) -> bool {
        match self.events.next().await.unwrap().unwrap().event.unwrap() {
            Event::Start(_) => assert!(self.nodes.is_empty(), "it comes first"),
            Event::Node(told) => {
                let node = told.node.unwrap();
                let over = self.nodes.get(&node.name).map(|(_, stream)| *stream).filter(|old| *old != told.stream);
                over.into_iter().for_each(|old| drop(self.streams.remove(&old)));
                if told.forgotten {
                    self.nodes.remove(&node.name);
                } else {
                    self.nodes.insert(node.name, (node.state, told.stream));
                }
                if told.forgotten || node.state == i32::from(wire::NodeState::Dead) {
                    self.streams.remove(&told.stream);
                } else {
                    self.streams.entry(told.stream).or_default();
                }
            }
            Event::Changes(changes) => {
                let held = self.streams.get_mut(&changes.stream).expect("a stream that counts");
                for (id, kind) in wire::unpack_ids(&changes.ids).zip(changes.kinds) {
                    if kind == REMOVED {
                        held.remove(&id)
                    } else {
                        held.insert(id, kind)
                    };
                }
            }
            Event::Gap(gap) => {
                self.gaps += 1;
                self.streams.get_mut(&gap.stream).expect("a stream that counts").clear();
            }
            Event::Current(_) => return true,
        }
        false
    }

    /// Follows until all is told that was true when this was called. Two events may have been made before that, and wait.
    async fn catch_up(&mut self) -> Known {
        for _ in 0..3 {
            while !self.follow().await {}
        }
        let held = |stream: &u64| self.streams.get(stream).cloned().unwrap_or_default();
        self.nodes.iter().map(|(name, (state, stream))| (name.clone(), (*state, held(stream)))).collect()
    }
}

/// A node of the model, and what catalogs should know of it.
struct Node {
    core: Arc<Core>,
    name: String,
    epoch: u64,
    intake: Option<Intake>,
    state: Option<NodeState>,
    held: BTreeMap<BlockId, u8>,
    /// The number of its latest change, and of its snapshot on this stream.
    latest: u64,
    snapshot: u64,
    /// Whether the catalog follows its changes.
    is_followed: bool,
}

impl Node {
    fn new(core: &Arc<Core>, number: usize) -> Self {
        let (core, name, held) = (core.clone(), format!("n{number}"), BTreeMap::new());
        Self { core, name, epoch: 1, intake: None, state: None, held, latest: 0, snapshot: 0, is_followed: false }
    }

    fn connect(&mut self) {
        let node = Some(NodeInfo { name: self.name.clone(), epoch: self.epoch, ..NodeInfo::default() });
        let hello = InventoryUp { message: Some(Message::Hello(Hello { node, ack_bound_millis: 0 })) };
        let (intake, _) = Intake::admit(self.core.clone(), hello).unwrap();
        (self.state, self.snapshot, self.is_followed) = (Some(NodeState::Alive), 0, false);
        self.held.clear();
        self.intake = Some(intake);
    }

    fn say(&mut self, message: Message) {
        self.intake.as_mut().expect("connected").take(InventoryUp { message: Some(message) }).unwrap();
    }

    /// Begins again with something else, in pages, with changes between them.
    fn snapshot(&mut self, random: &mut Random) {
        self.snapshot += 1;
        self.held.clear();
        self.is_followed = true;
        let pages = 1 + random.below(3);
        for page in 0..pages {
            let fresh: BTreeMap<BlockId, u8> =
                (0..random.below(40)).map(|_| (id(random.below(IDS)), random.below(TIERS) as u8)).collect();
            let tiers: Vec<u8> = fresh.values().copied().collect();
            let (snapshot, as_of, ids) = (self.snapshot, self.latest, wire::pack_ids(fresh.keys()));
            let last = page + 1 == pages;
            self.say(Message::Page(SnapshotPage { snapshot, page, as_of, ids, tiers: tiers.into(), last }));
            self.held.extend(fresh);
            self.change(random);
        }
    }

    fn change(&mut self, random: &mut Random) {
        let count = 1 + random.below(30);
        let ids: Vec<BlockId> = (0..count).map(|_| id(random.below(IDS))).collect();
        let kinds: Vec<u8> = ids.iter().map(|_| random.below(TIERS + 1) as u8).collect();
        let kinds: Vec<u8> = kinds.into_iter().map(|kind| if kind < TIERS as u8 { kind } else { REMOVED }).collect();
        let first = self.latest + 1;
        self.latest += count;
        for (id, kind) in ids.iter().zip(&kinds).filter(|_| self.is_followed) {
            if *kind == REMOVED {
                self.held.remove(id)
            } else {
                self.held.insert(*id, *kind)
            };
        }
        self.say(Message::Deltas(Deltas { first, ids: wire::pack_ids(ids.iter()), kinds: kinds.into() }));
    }

    /// Something happens to the node.
    fn act(&mut self, random: &mut Random) {
        match (random.below(20), self.intake.is_some(), self.state) {
            // The same life on a new connection, or a new life.
            (0, ..) => self.connect(),
            (_, false, state) => match random.below(4) {
                0 => self.connect(),
                1 => {
                    self.epoch += 1;
                    (self.latest, self.held) = (0, BTreeMap::new());
                    self.connect();
                }
                2 if state == Some(NodeState::Dead) => {
                    self.core.directory.forget(&self.name, self.epoch).unwrap();
                    self.state = None;
                    self.epoch += 1;
                }
                _ => {}
            },
            (1, true, _) => {
                self.intake = None;
                self.state = Some(NodeState::Suspect);
            }
            (2, true, _) => {
                self.say(Message::Goodbye(Goodbye {}));
                self.intake = None;
                self.state = Some(NodeState::Dead);
                self.held.clear();
            }
            // A change is lost on its way: the catalog drops all that the stream said.
            (3, true, _) if self.is_followed => {
                self.latest += 5;
                self.say(Message::Heartbeat(Heartbeat { latest: self.latest, ..Heartbeat::default() }));
                self.is_followed = false;
                self.held.clear();
            }
            (4, true, _) => self.snapshot(random),
            (_, true, _) if self.is_followed => self.change(random),
            (_, true, _) => self.snapshot(random),
        }
    }

    fn known(&self) -> Option<(String, Of)> {
        let state = wire::NodeState::from(self.state?);
        Some((self.name.clone(), (state.into(), self.held.clone())))
    }
}

/// What look-ups say.
fn looked_up(core: &Core) -> Known {
    let view = core.directory.view();
    let state = |state| i32::from(wire::NodeState::from(state));
    let mut known: Known =
        view.members.iter().map(|m| (m.info.name.clone(), (state(m.state), BTreeMap::new()))).collect();
    for id in (0..IDS).map(id) {
        for holder in core.index.holders(id) {
            let Some(member) = view.owner(holder) else { continue };
            let name = &view.members[usize::from(member)].info.name;
            known.get_mut(name).unwrap().1.insert(id, holder.tier as u8);
        }
    }
    known
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// One run of the model: gaps that the subscriber had.
async fn model(seed: u64, room: usize) -> usize {
    let (core, mut random) = (core(room), Random::new(seed));
    let mut nodes: Vec<Node> = (0..4).map(|number| Node::new(&core, number)).collect();
    // Some of it happens before anybody subscribes.
    (0..random.below(60)).for_each(|_| nodes[random.below(4) as usize].act(&mut random));
    let mut follower = Follower::new(&core);
    for round in 0..5 {
        for _ in 0..60 {
            nodes[random.below(4) as usize].act(&mut random);
            // A slow subscriber: most of the time it does not look.
            for _ in 0..random.below(8).saturating_sub(5) {
                follower.follow().await;
            }
        }
        let expected: Known = nodes.iter().filter_map(Node::known).collect();
        assert_eq!(looked_up(&core), expected, "the model, seed {seed}, round {round}");
        assert_eq!(follower.catch_up().await, expected, "seed {seed}, round {round}, {room} bytes of room");
    }
    follower.gaps
}

#[test]
fn a_subscriber_ends_equal_to_the_catalog_whatever_nodes_do() {
    for seed in 0..30 {
        println!("seed {seed}");
        assert_eq!(run(model(seed, 1 << 20)), 0, "nothing is lost where there is room");
    }
}

#[test]
fn a_slow_subscriber_with_a_tiny_queue_has_gaps_and_ends_equal_to_the_catalog() {
    let gaps: usize = (0..30).map(|seed| run(model(seed, if seed % 2 == 0 { 100 } else { 2000 }))).sum();
    assert!(gaps > 100, "{gaps} gaps: the queue is no bound");
}

/// Streams, the walk and the subscriber really at the same time.
#[test]
fn a_subscriber_that_comes_while_streams_change_ends_equal_to_the_catalog() {
    for seed in 0..8 {
        println!("seed {seed}");
        let core = core(if seed % 2 == 0 { 20_000 } else { 1 << 20 });
        let stream = |number: u64| {
            let core = core.clone();
            std::thread::spawn(move || {
                let mut random = Random::new(seed * 1000 + number);
                let mut node = Node::new(&core, number as usize);
                node.connect();
                for _ in 0..10 {
                    node.snapshot(&mut random);
                    (0..100).for_each(|_| node.change(&mut random));
                }
                node
            })
        };
        run(async {
            let mut followers = vec![Follower::new(&core)];
            let streams: Vec<_> = (0..3).map(stream).collect();
            while !streams.iter().all(std::thread::JoinHandle::is_finished) {
                if followers.len() < 20 {
                    followers.push(Follower::new(&core));
                }
                for follower in &mut followers {
                    follower.follow().await;
                }
            }
            let nodes: Vec<Node> = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
            let expected: Known = nodes.iter().filter_map(Node::known).collect();
            for follower in &mut followers {
                assert_eq!(follower.catch_up().await, expected, "seed {seed}");
            }
        });
    }
}

#[test]
fn a_subscriber_that_goes_leaves_its_place_and_past_the_bound_one_is_refused() {
    let config = CatalogConfig { max_subscribers: 2, ..CatalogConfig::default() };
    let core = Arc::new(Core::new(&config));
    run(async {
        let mut both = vec![Follower::new(&core), Follower::new(&core)];
        let refused = subscribe_with(&core, Duration::from_secs(1)).err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(refused.message(), "2 subscribers listen already; at most 2 may");
        both.pop();
        while core.subscribers.count() > 1 {
            tokio::task::yield_now().await;
        }
        both.push(Follower::new(&core));
        drop(both);
        while core.subscribers.count() > 0 {
            tokio::task::yield_now().await;
        }
    });
}
