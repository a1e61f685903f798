//! Look-ups and prefix matches over one view of the members.

use super::holders::{HolderFields, is_held};
use crate::index::Index;
use crate::members::View;
use tidepool_schema::{LookupReply, MatchPrefixReply, Want};

type Ids<'a> = &'a [[u8; 16]];

/// Looks up each id.
pub(super) fn lookup(index: &Index, view: &View, ids: Ids<'_>, want: Want) -> LookupReply {
    let found = index.fetch(ids);
    if want == Want::Exists {
        let counts: Vec<u8> = found.iter().zip(ids).map(|(found, id)| is_held(found, id, index, view).into()).collect();
        return LookupReply { counts: counts.into(), ..LookupReply::default() };
    }
    let mut fields = HolderFields::new(index, view, ids.len());
    for (found, id) in found.iter().zip(ids) {
        fields.push(found, id);
    }
    let (counts, holders, nodes) = (fields.counts.into(), fields.holders.into(), fields.nodes);
    LookupReply { counts, holders, nodes, ..LookupReply::default() }
}

/// Ids of a chain looked up at first; each further step looks up four times as many. A chain that the pool does not hold
/// costs little, and one that it holds is looked up in large batches.
const FIRST_STEP: usize = 256;

/// Finds the run of each chain.
pub(super) fn match_prefix(index: &Index, view: &View, ids: Ids<'_>, lengths: &[u32], want: Want) -> MatchPrefixReply {
    let mut fields = HolderFields::new(index, view, if want == Want::Holders { ids.len() } else { 0 });
    let mut runs = Vec::with_capacity(lengths.len());
    let mut rest = ids;
    for length in lengths {
        let (chain, others) = rest.split_at(*length as usize);
        rest = others;
        runs.push(run(index, view, chain, want, &mut fields) as u32);
    }
    let shortest = runs.iter().copied().min().unwrap_or(0);
    let (counts, holders, nodes) = (fields.counts.into(), fields.holders.into(), fields.nodes);
    MatchPrefixReply { runs, shortest, counts, holders, nodes, ..MatchPrefixReply::default() }
}

fn run(index: &Index, view: &View, chain: Ids<'_>, want: Want, fields: &mut HolderFields<'_>) -> usize {
    let (mut run, mut step) = (0, FIRST_STEP);
    while run < chain.len() {
        let some = &chain[run..chain.len().min(run + step)];
        for (found, id) in index.fetch(some).iter().zip(some) {
            let held = match want {
                Want::Exists => is_held(found, id, index, view),
                Want::Holders => fields.push_if_held(found, id),
            };
            if !held {
                return run;
            }
            run += 1;
        }
        step *= 4;
    }
    run
}
