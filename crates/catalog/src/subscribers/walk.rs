//! A walk through the index for what some streams have said.

use crate::core::Core;
use crate::index::Index;
use std::collections::BTreeSet;
use tidepool_schema::WatchChanges;

/// Ids looked at in a row; between two rows, other tasks have their turn.
const ROW: usize = 4096;

/// See the file's head.
pub(crate) struct Walk {
    streams: BTreeSet<u64>,
    step: usize,
}

#[derive(Default)]
struct Page {
    ids: Vec<u8>,
    tiers: Vec<u8>,
}

impl Walk {
    /// Looks for what `streams` say.
    pub(crate) const fn new(streams: BTreeSet<u64>) -> Self {
        Self { streams, step: 0 }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.step == Index::STEPS
    }

    /// What is found in the next row. It must be told before any change that is taken from the queue from now on.
    pub(crate) fn next(&mut self, core: &Core) -> Vec<WatchChanges> {
        // Kept while the index is read: slots mean what this view says, and are not given to other streams.
        let view = core.directory.view();
        let page = |stream| self.streams.contains(&stream).then(Page::default);
        let mut pages: Vec<Option<Page>> = view.members.iter().map(|member| page(member.stream)).collect();
        let mut looked_at = 0;
        while !self.is_over() && looked_at < ROW {
            looked_at += core.index.look_through(self.step, |id, holder| {
                if let Some(page) = view.owner(holder).and_then(|member| pages[usize::from(member)].as_mut()) {
                    page.ids.extend_from_slice(id.as_bytes());
                    page.tiers.push(holder.tier as u8);
                }
            });
            self.step += 1;
        }
        let found = view.members.iter().zip(pages).filter_map(|(member, page)| Some((member.stream, page?)));
        let found = found.filter(|(_, page)| !page.tiers.is_empty());
        found
            .map(|(stream, Page { ids, tiers })| WatchChanges { stream, ids: ids.into(), kinds: tiers.into() })
            .collect()
    }
}
