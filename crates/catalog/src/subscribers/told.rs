//! The nodes as one subscriber knows them.

use crate::members::state::NodeState;
use crate::members::{View, ViewMember};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidepool_schema::{self as wire, Node, NodeInfo, WatchNode};

/// See the file's head.
#[derive(Default)]
pub(crate) struct Told {
    /// Of the view that was told last.
    version: u64,
    /// In the order of their names, as views have them.
    nodes: Vec<Known>,
    /// The streams of the nodes that are not dead.
    streams: BTreeSet<u64>,
}

struct Known {
    info: Arc<NodeInfo>,
    stream: u64,
    state: NodeState,
}

impl Told {
    /// What is to be told of the nodes, so that the subscriber knows them as `view` does.
    pub(crate) fn update(&mut self, view: &View) -> Vec<WatchNode> {
        if view.version == self.version {
            return Vec::new();
        }
        let mut events = Vec::new();
        let mut known = self.nodes.iter().peekable();
        for member in &view.members {
            while let Some(gone) = known.next_if(|known| known.info.name < member.info.name) {
                events.push(forgotten(gone));
            }
            let same = known.next_if(|known| known.info.name == member.info.name);
            if same.is_none_or(|known| known.stream != member.stream || known.state != member.state) {
                events.push(told(member));
            }
        }
        events.extend(known.map(forgotten));
        self.nodes = view.members.iter().map(Known::new).collect();
        self.streams = view.living().map(|member| member.stream).collect();
        self.version = view.version;
        events
    }

    /// The streams that count.
    pub(crate) const fn streams(&self) -> &BTreeSet<u64> {
        &self.streams
    }
}

impl Known {
    fn new(member: &ViewMember) -> Self {
        Self { info: member.info.clone(), stream: member.stream, state: member.state }
    }
}

fn told(member: &ViewMember) -> WatchNode {
    WatchNode { node: Some(member.node()), stream: member.stream, forgotten: false }
}

fn forgotten(known: &Known) -> WatchNode {
    let node = Node { name: known.info.name.clone(), state: wire::NodeState::Dead.into(), ..Node::default() };
    WatchNode { node: Some(node), stream: known.stream, forgotten: true }
}
