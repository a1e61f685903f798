//! Who holds what, as a subscriber knows it from a catalog's events.

use super::answers::{Node, NodeState};
use std::collections::{BTreeMap, HashMap};
use tidepool_schema::watch_event::Event;
use tidepool_schema::{REMOVED, WatchChanges, WatchEvent, WatchNode, unpack_ids};
use tidepool_types::{BlockId, NodeName, Tier};

/// All that a catalog knows: its nodes, and for each the tier in which it holds each block.
///
/// Events are applied in their order; docs/catalog.md says what holds then.
#[derive(Debug, Clone, Default)]
pub struct PoolMap {
    nodes: BTreeMap<NodeName, Known>,
    is_current: bool,
}

#[derive(Debug, Clone)]
struct Known {
    node: Node,
    stream: u64,
    held: HashMap<BlockId, Tier>,
}

impl PoolMap {
    /// Whether the map has all that the catalog knew a moment ago. While it is false, holdings are missing.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.is_current
    }

    /// The nodes that the catalog knows, dead ones included, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(|known| &known.node)
    }

    /// The nodes that hold a block, each with the tier.
    pub fn holders(&self, id: BlockId) -> impl Iterator<Item = (&Node, Tier)> {
        self.nodes.values().filter_map(move |known| Some((&known.node, *known.held.get(&id)?)))
    }

    /// The blocks that a node holds, each with its tier; `None` when the catalog does not know the node.
    #[must_use]
    pub fn holdings(&self, node: &NodeName) -> Option<&HashMap<BlockId, Tier>> {
        self.nodes.get(node).map(|known| &known.held)
    }

    /// The catalog is not heard any more: what it knew stays, as a hint.
    pub(super) const fn lose(&mut self) {
        self.is_current = false;
    }

    /// Takes an event over; `None` when it makes no sense.
    pub(super) fn apply(&mut self, event: WatchEvent) -> Option<()> {
        match event.event {
            Some(Event::Start(_)) => *self = Self::default(),
            Some(Event::Node(node)) => self.take_node(node)?,
            Some(Event::Changes(changes)) => self.change(&changes)?,
            Some(Event::Gap(gap)) => {
                self.is_current = false;
                self.of_stream(gap.stream).into_iter().for_each(|known| known.held.clear());
            }
            Some(Event::Current(_)) => self.is_current = true,
            // A kind of event that this version does not know.
            None => {}
        }
        Some(())
    }

    fn take_node(&mut self, told: WatchNode) -> Option<()> {
        let (node, stream) = (Node::from_wire(told.node?)?, told.stream);
        let before = self.nodes.remove(&node.name);
        if !told.forgotten {
            let goes_on = |known: &Known| known.stream == stream && node.state != NodeState::Dead;
            let held = before.filter(goes_on).map(|known| known.held).unwrap_or_default();
            self.nodes.insert(node.name.clone(), Known { node, stream, held });
        }
        Some(())
    }

    fn change(&mut self, changes: &WatchChanges) -> Option<()> {
        let (ids, kinds) = (unpack_ids(&changes.ids), &changes.kinds);
        if ids.len() != kinds.len() || changes.ids.len() != kinds.len() * BlockId::LEN {
            return None;
        }
        let Some(known) = self.of_stream(changes.stream) else { return Some(()) };
        for (id, kind) in ids.zip(kinds) {
            match *kind {
                REMOVED => known.held.remove(&id),
                tier => known.held.insert(id, Tier::try_from(tier).ok()?),
            };
        }
        Some(())
    }

    /// The node whose stream this is, unless it is dead.
    fn of_stream(&mut self, stream: u64) -> Option<&mut Known> {
        self.nodes.values_mut().find(|known| known.stream == stream && known.node.state != NodeState::Dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidepool_schema::{self as wire, WatchCurrent, WatchGap, WatchStart, pack_ids};

    fn id(n: u64) -> BlockId {
        BlockId::from_words([n, !n])
    }

    fn node(name: &str, stream: u64, state: wire::NodeState) -> Event {
        let node = wire::Node { name: name.to_owned(), state: state.into(), ..wire::Node::default() };
        Event::Node(WatchNode { node: Some(node), stream, forgotten: false })
    }

    fn changes(stream: u64, ids: std::ops::Range<u64>, kind: u8) -> Event {
        let ids: Vec<BlockId> = ids.map(id).collect();
        Event::Changes(WatchChanges { stream, ids: pack_ids(ids.iter()), kinds: vec![kind; ids.len()].into() })
    }

    fn applied(map: &mut PoolMap, event: Event) -> bool {
        map.apply(WatchEvent { event: Some(event) }).is_some()
    }

    fn map_of(events: impl IntoIterator<Item = Event>) -> PoolMap {
        let mut map = PoolMap::default();
        assert!(events.into_iter().all(|event| applied(&mut map, event)));
        map
    }

    fn holders(map: &PoolMap, n: u64) -> Vec<(&str, Tier)> {
        map.holders(id(n)).map(|(node, tier)| (node.name.as_str(), tier)).collect()
    }

    use wire::NodeState::{Alive, Dead, Suspect};

    #[test]
    fn a_map_has_what_the_events_say() {
        let mut map = map_of([node("a", 1, Alive), node("b", 2, Alive), changes(1, 0..10, 0), changes(2, 5..10, 1)]);
        assert!(!map.is_current());
        assert!(applied(&mut map, Event::Current(WatchCurrent {})) && map.is_current());
        assert_eq!(holders(&map, 7), [("a", Tier::Dram), ("b", Tier::Disk)]);
        assert!(applied(&mut map, changes(1, 7..8, REMOVED)) && applied(&mut map, changes(2, 8..9, 0)));
        assert_eq!(holders(&map, 7), [("b", Tier::Disk)]);
        assert_eq!(holders(&map, 8), [("a", Tier::Dram), ("b", Tier::Dram)]);
        assert_eq!(map.holdings(&NodeName::new("a").unwrap()).unwrap().len(), 9);
    }

    #[test]
    fn what_a_stream_said_goes_with_it_and_with_a_gap() {
        let held = || map_of([node("a", 1, Alive), changes(1, 0..1, 0), Event::Current(WatchCurrent {})]);
        let left_by = |event: Event| {
            let mut map = held();
            assert!(applied(&mut map, event));
            (map.nodes().count(), holders(&map, 0).len(), map.is_current())
        };
        assert_eq!(left_by(node("a", 1, Suspect)), (1, 1, true), "a suspect still holds it");
        assert_eq!(left_by(node("a", 2, Alive)), (1, 0, true), "a new stream");
        assert_eq!(left_by(node("a", 1, Dead)), (1, 0, true));
        assert_eq!(left_by(Event::Gap(WatchGap { stream: 1 })), (1, 0, false));
        assert_eq!(left_by(Event::Gap(WatchGap { stream: 9 })), (1, 1, false), "another stream's");
        assert_eq!(left_by(changes(9, 0..1, REMOVED)), (1, 1, true), "of a stream that nobody has");
        assert_eq!(left_by(Event::Start(WatchStart { incarnation: 1 })), (0, 0, false));
        let Event::Node(told) = node("a", 1, Dead) else { unreachable!() };
        assert_eq!(left_by(Event::Node(WatchNode { forgotten: true, ..told })), (0, 0, true));
    }

    #[test]
    fn events_that_make_no_sense_are_refused() {
        let mut map = map_of([node("a", 1, Alive)]);
        let ragged = WatchChanges { stream: 1, ids: vec![0; 17].into(), kinds: vec![0].into() };
        let short = WatchChanges { stream: 1, ids: vec![0; 32].into(), kinds: vec![0].into() };
        assert!(!applied(&mut map, Event::Changes(ragged)) && !applied(&mut map, Event::Changes(short)));
        assert!(!applied(&mut map, changes(1, 0..1, 7)), "a kind that is no tier");
        assert!(!applied(&mut map, node("../a", 1, Alive)));
        assert!(!applied(&mut map, Event::Node(WatchNode::default())));
    }
}
