//! Listing keys: only owners know them, so every node is asked, in pages.

use crate::client::Client;
use crate::error::NodeError;
use crate::fan_out::fan_out;
use crate::peers::NodeKey;
use std::collections::{BTreeMap, HashMap};
use tidepool_types::NodeName;
use tidepool_wire::message::{KeyEntry, List, Reply, Request};

pub use tidepool_wire::message::Pattern;

/// Where a listing goes on. The first page starts from the default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListCursor {
    /// How far each node has been listed; `None` at its end. Empty at the start.
    nodes: HashMap<NodeKey, Option<u64>>,
}

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// The blocks, by key. A block with replicas is listed once per page, but can come again on a later page.
    pub entries: Vec<Listed>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<ListCursor>,
    /// Nodes that did not answer or refused to, or to which there is no way: their keys are missing from this page.
    pub unanswered: Vec<NodeName>,
}

/// A block, as its owners list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The key.
    pub key: Vec<u8>,
    /// The block's length.
    pub len: u64,
    /// Nodes of this page that hold it.
    pub nodes: Vec<NodeName>,
}

impl Client {
    /// A page of about `limit` keys that match `pattern`, from all nodes.
    pub fn list(&self, pattern: &Pattern, cursor: &ListCursor, limit: u32) -> Result<ListPage, NodeError> {
        let deadline = self.deadline();
        let known = self.core().known(deadline);
        let (mut peers, unanswered) = self.everyone(&known, deadline);
        let start = |key: &NodeKey| cursor.nodes.get(key).copied().unwrap_or(Some(0));
        peers.retain(|peer| start(&peer.key).is_some());
        let share = limit.max(1).div_ceil(peers.len().max(1) as u32);
        let request = |peer: std::sync::Arc<crate::peers::Peer>| {
            let list = List { pattern: pattern.clone(), cursor: start(&peer.key).unwrap_or(0), limit: share };
            (peer, Request::List(list))
        };
        let questions: Vec<_> = peers.into_iter().map(request).collect();
        let mut page = Page { cursor: cursor.clone(), unanswered, ..Page::default() };
        for ((peer, _), answer) in questions.iter().zip(fan_out(&questions, deadline)) {
            match answer {
                Ok(Reply::Keys(keys)) => page.add(&peer.key, keys.entries, keys.next),
                // Only what is wrong with the question itself ends the call: one node that refuses says nothing of others.
                Err(error @ NodeError::Invalid(_)) => return Err(error),
                Err(NodeError::Ended(_)) if !known.is_alive(&peer.key) => page.end(&peer.key),
                // A node that does not answer now is not asked again: the listing must come to an end.
                _ => {
                    page.end(&peer.key);
                    page.unanswered.push(peer.key.name.clone());
                }
            }
        }
        Ok(page.finish())
    }
}

/// A page in the making.
#[derive(Default)]
struct Page {
    entries: BTreeMap<Vec<u8>, (u64, Vec<NodeName>)>,
    cursor: ListCursor,
    unanswered: Vec<NodeName>,
}

impl Page {
    fn add(&mut self, node: &NodeKey, entries: Vec<KeyEntry>, next: Option<u64>) {
        for entry in entries {
            let (_, nodes) = self.entries.entry(entry.key).or_insert((entry.len, Vec::new()));
            nodes.push(node.name.clone());
        }
        self.cursor.nodes.insert(node.clone(), next);
    }

    /// Nothing more is to come from a node.
    fn end(&mut self, node: &NodeKey) {
        self.cursor.nodes.insert(node.clone(), None);
    }

    fn finish(self) -> ListPage {
        let listed = |(key, (len, nodes))| Listed { key, len, nodes };
        let more = self.cursor.nodes.values().any(Option::is_some);
        ListPage {
            entries: self.entries.into_iter().map(listed).collect(),
            next: more.then_some(self.cursor),
            unanswered: self.unanswered,
        }
    }
}
